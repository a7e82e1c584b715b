"""How many records a second one consumer gets through, beside bare aiokafka in turns in the same run."""

from __future__ import annotations

import json
import statistics
import sys
import uuid
from typing import Any

from aiokafka import AIOKafkaProducer

from .child import Child
from .results import Figure
from .suite import Benchmark, Context, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 4
RECORDS, RECORDS_QUICK = 1_000_000, 200_000
ROUNDS, ROUNDS_QUICK = 5, 2
VALUE_BYTES = 100
CLIENTS = ("aiokafka", "loadtrim")
WAYS = ("async for", "getmany")
AT_LEAST = {"async for": 2.2, "getmany": 1.0}


async def run(context: Context) -> Finding:
    """The clients take turns; each round is a process and a group of its own, timed from the first record on."""
    records = RECORDS_QUICK if context.quick else RECORDS
    rounds = ROUNDS_QUICK if context.quick else ROUNDS
    kafka = context.cluster()
    topic = kafka.create_topic(partitions=PARTITIONS)
    await _preload(kafka.bootstrap, topic, records)
    rates: dict[tuple[str, str], list[float]] = {(way, client): [] for way in WAYS for client in CLIENTS}
    cpus: dict[tuple[str, str], list[float]] = {key: [] for key in rates}
    for number in range(rounds + 1):
        for way in WAYS:
            # Who goes first alternates, so that neither has the warmer broker.
            for client in CLIENTS if number % 2 else reversed(CLIENTS):
                told = await _consume(context, kafka.bootstrap, topic, records, way, client)
                if number:  # the first round warms the broker
                    rates[way, client].append(told["records"] / told["seconds"])
                    cpus[way, client].append(told["cpu_seconds"] / told["records"] * 1e6)
    return _judge(rates, cpus, records, rounds)


async def _preload(bootstrap: str, topic: str, records: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=1 << 17) as producer:
        pending = []
        for number in range(records):
            pending.append(await producer.send(topic, b"x" * VALUE_BYTES, partition=number % PARTITIONS))
            if len(pending) >= 20_000:
                for delivery in pending:
                    await delivery
                pending.clear()
        for delivery in pending:
            await delivery


async def _consume(context: Context, bootstrap: str, topic: str, records: int, way: str, client: str) -> dict[str, Any]:
    options = {
        "bootstrap": bootstrap,
        "topic": topic,
        "group": f"bench-{uuid.uuid4().hex[:8]}",
        "client": client,
        "way": way,
        "records": records,
    }
    child = await Child.spawn("benchmarks.drain", client, options, context.scratch, {"LOADTRIM_HTTP": "127.0.0.1:0"})
    try:
        return await child.ask("drain", timeout_seconds=240.0)
    finally:
        await child.close()


def _judge(
    rates: dict[tuple[str, str], list[float]], cpus: dict[tuple[str, str], list[float]], records: int, rounds: int
) -> Finding:
    median = {key: statistics.median(values) for key, values in rates.items()}
    figures = []
    for way in WAYS:
        ours, bare = median[way, "loadtrim"], median[way, "aiokafka"]
        figures.append(
            Figure(
                name=f"`{way}`, relative to bare aiokafka",
                value=ours / bare,
                unit="x",
                at_least=AT_LEAST[way],
                peer=f"{bare:,.0f} records/s",
            )
        )
        figures.append(Figure(name=f"`{way}`", value=round(ours), unit="records/s", peer=f"{bare:,.0f} records/s"))
    return Finding(
        setting=(
            f"One consumer reads {records:,} records of {VALUE_BYTES} bytes from {PARTITIONS} partitions, all metrics "
            f"and reports on; {rounds} rounds of each in turn, each in a process of its own; medians, from the first "
            "record to the last."
        ),
        figures=tuple(figures),
        details={
            "records_per_second": {f"{client}, {way}": values for (way, client), values in rates.items()},
            "cpu_microseconds_per_record": {
                f"{client}, {way}": statistics.median(values) for (way, client), values in cpus.items()
            },
            "argv": json.dumps(sys.argv[1:]),
        },
    )


BENCHMARK = Benchmark(name="throughput", title="Throughput of one consumer", run=run, seconds=240, quick_seconds=40)
