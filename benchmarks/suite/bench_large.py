"""Measure what a member costs in groups of ten to three hundred, on one real broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .child import Child
from .group import SESSION_OPTIONS, Group, until
from .results import Figure, percentile
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "Row"]

MEMBERS, MEMBERS_QUICK = (10, 30, 100, 300), (10, 30)
PARTITIONS_EACH = 10
PROCESSES = 2
"""As many as there are cores; half of the members in each."""
START_AT_ONCE = 10
"""Consumers that one process starts together."""
SETTLE_SECONDS_MAX = 180.0
WARM_SECONDS, QUIET_SECONDS = 10.0, 20.0
JOINS = 5
WAVES = 4
"""A rolling deploy replaces all members, a quarter at a time: what Kubernetes does unless it is told otherwise."""
BARRIERS_PER_SECOND_MAX = 1.0
FETCHES_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Tell what a group of one size costs."""

    members: int
    started_seconds: float
    """From the first start until all partitions have one owner."""
    cpu_share: float
    """Of a core, per member in a quiet group."""
    requests: float
    """Per second and member in a quiet group, all kinds."""
    fetches: float
    """Of these, fetches."""
    bytes_per_second: float
    """Answers of the broker to all members of a quiet group."""
    barrier_seconds: float
    """From a newcomer's first JoinGroup until all have their SyncGroup answer; the median of some joins."""
    deploy_seconds: float
    """Until the group is settled again after a rolling deploy in :data:`WAVES`."""
    deploy_barriers: int


class _LargeGroup:
    """Hold one group whose members share a few processes."""

    def __init__(self, group: Group, crowds: list[Child]) -> None:
        self._group = group
        self._crowds = crowds
        self._shares: list[int] = []
        """Members of each, newcomers left out."""

    async def start(self, members: int) -> None:
        self._shares = [members // PROCESSES + (index < members % PROCESSES) for index in range(PROCESSES)]
        await asyncio.gather(*(_start(crowd, share) for crowd, share in zip(self._crowds, self._shares, strict=True)))

    async def generation(self) -> int | None:
        """Return the generation in which every partition has one owner; None: there is none."""
        states = await asyncio.gather(*(crowd.ask("state") for crowd in self._crowds))
        generations = {generation for state in states for generation in state["generations"]}
        owned = sum(state["owned"] for state in states)
        if len(generations) == 1 and owned == self._group.partitions and all(state["stable"] for state in states):
            return int(generations.pop())
        return None

    async def settled(self) -> int:
        found: list[int] = []

        async def is_settled() -> bool:
            generation = await self.generation()
            found[:] = [] if generation is None else [generation]
            return bool(found)

        await until(is_settled, "one generation in which every partition has one owner", SETTLE_SECONDS_MAX)
        return found[0]

    async def traffic(self) -> Counter[str]:
        answers = await asyncio.gather(*(crowd.ask("traffic") for crowd in self._crowds))
        return sum(map(Counter, answers), Counter())

    async def barrier(self) -> float:
        """Have one more member, and return how long its rebalance took."""
        newcomer = self._crowds[0]
        await newcomer.ask("start", count=1)
        await self.settled()
        times = await asyncio.gather(*(crowd.ask("barrier") for crowd in self._crowds))
        return float(max(time["entered"] for time in times) - times[0]["asked"])

    async def deploy(self) -> None:
        """Replace every member: the newcomers of a wave start together, then as many old ones stop together."""
        left = dict(zip(self._crowds, self._shares, strict=True))
        for wave in range(WAVES):
            some = {crowd: count // (WAVES - wave) for crowd, count in left.items()}
            await asyncio.gather(*(_start(crowd, count) for crowd, count in some.items()))
            await asyncio.gather(*(crowd.ask("stop", count=count) for crowd, count in some.items()))
            left = {crowd: count - some[crowd] for crowd, count in left.items()}

    @property
    def cpu_seconds(self) -> float:
        return sum(crowd.cpu_seconds for crowd in self._crowds)


async def _start(crowd: Child, count: int) -> None:
    while count > 0:
        some = min(count, START_AT_ONCE)
        await crowd.ask("start", count=some, timeout_seconds=SETTLE_SECONDS_MAX)
        count -= some


async def run(context: BenchmarkContext) -> Finding:
    """Measure groups of growing size, one after the other, as far as this machine's cores go."""
    rows: list[Row] = []
    for members in MEMBERS_QUICK if context.quick else MEMBERS:
        try:
            rows.append(await _measured(context, members))
        except TimeoutError as error:
            return _judge(rows, (f"{members} members are too many for this machine: {error or 'no answer in time'}.",))
    return _judge(rows, ())


async def _measured(context: BenchmarkContext, members: int) -> Row:
    async with Group(context.cluster(), context.scratch, partitions=members * PARTITIONS_EACH) as group:
        names = [f"crowd-{index}" for index in range(PROCESSES)]
        crowds = await group.spawn(*names, module="benchmarks.suite.crowd")
        return await _measure(_LargeGroup(group, crowds), members)


async def _measure(group: _LargeGroup, members: int) -> Row:
    clock = asyncio.get_running_loop().time
    begun = clock()
    await group.start(members)
    await group.settled()
    started = clock() - begun
    # Nobody asks the processes anything meanwhile: an answer would be work too.
    await asyncio.sleep(WARM_SECONDS)
    before, cpu_before, at = await group.traffic(), group.cpu_seconds, clock()
    await asyncio.sleep(QUIET_SECONDS)
    cpu, seconds = group.cpu_seconds - cpu_before, clock() - at
    counts = await group.traffic()
    counts.subtract(before)
    barriers = [await group.barrier() for _ in range(JOINS)]
    generation, at = await group.settled(), clock()
    await group.deploy()
    generations = await group.settled() - generation
    return Row(
        members=members,
        started_seconds=started,
        cpu_share=cpu / seconds / members,
        requests=counts["requests"] / seconds / members,
        fetches=counts["fetches"] / seconds / members,
        bytes_per_second=counts["bytes"] / seconds,
        barrier_seconds=percentile(barriers, 0.5),
        deploy_seconds=clock() - at,
        deploy_barriers=generations,
    )


def _judge(rows: list[Row], notes: tuple[str, ...]) -> Finding:
    return Finding(
        notes=notes,
        setting=(
            f"Groups of {', '.join(str(row.members) for row in rows)} members with {PARTITIONS_EACH} partitions each, "
            f"without records, in {PROCESSES} processes beside the broker, session timeout "
            f"{SESSION_OPTIONS['session_timeout_ms'] / 1000:g} s. Quiet: {QUIET_SECONDS:g} s. "
            f"Thrown away: {WARM_SECONDS:g} s after the group has settled. A barrier: from a newcomer's JoinGroup "
            f"until every member has its SyncGroup answer, the median of {JOINS}. The deploy replaces all members in "
            f"{WAVES} waves: the newcomers of a wave start, then as many old members stop."
        ),
        figures=tuple(
            figure for name, unit, value, at_most in _COLUMNS for figure in _column(rows, name, unit, value, at_most)
        ),
        details={"rows": [{name: getattr(row, name) for name in Row.__slots__} for row in rows]},
    )


_COLUMNS: tuple[tuple[str, str, Callable[[Row], float], float | None], ...] = (
    ("start until all partitions have an owner", "s", lambda row: row.started_seconds, None),
    ("CPU of a member in a quiet group, of a core", "%", lambda row: row.cpu_share * 100, None),
    ("requests a second and member in a quiet group", "", lambda row: row.requests, None),
    ("of these fetches", "", lambda row: row.fetches, FETCHES_MAX),
    ("kB a second from the broker to a quiet group", "", lambda row: row.bytes_per_second / 1000, None),
    ("barrier of a join, p50", "ms", lambda row: row.barrier_seconds, None),
    (
        f"rebalances a second of a deploy in {WAVES} waves",
        "",
        lambda row: row.deploy_barriers / row.deploy_seconds,
        BARRIERS_PER_SECOND_MAX,
    ),
    (f"rebalances of a deploy in {WAVES} waves", "", lambda row: row.deploy_barriers, None),
    (f"a deploy in {WAVES} waves", "s", lambda row: row.deploy_seconds, None),
)


def _column(
    rows: list[Row], name: str, unit: str, value: Callable[[Row], float], at_most: float | None
) -> list[Figure]:
    return [Figure(name=f"{name}, {row.members} members", value=value(row), unit=unit, at_most=at_most) for row in rows]


BENCHMARK = Benchmark(name="large", title="Large groups", run=run, seconds=420, quick_seconds=120, by_name_only=True)
