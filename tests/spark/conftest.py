from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from loadtrim.testing import LocalKafka
from loadtrim_spark.cli import main as cli
from loadtrim_spark.cli import studies
from loadtrim_spark.pipeline.source import Source
from loadtrim_spark.session import session

QUICK_JVM = {
    # Tests run each plan once, on a few rows: the second compiler would cost more than it saves. Without it the JVM
    # keeps 48 MB for compiled code, which Spark fills within some tests; from there on it forgets and interprets.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
    # For the same reason plans are interpreted and not compiled, and nobody looks at them again while they run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session("local[1]", "800m", QUICK_JVM)
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def one_session(spark: SparkSession) -> Iterator[None]:
    """Commands of the command line take the tests' session."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (cli, studies):
            patch.setattr(module, "session", lambda *_: spark)
        yield


LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.users.plain.sasl.jaas.config": f'{LOGIN} user_eve="eve";',
}


@pytest.fixture(scope="session")
def own_kafka() -> Iterator[LocalKafka]:
    """Who comes by its usual address may do all; ``eve``, who comes by the listener ``USERS``, what she is given."""
    with LocalKafka(properties=RIGHTS, listeners={"USERS": "SASL_PLAINTEXT"}, short_run=True) as kafka:
        yield kafka


@pytest.fixture
def eve(kafka: LocalKafka) -> Source:
    return _as_eve(kafka, "eve")


@pytest.fixture
def eve_with_a_wrong_password(kafka: LocalKafka) -> Source:
    return _as_eve(kafka, "adam")


def _as_eve(kafka: LocalKafka, password: str) -> Source:
    login = f'{LOGIN} username="eve" password="{password}";'
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    return Source(kafka.bootstrap_at("USERS"), options)


@pytest.fixture
def kafka(own_kafka: LocalKafka) -> Iterator[LocalKafka]:
    """A Kafka without a topic of loadtrim's: the pipeline reads those of every group. So never a shared cluster."""
    yield own_kafka
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    ours = [name for name in admin.list_topics(timeout=30).topics if name.startswith("__loadtrim")]
    for future in admin.delete_topics(ours, operation_timeout=30).values() if ours else ():
        future.result()


@pytest.fixture(autouse=True)
def nothing_is_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:  # others need no session
        request.getfixturevalue("spark").catalog.clearCache()
