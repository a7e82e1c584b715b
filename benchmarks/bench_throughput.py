"""How many records a second one consumer gets through, and at what CPU, beside its peers in turns in the same run."""

from __future__ import annotations

import random
import statistics
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .child import Child
from .drain import WAYS
from .results import Figure
from .suite import Benchmark, Context, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 4
CLIENTS = tuple(WAYS)
VALUES = 1_000
"""Different values that are sent again and again."""
DRAIN_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of records."""

    name: str
    value_bytes: int
    codec: str
    records: int
    rounds: int
    records_quick: int
    """0: not in a quick run."""
    rounds_quick: int
    one_by_one_at_least: float
    """Target of ``async for`` relative to aiokafka's; that of ``getmany`` is 1 always."""


CASES = (
    Case("100 bytes", 100, "none", 1_000_000, 5, 200_000, 2, 2.2),
    Case("1 kB", 1_000, "none", 200_000, 3, 0, 0, 1.0),
    Case("10 kB", 10_000, "none", 30_000, 3, 6_000, 1, 1.0),
    Case("1 kB, lz4", 1_000, "lz4", 200_000, 3, 0, 0, 1.0),
    Case("1 kB, zstd", 1_000, "zstd", 200_000, 3, 40_000, 1, 1.0),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What one client did in one round with one of its two ways."""

    records_per_second: float
    cpu_microseconds: float
    """Per record, of the whole process."""


Rounds = list[dict[tuple[str, str], Told]]
"""Per round: (client, way) -> what it did."""


async def run(context: Context) -> Finding:
    """The clients take turns; each has a process of its own per round, and a group of its own per way."""
    kafka = context.cluster()
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    done: list[tuple[str, int, int]] = []
    for number, case in enumerate(CASES):
        records, rounds = (case.records_quick, case.rounds_quick) if context.quick else (case.records, case.rounds)
        if not records:
            continue
        topic = kafka.create_topic(partitions=PARTITIONS)
        preload(kafka.bootstrap, topic, case, records)
        warm = [] if number or context.quick else [0]  # the broker's first round is nobody's
        told = [await _round(context, topic, records, turn) for turn in (*warm, *range(1, rounds + 1))][len(warm) :]
        figures += _figures(case, told)
        details[case.name] = _details(told)
        done.append((case.name, records, rounds))
    return Finding(
        setting=(
            f"One consumer reads from {PARTITIONS} partitions what is there already, all metrics and reports on: "
            + "; ".join(f"{name}: {count:,} records in {rounds} rounds" for name, count, rounds in done)
            + ". lz4 makes 79 % of these values, zstd 45 %. In each round every client has its turn, in a process of "
            "its own; from the first record to the last. Ratios are taken within each round; medians."
        ),
        figures=tuple(figures),
        details=details,
    )


def values_of(size_bytes: int) -> list[bytes]:
    """The same in every run: words and numbers, as in a log."""
    source = random.Random(size_bytes)
    words = [uuid.UUID(int=source.getrandbits(128)).hex[:8].encode() for _ in range(500)]

    def text() -> Iterator[bytes]:
        while True:
            yield source.choice(words)
            yield str(source.random()).encode()

    values = []
    for _ in range(VALUES):
        parts, source_text, length = [], text(), 0
        while length < size_bytes:
            parts.append(next(source_text))
            length += len(parts[-1])
        values.append(b"".join(parts)[:size_bytes])
    return values


def preload(bootstrap: str, topic: str, case: Case, records: int) -> None:
    """Send the records, in batches as a busy producer makes them."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": case.codec,
            "linger.ms": 50,
            "batch.size": 1 << 17,
            "queue.buffering.max.kbytes": 1 << 20,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    values = values_of(case.value_bytes)
    for number in range(records):
        producer.produce(topic, values[number % VALUES], partition=number % PARTITIONS)
    if left := producer.flush(DRAIN_SECONDS_MAX):
        raise RuntimeError(f"{left} of {records} records could not be written to {topic}")


async def _round(context: Context, topic: str, records: int, turn: int) -> dict[tuple[str, str], Told]:
    """Who goes first changes from round to round."""
    told: dict[tuple[str, str], Told] = {}
    bootstrap = context.cluster().bootstrap
    for place in range(len(CLIENTS)):
        client = CLIENTS[(turn + place) % len(CLIENTS)]
        options = {"client": client, "bootstrap": bootstrap}
        child = await Child.spawn(
            "benchmarks.drain", client, options, context.scratch, {"LOADTRIM_HTTP": "127.0.0.1:0"}
        )
        try:
            for way in WAYS[client]:
                group = f"bench-{uuid.uuid4().hex[:8]}"
                answer = await child.ask(
                    "drain", timeout_seconds=DRAIN_SECONDS_MAX, topic=topic, group=group, way=way, records=records
                )
                told[client, way] = Told(
                    answer["records"] / answer["seconds"], answer["cpu_seconds"] / answer["records"] * 1e6
                )
        finally:
            await child.close()
    return told


def _figures(case: Case, rounds: Rounds) -> list[Figure]:
    figures = []
    for which, way in enumerate(WAYS["loadtrim"]):
        ours, bare = ("loadtrim", way), ("aiokafka", way)
        rdkafka = ("confluent-kafka", WAYS["confluent-kafka"][which])
        figures.append(
            Figure(
                name=f"{case.name}: `{way}`, relative to aiokafka's",
                value=statistics.median(r[ours].records_per_second / r[bare].records_per_second for r in rounds),
                unit="x",
                at_least=1.0 if which else case.one_by_one_at_least,
                peer=(
                    f"{_rate(rounds, ours)} records/s; aiokafka {_rate(rounds, bare)}; "
                    f"confluent-kafka `{rdkafka[1]}` {_rate(rounds, rdkafka)}"
                ),
            )
        )
        figures.append(
            Figure(
                name=f"{case.name}: CPU per record of `{way}`, relative to aiokafka's",
                value=statistics.median(r[ours].cpu_microseconds / r[bare].cpu_microseconds for r in rounds),
                unit="x",
                peer=f"{_cpu(rounds, ours)} us; aiokafka {_cpu(rounds, bare)}; confluent-kafka {_cpu(rounds, rdkafka)}",
            )
        )
    return figures


def _rate(rounds: Rounds, key: tuple[str, str]) -> str:
    return f"{statistics.median(told[key].records_per_second for told in rounds):,.0f}"


def _cpu(rounds: Rounds, key: tuple[str, str]) -> str:
    return f"{statistics.median(told[key].cpu_microseconds for told in rounds):.2f}"


def _details(rounds: Rounds) -> dict[str, Any]:
    keys = sorted({key for told in rounds for key in told})
    return {
        f"{client}, {way}": {
            "records_per_second": [round(told[client, way].records_per_second) for told in rounds],
            "cpu_microseconds_per_record": [round(told[client, way].cpu_microseconds, 3) for told in rounds],
        }
        for client, way in keys
    }


BENCHMARK = Benchmark(name="throughput", title="Throughput of one consumer", run=run, seconds=400, quick_seconds=50)
