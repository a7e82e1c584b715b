"""``loadtrim kafka``: a local Kafka in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from loadtrim.testing import LocalKafka, LocalKafkaError, create_topic
from loadtrim.testing.ports import port_is_free

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["TopicWanted", "add_parser", "parse_property", "parse_topic", "run"]

EXIT_DONE, EXIT_FAILED, EXIT_WRONG_USE = 0, 1, 2
PORT_DEFAULT = 9092
LOOK_SECONDS = 1.0


class TopicWanted(NamedTuple):
    """A topic to create once the broker is up."""

    name: str
    partitions: int


class _StopAskedError(BaseException):
    """SIGTERM or Ctrl-C came: unwinds from wherever the command is, so that the brokers are stopped."""


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``kafka`` to the command line."""
    parser = subparsers.add_parser(
        "kafka",
        help="run a local Kafka for development and tests",
        description="Runs a Kafka on this machine until Ctrl-C. Needs Java 17, and Maven the first time.",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many brokers (default: 1)")
    parser.add_argument("--version", metavar="V", help="of Kafka (default: LOADTRIM_KAFKA_VERSION, else 4.1.1)")
    parser.add_argument(
        "--port", type=_port, metavar="P",
        help="of the first broker, the others follow; 0: any free (default: 9092 if free)",
    )  # fmt: skip
    parser.add_argument(
        "--topic", type=parse_topic, action="append", default=[], dest="topics", metavar="NAME:PARTITIONS",
        help="create this topic; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--property", type=parse_property, action="append", default=[], dest="properties", metavar="KEY=VALUE",
        help="a property of the brokers, over the defaults; may be given again",
    )  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="keep the data there (default: removed at the end)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON when it is ready")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the brokers until SIGINT or SIGTERM; return the exit code."""
    ready = False
    try:
        with _stop_asked_on_signals(), _local_kafka(args) as kafka:
            topics = asyncio.run(_create_topics(kafka.bootstrap, args.topics))
            ready = True
            _say_ready(kafka, topics, as_json=args.json)
            _watch(kafka)
    except _StopAskedError:
        if not ready:
            print("loadtrim kafka: stopped before it was ready", file=sys.stderr)
        return EXIT_DONE if ready else EXIT_FAILED
    except ValueError as error:
        return _failed(error, EXIT_WRONG_USE)
    except (LocalKafkaError, KafkaError, OSError) as error:
        return _failed(error, EXIT_FAILED)


def parse_topic(text: str) -> TopicWanted:
    """Read "NAME:PARTITIONS", or "NAME" for one partition; argparse says what is wrong with another text."""
    name, _, count = text.partition(":")
    if not name or (":" in text and not (count.isdecimal() and int(count) >= 1)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS, such as payments:9")
    return TopicWanted(name, int(count or 1))


def parse_property(text: str) -> tuple[str, str]:
    """Read "KEY=VALUE"; the value may be empty and may hold further equal signs."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as log.retention.ms=60000")
    return key.strip(), value.strip()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _local_kafka(args: argparse.Namespace) -> LocalKafka:
    port = args.port
    if port is None:
        wanted = range(PORT_DEFAULT, PORT_DEFAULT + args.brokers)
        port = PORT_DEFAULT if all(map(port_is_free, wanted)) else 0
    return LocalKafka(
        args.brokers, args.version, dict(args.properties), port=port or None, data_dir=args.data
    )  # fmt: skip


async def _create_topics(bootstrap: str, topics: Sequence[TopicWanted]) -> list[str]:
    for topic in topics:
        try:
            await create_topic(bootstrap, topic.name, topic.partitions)
        except TopicAlreadyExistsError:
            # Kept data has it from the last time.
            print(f"topic {topic.name} is there already: left as it is", file=sys.stderr)
    return [topic.name for topic in topics]


def _say_ready(kafka: LocalKafka, topics: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        ready: dict[str, Any] = {
            "bootstrap": kafka.bootstrap,
            "version": kafka.version,
            "brokers": [{"id": b.id, "port": b.port, "process_id": b.process_id} for b in kafka.brokers],
            "topics": list(topics),
        }
        print(json.dumps(ready), flush=True)
        return
    print(f"Kafka {kafka.version} is ready at {kafka.bootstrap} (Ctrl-C stops it)", flush=True)


def _watch(kafka: LocalKafka) -> NoReturn:
    while True:
        for broker in kafka.brokers:
            broker.check()
        time.sleep(LOOK_SECONDS)


@contextmanager
def _stop_asked_on_signals() -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        # The next one finds Python's own way: it ends this process, and the guard the brokers.
        signal.signal(number, signal.SIG_DFL)
        raise _StopAskedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _failed(error: Exception, code: int) -> int:
    print(f"loadtrim kafka: {error}", file=sys.stderr)
    return code
