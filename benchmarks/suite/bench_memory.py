"""How much memory a consumer takes before a backlog that it cannot hold, however slowly user code works."""

from __future__ import annotations

import asyncio
import shutil
import uuid

from .child import Child
from .results import Figure
from .suite import READER, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

MB, GB = 1 << 20, 1 << 30
BACKLOG_BYTES, BACKLOG_BYTES_QUICK = 10 * GB, 1 * GB
DISK_SHARE = 0.4
"""Of what is free on the disk, at most so much."""
PARTITIONS = 100
VALUE_BYTES = 16_000
BATCH_BYTES = 1 << 19
SECONDS, SECONDS_QUICK = 20.0, 10.0
IDLE_SECONDS = 3.0
FLUSH_SECONDS_MAX = 120.0
BUFFERS_BYTES = 50 * MB
"""``fetch_max_bytes`` as it is by default: the limit of all buffers."""
BESIDE_BYTES = 64 * MB
PAUSES = {"slowly": (20, 0.02), "fast": (1, 0.0)}
"""How user code works: (records, then so many seconds)."""


async def run(context: BenchmarkContext) -> Finding:
    """A process for each client and way of working, one after the other, before the same backlog."""
    wanted = BACKLOG_BYTES_QUICK if context.quick else BACKLOG_BYTES
    size = min(wanted, int(shutil.disk_usage(context.scratch).free * DISK_SHARE))
    seconds = SECONDS_QUICK if context.quick else SECONDS
    kafka = context.cluster()
    topic = kafka.create_topic(partitions=PARTITIONS)
    await asyncio.to_thread(_fill, kafka.bootstrap, topic, size)
    told = {
        (client, way): await _watch(context, topic, client, way, seconds)
        for way in PAUSES
        for client in ("aiokafka", "loadtrim")
    }
    return _judge(told, size, wanted, seconds)


def _fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    """Write as many records, uncompressed: so much lies on the disk and goes over the wire."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "none",
            "acks": "1",
            "linger.ms": 50,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.kbytes": 1 << 18,
        }
    )
    value = bytes(VALUE_BYTES)
    for number in range(size_bytes // VALUE_BYTES):
        # A batch's worth to each in turn.
        partition = number // (BATCH_BYTES // VALUE_BYTES) % PARTITIONS
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(FLUSH_SECONDS_MAX):
        raise RuntimeError(f"{left} records could not be written to {topic}")


async def _watch(context: BenchmarkContext, topic: str, client: str, way: str, seconds: float) -> dict[str, float]:
    """Resident bytes when idle and at the most, and what was read."""
    options = {
        "bootstrap": context.cluster().bootstrap,
        "topic": topic,
        "group": f"bench-{uuid.uuid4().hex[:8]}",
        "client": client,
    }
    child = await Child.spawn(
        "benchmarks.suite.backlog", f"{client}-{way}", options, context.scratch, {"LOADTRIM_HTTP": "off"}
    )
    try:
        await child.ask("start")
        await asyncio.sleep(IDLE_SECONDS)
        idle = child.resident_bytes
        child.forget_peak()
        records, pause = PAUSES[way]
        told = await child.ask(
            "read", timeout_seconds=seconds + 60.0, seconds=seconds, pause_records=records, pause_seconds=pause
        )
        return {"idle": idle, "peak": child.peak_bytes, "read": told["bytes"], "records": told["records"]}
    finally:
        await child.close()


def _judge(told: dict[tuple[str, str], dict[str, float]], size: int, wanted: int, seconds: float) -> Finding:
    figures = []
    for way in PAUSES:
        ours, bare = told["loadtrim", way], told["aiokafka", way]
        peer = (
            f"{ours['read'] / MB:,.0f} MB read, idle {ours['idle'] / MB:.0f} MB; aiokafka "
            f"{(bare['peak'] - bare['idle']) / MB:.1f} MB above idle, {bare['read'] / MB:,.0f} MB read"
        )
        figures.append(
            Figure(
                name=f"peak above idle, user code works {way}",
                value=(ours["peak"] - ours["idle"]) / MB,
                unit="MB",
                at_most=(BUFFERS_BYTES + BESIDE_BYTES) / MB,
                peer=peer,
            )
        )
    return Finding(
        setting=(
            f"One consumer of {PARTITIONS} partitions with {size / GB:.1f} GB of records of {VALUE_BYTES:,} bytes "
            f"before it, uncompressed on the disk and on the wire, read for {seconds:g} s from the beginning on; "
            f"slowly: {PAUSES['slowly'][0]} records, then {PAUSES['slowly'][1] * 1e3:g} ms. Resident set at the "
            "most, less that of the idle consumer; the limit of "
            f"all buffers is {BUFFERS_BYTES / MB:g} MB (`fetch_max_bytes`)."
        ),
        figures=tuple(figures),
        notes=() if size == wanted else (f"The disk had room for {size / GB:.1f} GB, not {wanted / GB:.0f}.",),
        details={f"{client}, {way}": values for (client, way), values in told.items()},
    )


BENCHMARK = Benchmark(
    name="memory", title="Memory before a backlog", run=run, seconds=240, quick_seconds=90, measures=READER
)
