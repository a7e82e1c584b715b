"""What many quiet partitions cost: processor time and latency, beside bare aiokafka in turns in the same run."""

from __future__ import annotations

import asyncio
import statistics

from payments.service import clock_ns

from .group import Group, until
from .results import Figure, percentile
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS, OWNED = 1_000, 900
RATE = 270.0
SECONDS, SECONDS_QUICK = 30.0, 10.0
ROUNDS, ROUNDS_QUICK = 3, 1
WARM_SECONDS = 5.0
ALONE = ("fetcher", "assigned")
"""The fetcher alone, and aiokafka without a group: 900 of the 1 000 partitions."""
GROUPED = ("loadtrim", "aiokafka")
"""Whole consumers, in a group of one: all partitions."""


async def run(context: BenchmarkContext) -> Finding:
    """One after the other, each in a process of its own on a topic of its own, the order turning with each round."""
    seconds = SECONDS_QUICK if context.quick else SECONDS
    rounds = ROUNDS_QUICK if context.quick else ROUNDS
    cores: dict[str, list[float]] = {client: [] for client in (*ALONE, *GROUPED)}
    late: dict[str, list[float]] = {client: [] for client in cores}
    for number in range(rounds):
        clients = list(cores)
        for client in clients if number % 2 else reversed(clients):
            core, latencies = await _watch(context, client, seconds)
            cores[client].append(core)
            late[client] += latencies
    return _judge({client: statistics.median(values) for client, values in cores.items()}, late, seconds, rounds)


async def _watch(context: BenchmarkContext, client: str, seconds: float) -> tuple[float, list[float]]:
    """(share of a core, seconds from each record's send until it was handed out)."""
    owned = OWNED if client in ALONE else PARTITIONS
    async with Group(
        context.cluster(), context.scratch, partitions=PARTITIONS, env={"LOADTRIM_HTTP": "127.0.0.1:0"}
    ) as group:
        (worker,) = await group.spawn(client, client=client, assigned=list(range(owned)))
        group.partitions = owned  # those that are fed
        await worker.ask("start")
        if client == "loadtrim":
            await group.until_settled(client)
        feed = await group.start_feed(RATE, linger_ms=0)
        await until(lambda: _flows(group), f"{client} has found its positions")
        await asyncio.sleep(WARM_SECONDS)
        begun_ns, cpu = clock_ns(), worker.cpu_seconds
        await asyncio.sleep(seconds)
        core = (worker.cpu_seconds - cpu) / seconds
        ended_ns = clock_ns()
        acknowledged = await group.drain()
        handed = {(stamp.partition, stamp.offset): stamp.at_ns for stamp in await group.stamps()}
        if len(handed) != acknowledged:
            raise RuntimeError(f"{client} was handed {len(handed)} of {acknowledged} records; see {feed.log.parent}")
        sent = [stamp for stamp in group.sent() if begun_ns <= stamp.at_ns < ended_ns]
        return core, [(handed[stamp.partition, stamp.offset] - stamp.at_ns) / 1e9 for stamp in sent]


async def _flows(group: Group) -> bool:
    """Something of every partition that is fed was handed out."""
    return await group.counted() >= group.partitions


def _judge(cores: dict[str, float], late: dict[str, list[float]], seconds: float, rounds: int) -> Finding:
    def beside(client: str, share: float) -> str:
        return f"aiokafka {percentile(late[client], share) * 1e3:.1f} ms"

    (fetcher, assigned), (whole, grouped) = ALONE, GROUPED
    return Finding(
        setting=(
            f"A topic of {PARTITIONS:,} partitions, {RATE:g} records/s of 100 bytes over those that are owned, "
            f"{seconds:g} s in each of {rounds} rounds; one process at a time. The fetcher alone fetches {OWNED} of "
            "them, as bare aiokafka without a group does; the whole consumer, with membership, measuring and reports, "
            "owns all, as bare aiokafka in a group does. Latency: from the producer's call until the "
            f"record is handed out. Thrown away: the first {WARM_SECONDS:g} s of each."
        ),
        figures=(
            Figure(
                name="fetcher alone, CPU relative to bare aiokafka",
                value=cores[fetcher] / cores[assigned],
                unit="x",
                at_most=0.35,
                peer=f"{cores[fetcher]:.3f} of a core, aiokafka {cores[assigned]:.3f}",
            ),
            Figure(
                name="fetcher alone, latency p50",
                value=percentile(late[fetcher], 0.5),
                unit="ms",
                at_most=0.006,
                peer=beside(assigned, 0.5),
            ),
            Figure(
                name="fetcher alone, latency p99",
                value=percentile(late[fetcher], 0.99),
                unit="ms",
                peer=beside(assigned, 0.99),
            ),
            Figure(
                name="whole consumer, CPU relative to bare aiokafka",
                value=cores[whole] / cores[grouped],
                unit="x",
                peer=f"{cores[whole]:.3f} of a core, aiokafka {cores[grouped]:.3f}",
            ),
            Figure(
                name="whole consumer, latency p50",
                value=percentile(late[whole], 0.5),
                unit="ms",
                peer=beside(grouped, 0.5),
            ),
            Figure(
                name="whole consumer, latency p99",
                value=percentile(late[whole], 0.99),
                unit="ms",
                peer=beside(grouped, 0.99),
            ),
        ),
        details={
            "cores": cores,
            "records": {client: len(values) for client, values in late.items()},
        },
    )


BENCHMARK = Benchmark(name="wide", title="Many quiet partitions", run=run, seconds=560, quick_seconds=100)
