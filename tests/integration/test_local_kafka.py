"""The local Kafka for real: brokers that come, go and come back, and always go for good."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import TopicAlreadyExistsError

from loadtrim.testing import BrokerError, Cluster, LocalKafka, create_topic
from loadtrim.testing.local_kafka import Broker

pytestmark = pytest.mark.kafka

GONE_SECONDS = 30.0
"""Longest wait for processes to end and data to go: they take some 0.1 s on a quiet machine."""

PARENT = """
import json, sys
from loadtrim.testing import LocalKafka
kafka = LocalKafka(int(sys.argv[1]), short_run=True)
kafka.start()
brokers = [{"port": b.port, "process_id": b.process_id, "log": str(b.log_path)} for b in kafka.brokers]
print(json.dumps(brokers), flush=True)
sys.stdin.read()
"""
MAIN = """
import argparse, sys
from loadtrim.cli import kafka
parser = argparse.ArgumentParser()
kafka.add_parser(parser.add_subparsers())
args = parser.parse_args(["kafka", *sys.argv[1:]])
sys.exit(args.run(args))
"""


@pytest.fixture(scope="module")
def one() -> Iterator[LocalKafka]:
    """One broker of this module's own: the session's is not to be restarted under other tests."""
    with LocalKafka(short_run=True) as kafka:
        yield kafka


async def send(cluster: Cluster, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def read(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None, auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [(await consumer.getone()).value for _ in range(count)]


async def describe(cluster: Cluster, topic: str) -> list[dict[str, object]]:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        (found,) = await admin.describe_topics([topic])
        partitions: list[dict[str, object]] = found["partitions"]
        return partitions
    finally:
        await admin.close()


def home_of(broker: Broker) -> Path:
    """The cluster's temporary directory, by one broker's log in it."""
    return broker.log_path.parent.parent


def runs(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {GONE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)


async def test_records_go_in_and_come_out(one: LocalKafka) -> None:
    topic = one.create_topic(partitions=9)
    await send(one, topic, b"first", b"second")

    assert await read(one, topic, 2) == [b"first", b"second"]
    assert len(await describe(one, topic)) == 9


def test_topics_have_names_of_their_own_or_the_one_asked_for(one: LocalKafka) -> None:
    names = {one.create_topic() for _ in range(3)}

    assert len(names) == 3
    assert one.create_topic(2, name="asked-for") == "asked-for"
    with pytest.raises(TopicAlreadyExistsError):
        one.create_topic(2, name="asked-for")


async def test_a_topic_of_an_async_test_has_the_configuration_it_asked_for(one: LocalKafka) -> None:
    topic = await create_topic(one.bootstrap, None, 1, config={"message.timestamp.type": "LogAppendTime"})
    async with AIOKafkaProducer(bootstrap_servers=one.bootstrap) as producer:
        sent = await producer.send_and_wait(topic, b"x", timestamp_ms=1)

    assert sent.timestamp > 1


async def test_a_mistyped_topic_is_not_made(one: LocalKafka) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=one.bootstrap)
    await admin.start()
    try:
        await admin.describe_topics(["mistyped"])
        assert "mistyped" not in await admin.list_topics()
    finally:
        await admin.close()


async def test_the_first_member_of_a_group_joins_at_once(one: LocalKafka) -> None:
    topic = one.create_topic()
    started = time.monotonic()
    async with AIOKafkaConsumer(topic, bootstrap_servers=one.bootstrap, group_id=topic) as consumer:
        await consumer.position(TopicPartition(topic, 0))

    # The broker's default would hold the first join back for 3 s.
    assert time.monotonic() - started < 2.5


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
async def test_a_restarted_broker_has_its_port_and_its_data(one: LocalKafka, end: Callable[[Broker], None]) -> None:
    topic = one.create_topic()
    await send(one, topic, b"before")
    (broker,) = one.brokers
    bootstrap, first = one.bootstrap, broker.process_id

    end(broker)
    assert refuses(broker.port)
    assert (broker.running, broker.process_id) == (False, None)
    broker.start()

    assert one.bootstrap == bootstrap
    assert broker.process_id not in (None, first)
    await send(one, topic, b"after")
    assert await read(one, topic, 2) == [b"before", b"after"]


def state_of(process_id: int | None) -> str:
    """The kernel's letter for what a process is doing: T is stopped."""
    return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def test_a_suspended_broker_accepts_and_is_silent_until_resumed(one: LocalKafka) -> None:
    (broker,) = one.brokers
    broker.suspend()
    try:
        # A process of many threads stops a moment after it was told to.
        deadline = time.monotonic() + 10
        while state_of(broker.process_id) != "T":
            assert time.monotonic() < deadline, "not stopped"
            time.sleep(0.01)
        assert broker.running
        assert not refuses(broker.port)
    finally:
        broker.resume()

    broker.wait_until_it_serves(frozenset({broker.id}))


def test_stopping_ends_the_process_and_removes_the_data() -> None:
    with LocalKafka(short_run=True) as kafka:
        (broker,) = kafka.brokers
        home, process_id = home_of(broker), broker.process_id
        assert process_id is not None
        assert home.is_dir()

    assert not home.exists()
    assert not runs(process_id)
    assert refuses(broker.port)
    with pytest.raises(BrokerError, match="start a new LocalKafka"):
        broker.start()


async def test_three_brokers_replicate_and_survive_the_loss_of_one() -> None:
    with LocalKafka(3, short_run=True, heap_mb=256) as kafka:
        assert [broker.id for broker in kafka.brokers] == [1, 2, 3]
        assert len(kafka.bootstrap.split(",")) == 3
        topic = kafka.create_topic(partitions=6)
        partitions = await describe(kafka, topic)
        assert {partition["leader"] for partition in partitions} == {1, 2, 3}
        assert all(len(list(partition["replicas"])) == 3 for partition in partitions)  # type: ignore[call-overload]
        await send(kafka, topic, b"before")

        kafka.brokers[0].kill()
        await send(kafka, topic, b"without one")
        kafka.brokers[0].start()

        assert await read(kafka, topic, 2) == [b"before", b"without one"]
        kafka.brokers[0].wait_until_it_serves(frozenset({1, 2, 3}))


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_killed_test_run_leaves_nothing_behind(brokers: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(brokers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    found = json.loads(parent.stdout.readline())
    home = Path(found[0]["log"]).parent.parent
    assert home.is_dir()
    assert not any(refuses(broker["port"]) for broker in found)

    parent.kill()
    parent.wait()

    wait_until(lambda: all(refuses(broker["port"]) for broker in found), "every broker's port refuses")
    wait_until(lambda: not any(runs(broker["process_id"]) for broker in found), "every broker has ended")
    wait_until(lambda: not home.exists(), "the data is gone")
    parent.communicate()


def test_a_broker_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    kafka = LocalKafka(properties={"log.retention.ms": "soon"}, log_dir=tmp_path, short_run=True)

    with pytest.raises(BrokerError) as caught:
        kafka.start()

    text = str(caught.value)
    assert "ended with exit code 1" in text
    assert "soon" in text
    assert "log.retention.ms" in text
    assert tmp_path.joinpath("broker-1.log").exists()
    assert kafka.brokers == ()


async def test_kept_data_is_there_at_the_next_start(tmp_path: Path) -> None:
    with LocalKafka(data_dir=tmp_path / "data", short_run=True) as kafka:
        topic = kafka.create_topic()
        await send(kafka, topic, b"kept")
    with LocalKafka(data_dir=tmp_path / "data", short_run=True) as kafka:
        assert await read(kafka, topic, 1) == [b"kept"]


@pytest.mark.versions
@pytest.mark.parametrize("version", ["3.9.1", "4.1.1"])
async def test_other_versions_run_too(version: str) -> None:
    with LocalKafka(version=version, short_run=True) as kafka:
        topic = kafka.create_topic(partitions=3)
        await send(kafka, topic, b"x")
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"x"
        kafka.brokers[0].stop()
        kafka.brokers[0].start()
        assert await read(kafka, topic, 1) == [b"x"]


# The fixture, as a user's test suite has it.

SUITE = """
import os
{how}

def test_first(kafka):
    topic = kafka.create_topic(partitions=2)
    print("BOOTSTRAP", kafka.bootstrap, topic)

async def test_second(kafka):
    assert kafka.create_topic()
    print("BOOTSTRAP", kafka.bootstrap)
"""
INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
HOWS = {
    "imported": ("from loadtrim.testing import kafka  # noqa", None),
    "plugin": ("", 'pytest_plugins = ["loadtrim.testing"]'),
}


def run_suite(directory: Path, how: str, environ: dict[str, str]) -> list[list[str]]:
    text, conftest = HOWS[how]
    directory.joinpath("test_suite.py").write_text(SUITE.format(how=text), encoding="utf-8")
    directory.joinpath("pytest.ini").write_text(INI, encoding="utf-8")
    if conftest is not None:
        directory.joinpath("conftest.py").write_text(conftest, encoding="utf-8")
    # Where the package is not installed, the path to its sources may be a relative one.
    environ = environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", "-c", "pytest.ini", "."],
        cwd=directory, env=os.environ | environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("BOOTSTRAP")]


@pytest.mark.parametrize("how", sorted(HOWS))
async def test_the_fixture_uses_an_existing_cluster(tmp_path: Path, one: LocalKafka, how: str) -> None:
    found = run_suite(tmp_path, how, {"KAFKA_BOOTSTRAP": one.bootstrap})

    assert [bootstrap for bootstrap, *_ in found] == [one.bootstrap] * 2
    assert len(await describe(one, found[0][1])) == 2
    one.brokers[0].check()


def test_the_fixture_starts_one_kafka_for_the_session_and_stops_it(tmp_path: Path) -> None:
    found = run_suite(tmp_path, "plugin", {"KAFKA_BOOTSTRAP": "", "TMPDIR": str(tmp_path)})

    (bootstrap,) = {bootstrap for bootstrap, *_ in found}
    assert refuses(int(bootstrap.rsplit(":", 1)[1]))
    assert list(tmp_path.glob("loadtrim-kafka-*")) == []


# The command.


def start_command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_when_it_is_ready_and_ends_in_order(number: signal.Signals) -> None:
    command = start_command("--port", "0", "--topic", "payments:3", "--property", "log.retention.ms=60000", "--json")
    assert command.stdout is not None
    ready = json.loads(command.stdout.readline())
    assert ready["topics"] == ["payments"]
    (broker,) = ready["brokers"]
    assert ready["bootstrap"] == f"127.0.0.1:{broker['port']}"
    assert not refuses(broker["port"])

    command.send_signal(number)
    output, errors = command.communicate(timeout=GONE_SECONDS)

    assert (command.returncode, output, errors) == (0, "", "")
    assert refuses(broker["port"])
    assert not runs(broker["process_id"])


def test_the_command_ends_when_its_broker_does() -> None:
    command = start_command("--port", "0", "--json")
    assert command.stdout is not None
    (broker,) = json.loads(command.stdout.readline())["brokers"]

    os.kill(broker["process_id"], signal.SIGKILL)
    _, errors = command.communicate(timeout=GONE_SECONDS)

    assert command.returncode == 1
    assert "Kafka broker 1" in errors
    assert "does not run" in errors


def test_the_command_keeps_data_and_its_topics(tmp_path: Path) -> None:
    for said in ("", "topic payments is there already"):
        command = start_command("--port", "0", "--data", str(tmp_path), "--topic", "payments:3")
        assert command.stdout is not None
        assert command.stdout.readline().startswith("Kafka ")
        command.send_signal(signal.SIGTERM)
        _, errors = command.communicate(timeout=3 * GONE_SECONDS)
        assert command.returncode == 0
        assert said in errors
