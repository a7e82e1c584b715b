"""How many records a second one consumer gets through, and at what CPU, beside its peers in turns in the same run."""

from __future__ import annotations

import contextlib
import random
import statistics
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .child import Child
from .drain import CONSUME_RECORDS, WAYS
from .results import Figure
from .suite import READER, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "CASES", "Told", "drain", "faster", "figures_of", "preload", "ratio", "spawn"]

PARTITIONS = 4
CLIENTS = tuple(WAYS)
VALUES = 1_000
"""Different values that are sent again and again."""
DRAIN_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class ThroughputCase:
    """One kind of records."""

    value_bytes: int
    codec: str
    records: int
    records_quick: int = 0
    """0: not in a quick run."""
    one_by_one_at_least: float = 1.0
    """Target of ``async for`` relative to aiokafka's; that of ``getmany`` is 1 always."""

    @property
    def name(self) -> str:
        size = f"{self.value_bytes} bytes" if self.value_bytes < 1_000 else f"{self.value_bytes // 1_000} kB"
        return size if self.codec == "none" else f"{size}, {self.codec}"


CASES = (
    ThroughputCase(100, "none", 1_000_000, 200_000, 2.2),
    ThroughputCase(1_000, "none", 150_000),
    ThroughputCase(10_000, "none", 30_000, 20_000),
    *(
        ThroughputCase(size, codec, records, records if (size, codec) == (1_000, "zstd") else 0)
        for codec in ("lz4", "zstd")
        for size, records in ((100, 250_000), (1_000, 75_000), (10_000, 15_000))
    ),
)
ROUNDS, ROUNDS_QUICK = 3, 1


@dataclass(frozen=True, slots=True)
class Told:
    """What one client did in one round with one of its two ways."""

    records_per_second: float
    cpu_microseconds: float
    """Per record, of the whole process."""


Rounds = list[dict[tuple[str, str], Told]]
"""Per round: (client, way) -> what it did."""


async def run(context: BenchmarkContext) -> Finding:
    """In each round every client has its turn with each case; who goes first changes from turn to turn."""
    kafka = context.cluster()
    cases = {case: case.records_quick if context.quick else case.records for case in CASES}
    cases = {case: records for case, records in cases.items() if records}
    topics = {case: kafka.create_topic(partitions=PARTITIONS) for case in cases}
    for case, records in cases.items():
        preload(kafka.bootstrap, topics[case], case, records)
    rounds = ROUNDS_QUICK if context.quick else ROUNDS
    # The broker's first reads are nobody's: they choose the peer's batch.
    batches = await _batches(context, cases, topics)
    told = [await _round(context, RoundPlan(cases, topics, batches, turn)) for turn in range(rounds)]
    return Finding(
        setting=(
            f"One consumer reads from {PARTITIONS} partitions what is there already, all metrics and reports on: "
            + "; ".join(f"{case.name}: {count:,} records" for case, count in cases.items())
            + f". lz4 makes 79 % of values of 1 kB, zstd 45 %. In each of {rounds} rounds every client has its turn "
            "with each of them, in one process per client and round; from the first record to the last. Before these "
            "rounds `consume` reads each of them with each of its batches, which is thrown away but for the better "
            f"batch: {_chosen(batches)}. All clients read ahead, confluent-kafka up to 100,000 records, so some come "
            "from memory; nobody asks for more than is left. Ratios are taken within each round; medians."
        ),
        figures=tuple(figure for case in cases for figure in figures_of(case, [each[case] for each in told])),
        details={case.name: _details([each[case] for each in told]) for case in cases},
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


def preload(bootstrap: str, topic: str, case: ThroughputCase, records: int) -> None:
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


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """A round: cases, and how they are read.

    Attributes:
        cases: with the number of records.
        topics: where they lie.
        batches: how many records ``consume`` asks for at once.
        turn: the number of the round, which decides what client goes first.
    """

    cases: dict[ThroughputCase, int]
    topics: dict[ThroughputCase, str]
    batches: dict[ThroughputCase, int]
    turn: int


async def _batches(
    context: BenchmarkContext, cases: dict[ThroughputCase, int], topics: dict[ThroughputCase, str]
) -> dict[ThroughputCase, int]:
    """Return the batch with which ``consume`` is faster, for each case.

    Each is tried once, after a first read of the case: the batch that is tried first would meet the colder broker.
    """
    chosen = {}
    async with contextlib.AsyncExitStack() as stack:
        child = await spawn(context, "confluent-kafka", stack)
        for case, records in cases.items():
            topic = topics[case]
            await drain(child, topic, "poll", records, 0)
            chosen[case] = faster(
                {size: await drain(child, topic, "consume", records, size) for size in CONSUME_RECORDS}
            )
    return chosen


def faster(tried: dict[int, Told]) -> int:
    """Return the batch that read the most records a second; of equals the smaller."""
    return max(sorted(tried), key=lambda size: tried[size].records_per_second)


def _chosen(batches: dict[ThroughputCase, int]) -> str:
    return ", ".join(f"{size:,} records for {case.name}" for case, size in batches.items())


async def spawn(
    context: BenchmarkContext, client: str, stack: contextlib.AsyncExitStack, slicing: str = "off"
) -> Child:
    """Start a client, which ends with the stack; ``slicing``: ``LOADTRIM_SLICING``."""
    options = {"client": client, "bootstrap": context.cluster().bootstrap}
    settings = {"LOADTRIM_HTTP": "127.0.0.1:0", "LOADTRIM_SLICING": slicing}
    name = f"{client}-{slicing}"
    child = await Child.spawn("benchmarks.suite.drain", name, options, context.scratch, settings)
    stack.push_async_callback(child.close)
    return child


async def _round(context: BenchmarkContext, plan: RoundPlan) -> dict[ThroughputCase, dict[tuple[str, str], Told]]:
    """Every client with every case, in a process of its own for each client and a group of its own for each way."""
    told: dict[ThroughputCase, dict[tuple[str, str], Told]] = {case: {} for case in plan.cases}
    async with contextlib.AsyncExitStack() as stack:
        children = {client: await spawn(context, client, stack) for client in CLIENTS}
        for number, (case, records) in enumerate(plan.cases.items()):
            for place in range(len(CLIENTS)):
                client = CLIENTS[(plan.turn + number + place) % len(CLIENTS)]
                for way in WAYS[client]:
                    told[case][client, way] = await drain(
                        children[client], plan.topics[case], way, records, plan.batches[case]
                    )
    return told


async def drain(child: Child, topic: str, way: str, records: int, batch: int) -> Told:
    """Have a client read so many records, in a group of its own."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    answer = await child.ask(
        "drain", timeout_seconds=DRAIN_SECONDS_MAX, topic=topic, group=group, way=way, records=records, batch=batch
    )
    return Told(answer["records"] / answer["seconds"], answer["cpu_seconds"] / answer["records"] * 1e6)


def figures_of(case: ThroughputCase, rounds: Rounds) -> list[Figure]:
    figures = []
    for which, way in enumerate(WAYS["loadtrim"]):
        ours, bare = ("loadtrim", way), ("aiokafka", way)
        rdkafka = ("confluent-kafka", WAYS["confluent-kafka"][which])
        figures += [
            Figure(
                name=f"{case.name}: `{way}`, relative to aiokafka's",
                value=ratio(rounds, ours, bare),
                unit="x",
                at_least=1.0 if which else case.one_by_one_at_least,
                peer=f"{_told(rounds, ours)}; aiokafka {_told(rounds, bare)}",
            ),
            Figure(
                name=f"{case.name}: `{way}`, relative to confluent-kafka's `{rdkafka[1]}` (below 1: it is faster)",
                value=ratio(rounds, ours, rdkafka),
                unit="x",
                peer=f"confluent-kafka {_told(rounds, rdkafka)}",
            ),
        ]
    return figures


def ratio(rounds: Rounds, ours: tuple[str, str], theirs: tuple[str, str]) -> float:
    """Return how many times as many records a second we read, the median of the rounds."""
    return statistics.median(told[ours].records_per_second / told[theirs].records_per_second for told in rounds)


def _told(rounds: Rounds, key: tuple[str, str]) -> str:
    """Records a second, and processor time for each."""
    return f"{_rate(rounds, key)} records/s at {_cpu(rounds, key)} us"


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


BENCHMARK = Benchmark(
    name="throughput",
    title="Throughput of one consumer",
    run=run,
    seconds=540,
    quick_seconds=80,
    measures=(*READER, "benchmarks/suite/drain.py"),
)
