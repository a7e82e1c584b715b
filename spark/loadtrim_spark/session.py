"""The Spark session, and the jars that it needs beside Spark's own: Kafka's source and Delta.

Under ``spark-submit`` the session is configured from outside (``--packages``, see docs/spark.md). Else by
:func:`own_settings`, and the jars are fetched by Maven, once, into loadtrim's cache. They are fetched one by one and
without what they depend on, as Spark brings the rest, and because the parents of some name repositories that cannot be
reached everywhere.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from loadtrim.testing.distribution import DEPENDENCY_PLUGIN, MAVEN_SECONDS, cache_directory, locked
from loadtrim.testing.errors import LocalKafkaError
from loadtrim.testing.tools import find_maven
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError

__all__ = ["ARTIFACTS", "check_zone", "jars", "own_settings", "session"]

ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
    "io.delta:delta-spark_2.13:4.0.1",
    "io.delta:delta-storage:4.0.1",
)
LAYOUT = 1
BROADCAST_BYTES_MAX = 10 << 20
LOOPBACK = "127.0.0.1"


def session(master: str = "local[*]", memory: str = "1g", options: Mapping[str, str] | None = None) -> SparkSession:
    """The running session, or a new one.

    Args:
        master: where it runs, unless spark-submit said so.
        memory: of the driver, unless spark-submit said so.
        options: Spark's own settings, which win over these here.

    Raises:
        PipelineError: the jars are not there and cannot be fetched.
    """
    builder = SparkSession.builder.appName("loadtrim")
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # A group may be called ${spark.app.name}: what stands in a statement is meant as it is.
        "spark.sql.variable.substitute": "false",
        # Rows that MERGE is given are persisted and the same when they are read again: no third copy of them. With one
        # file per day and group, one task would write all of a large group; `compact` puts the files together later.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
        # What Spark takes for small it sends to everybody, by way of the driver. Before anything ran it judges by the
        # size of files: ten megabytes of history are twenty million rows. So only what was measured small is sent.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": str(BROADCAST_BYTES_MAX),
        # How many groups a task sums up in Spark's fast map, as a power of 2. Minutes of partitions are more than its
        # 2**16, a day of 46 partitions already; each row beyond is looked up in a second, slower map too.
        "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
        # Java code that Spark wrote for a query, kept for the next that is the same. `baselines` takes some hundreds;
        # of the 100 that it keeps unless told none is left when a stream's next batch comes.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else: spark-submit started this process
        _name_files_in_utf8()
        settings |= own_settings(master, memory, jars())
    for name, value in {**settings, **(options or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler calls Java from within the call that it interrupts: a traceback, no KeyboardInterrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def check_zone(spark: SparkSession, zone: str) -> None:
    """Ask Java for a time zone that Python knows: both need it, and each has zones of its own.

    Raises:
        PipelineError: Java does not know it.
    """
    ids: Any = spark._jvm
    try:
        ids.java.time.ZoneId.of(zone, ids.java.time.ZoneId.SHORT_IDS)
    except JAVA_ERRORS as error:
        raise PipelineError(
            f"Java knows no time zone {zone}, though Python does.",
            "Nothing was learnt, and nothing written.",
            "Give the zone's name as in IANA's list by --time-zone, such as Europe/Berlin.",
        ) from error


def _name_files_in_utf8() -> None:
    """Have the Java that is about to start write names of files in UTF-8: directories of groups bear their ids.

    Python makes up for a locale that is not set, and Java inherits that; one that is set to C it leaves alone.
    """
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"


def own_settings(master: str, memory: str, jars: Iterable[Path]) -> dict[str, str]:
    """What spark-submit would say, where it did not start this process.

    Args:
        master: a Spark master's URL.
        memory: of the driver.
        jars: of Kafka's source and Delta.
    """
    settings = {
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists directories in this many tasks: 10 000 unless told.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }
    if master.startswith("local"):
        # Nobody else has to reach the driver. A cluster's executors have to: there Spark finds its own address.
        settings |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
    return settings


def jars() -> list[Path]:
    """The jars, from ``LOADTRIM_SPARK_JARS`` (a directory) or the cache, fetched first when they are not there."""
    given = os.environ.get("LOADTRIM_SPARK_JARS")
    root = Path(given) if given else cache_directory() / f"spark-{pyspark.__version__}-{LAYOUT}"
    if not given and not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        with locked(root.with_name(root.name + ".lock")):
            if not root.is_dir():
                _fetch(root)
    found = sorted(root.glob("*.jar"))
    missing = [name for name in ARTIFACTS if not any(name.split(":")[1] in jar.name for jar in found)]
    if missing:
        raise PipelineError(
            f"{root} does not hold {', '.join(missing)}.",
            "Without these jars Spark can neither read Kafka nor write the history.",
            "Put them there, or unset LOADTRIM_SPARK_JARS and remove the directory to have them fetched by Maven.",
        )
    return found


def _fetch(root: Path) -> None:
    print("fetching Spark's connectors for Kafka and Delta by Maven (once, about 17 MB)", file=sys.stderr, flush=True)
    making = Path(tempfile.mkdtemp(prefix=f"{root.name}.making-", dir=root.parent))
    try:
        maven = find_maven()
        for artifact in ARTIFACTS:
            command = [
                str(maven), "--batch-mode", "--strict-checksums", "--quiet", "--no-transfer-progress",
                f"{DEPENDENCY_PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={making}",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False)
            if done.returncode:
                said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip()[-600:]
                raise _no_jars(f"Maven could not fetch {artifact}: {said}")
        making.chmod(0o755)
        making.rename(root)
    except (OSError, subprocess.TimeoutExpired, LocalKafkaError) as error:
        raise _no_jars(f"Spark's connectors could not be fetched: {error}") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _no_jars(happened: str) -> PipelineError:
    return PipelineError(
        happened,
        "Without them Spark can neither read Kafka nor write the history.",
        "Let Maven reach a repository, or put the jars into a directory and name it in LOADTRIM_SPARK_JARS; "
        "under spark-submit give --packages instead (docs/spark.md).",
    )
