"""Payments into rows, in batches of so many bytes or so many seconds (the consumer cycle of Landau'24).

``python examples/batches --topics payments --batch-bytes 5000000 --wait-seconds 1``, as often as there shall be
replicas, or under ``loadtrim up``. Records are JSON objects with ``id``, ``amount_cents`` and ``currency``; for each
topic there must be ``<topic>-rows`` and ``<topic>-rejected``, unless the broker makes topics by itself. SIGTERM sends
out what is gathered, hands over and leaves.

Exit codes: 0 stopped; 2 wrong use; 3 the cluster could not be used.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from batches.gathering import BatchLimits
from batches.service import Cycle, rejected_of, rows_of
from loadtrim import Consumer, SettingsError

__all__ = ["BatchOptions", "main", "run"]

TOPICS_SECONDS = 10.0
"""Longest wait for the topics of the results; a broker that makes them by itself takes less."""


class TopicMissingError(Exception):
    """A topic of the results is not there. Caught by :func:`main`, which prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What the command line says."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    limits: BatchLimits


async def run(options: BatchOptions) -> None:
    """Consume until SIGTERM.

    Raises:
        KafkaError: the cluster cannot be reached, or refuses. TopicMissingError: there is nowhere to send results to.
    """
    consumer = Consumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, enable_idempotence=True)
    cycle = Cycle(consumer, producer, options.limits)
    consumer.subscribe(options.topics, listener=cycle)
    async with producer:
        await _need_topics(producer, options.topics)
        async with consumer:  # stopped before the producer: partitions that go are sent out first
            await cycle.run()


async def _need_topics(producer: AIOKafkaProducer, topics: Sequence[str]) -> None:
    for topic in (of(topic) for topic in topics for of in (rows_of, rejected_of)):
        try:
            async with asyncio.timeout(TOPICS_SECONDS):
                await producer.partitions_for(topic)
        except (TimeoutError, KafkaError) as error:
            raise TopicMissingError(
                f"There is no topic {topic!r} after {TOPICS_SECONDS:g} s, so nothing was consumed; create it, or let "
                "the broker make topics by itself (auto.create.topics.enable)."
            ) from error


def _options(arguments: Sequence[str] | None) -> BatchOptions:
    description, *_ = (__doc__ or "").partition("\n\nExit codes")
    parser = argparse.ArgumentParser(
        prog="examples/batches",
        description=description,
        epilog="LOADTRIM_* variables set the group (README.md). Exit codes: 0 stopped; 2 wrong use; 3 the cluster "
        "could not be used.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    limits = BatchLimits()
    parser.add_argument("--bootstrap", default="localhost:9092", metavar="HOST:PORT", help="the cluster (%(default)s)")
    parser.add_argument("--group", default="batches", help="the consumer group (%(default)s)")
    parser.add_argument("--topics", nargs="+", default=["payments"], metavar="TOPIC", help="to consume (payments)")
    parser.add_argument(
        "--batch-bytes",
        type=int,
        default=limits.batch_bytes,
        metavar="N",
        help="a batch is complete with so many bytes of keys and values, over all partitions (%(default)s)",
    )
    parser.add_argument(
        "--wait-seconds",
        type=float,
        default=limits.wait_seconds,
        metavar="S",
        help="or when its cycle began so long ago, whatever is there by then (%(default)s)",
    )
    given = parser.parse_args(arguments)
    try:
        limits = BatchLimits(batch_bytes=given.batch_bytes, wait_seconds=given.wait_seconds)
    except ValueError as error:
        parser.error(str(error))
    return BatchOptions(bootstrap=given.bootstrap, group=given.group, topics=tuple(given.topics), limits=limits)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service. Returns the exit code (see the module)."""
    options = _options(arguments)
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(run(options))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except TopicMissingError as error:
        print(error, file=sys.stderr)
        return 3
    except KafkaError as error:
        print(
            f"The service ended: {error!r}. What it did not commit is consumed again, by the group's other members or "
            f"after a start. Look whether {options.bootstrap} is up and may be used.",
            file=sys.stderr,
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
