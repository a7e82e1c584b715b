"""Taking a partition over: from the release until its first record is in the hands of its new owner's user code."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass, field

from .group import Group, Mover, moving, until
from .results import Figure, percentile
from .stamps import Stamp, by_partition
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
TAKEN = PARTITIONS - 1
"""The partition that goes to and fro. It has records waiting at all times, so that there is a first one to be handed;
who takes it is handed one and pauses it."""
MOVES, MOVES_QUICK = 300, 40
WARM_MOVES, WARM_MOVES_LOADED = 40, 4
"""Not counted: the broker compiles its code meanwhile."""
NEAR_MOVES, NEAR_MOVES_QUICK = 100, 20
LOADED_MOVES, LOADED_MOVES_QUICK = 60, 10
BUSY_SECONDS = 0.0005
BACKLOG_RECORDS = 25_000
"""Per partition; more than is done while it is measured."""
BARE_TAKES, BARE_TAKES_QUICK = 100, 15
BARE_LOADED_TAKES, BARE_LOADED_TAKES_QUICK = 2, 1
BARE_SECONDS_MAX = 20.0
"""So long a peer is waited for; what takes longer counts as this."""
FAR_RECORDS = MOVES + 10 * WARM_MOVES
"""Waiting in the partition that goes to and fro: one is done per move."""
NEAR_RECORDS = 2
"""Waiting before each move where it is to be near the log's end."""
STORY_MOVES = 20
"""The protocol's story is bounded, so it is asked for so often."""


@dataclass(slots=True)
class Takes:
    """Seconds until the first record was in the hands of user code, one entry per take-over."""

    since_read: list[float] = field(default_factory=list)
    """Since the new owner read the release."""
    since_append: list[float] = field(default_factory=list)
    """Since the old one sent it to the log."""


async def run(context: BenchmarkContext) -> Finding:
    """Ours, then aiokafka's fastest way to do the same: a paused partition that is resumed and sought."""
    quick = context.quick
    quiet = await _ours(context, MOVES_QUICK if quick else MOVES, loaded=False)
    near = await _ours(context, NEAR_MOVES_QUICK if quick else NEAR_MOVES, loaded=False, near=True)
    loaded = await _ours(context, LOADED_MOVES_QUICK if quick else LOADED_MOVES, loaded=True)
    bare_quiet = await _bare(context, BARE_TAKES_QUICK if quick else BARE_TAKES, loaded=False)
    bare_loaded = await _bare(context, BARE_LOADED_TAKES_QUICK if quick else BARE_LOADED_TAKES, loaded=True)
    read, append = quiet.since_read, quiet.since_append
    peer = "aiokafka, another operation: `resume` and `seek` of a paused partition of its own, which fetches anew:"
    bare = f"p50 {percentile(bare_quiet, 0.5) * 1e3:.0f}, p99 {percentile(bare_quiet, 0.99) * 1e3:.0f} ms"
    return Finding(
        setting=(
            f"Two members own {PARTITIONS} partitions; one of them goes to and fro by plan records. It has records "
            "waiting and is paused by who was handed one, so its owner's position is far from the log's end, as if it "
            "had a backlog, except where it is said to be near. Quiet: nothing is written (near: one "
            f"record before each move). Loaded: its new owner owns the other {PARTITIONS - 1} too, all with "
            f"a backlog, and user code takes {BUSY_SECONDS * 1e3:g} ms per record. Measured until the record is in the "
            "hands of user code, from the reading of the release; from its append to the log for comparison. The "
            "receiver has prefetched by then. aiokafka knows no such take-over: the nearest that it has is to resume a "
            "partition that it owns and to seek in it, from the call on; it then fetches anew, by design. "
            f"aiokafka is waited for {BARE_SECONDS_MAX:g} s. Thrown away: the first {WARM_MOVES} take-overs of each "
            f"quiet group, in which the broker compiles its code, and the first {WARM_MOVES_LOADED} of the loaded one."
        ),
        figures=(
            Figure(name="quiet: take-overs", value=len(read)),
            Figure(name="quiet: release read until first record, p50", value=percentile(read, 0.5), unit="ms"),
            Figure(
                name="quiet: release read until first record, p99",
                value=percentile(read, 0.99),
                unit="ms",
                at_most=0.005,
                peer=f"{peer} {bare}",
            ),
            Figure(name="quiet: release sent until first record, p50", value=percentile(append, 0.5), unit="ms"),
            Figure(name="quiet: release sent until first record, p99", value=percentile(append, 0.99), unit="ms"),
            Figure(
                name="quiet, two records before the log's end: release read until first record, p50",
                value=percentile(near.since_read, 0.5),
                unit="ms",
            ),
            Figure(
                name="quiet, two records before the log's end: release read until first record, p99",
                value=percentile(near.since_read, 0.99),
                unit="ms",
            ),
            Figure(name="loaded: take-overs", value=len(loaded.since_read)),
            Figure(
                name="loaded: release read until first record, p50",
                value=percentile(loaded.since_read, 0.5),
                unit="s",
                peer=f"{peer} {_at_most(bare_loaded)}",
            ),
            Figure(
                name="loaded: release read until first record, longest",
                value=percentile(loaded.since_read, 1.0),
                unit="s",
                at_most=0.3,
            ),
        ),
        details={
            "quiet_seconds": {f"p{s * 100:g}": percentile(read, s) for s in (0.1, 0.5, 0.9, 0.99, 1.0)},
            "loaded_seconds": {f"p{s * 100:g}": percentile(loaded.since_read, s) for s in (0.1, 0.5, 0.9, 1.0)},
            "bare_quiet_seconds": {f"p{s * 100:g}": percentile(bare_quiet, s) for s in (0.5, 0.99, 1.0)},
            "bare_loaded_seconds": bare_loaded,
        },
    )


def _at_most(seconds: list[float]) -> str:
    longest = percentile(seconds, 1.0)
    return f"more than {BARE_SECONDS_MAX:.0f} s" if longest >= BARE_SECONDS_MAX else f"{longest:.1f} s"


async def _prepared(group: Group, *, loaded: bool) -> None:
    if loaded:
        await group.preload(range(PARTITIONS), BACKLOG_RECORDS)
    else:
        await group.preload((TAKEN,), FAR_RECORDS)


async def _ours(context: BenchmarkContext, moves: int, *, loaded: bool, near: bool = False) -> Takes:
    """``near``: few records wait, and one more comes before each move."""
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS) as group:
        names = ("giver", "taker")
        if not near:
            await _prepared(group, loaded=loaded)
        await group.spawn(*names, one_of=TAKEN, busy_seconds=BUSY_SECONDS if loaded else 0.0)
        for name in names:
            await group.workers[name].ask("start")
        await group.until_settled(*names)
        async with moving(group, *names) as mover:
            taker = _Taker(mover)
            if loaded:
                for partition in range(TAKEN):
                    await mover.bring(partition, "taker")
            warm = WARM_MOVES_LOADED if loaded else WARM_MOVES
            await mover.bring(TAKEN, "giver")
            if near:
                # Not before: until here whoever owned it was handed one, and how many did is not known.
                await group.preload((TAKEN,), NEAR_RECORDS + 1)
            takes = Takes()
            stories: list[tuple[str, float, str]] = []
            for number in range(warm + moves * (2 if loaded else 1)):
                if number == warm:
                    await taker.stories()
                if near:
                    await group.preload((TAKEN,), 1)
                await taker.take(names[(number + 1) % 2])
                if number >= warm and number % STORY_MOVES == 0:
                    stories += await taker.stories()
            stories += await taker.stories()
            _measure(await group.stamps(), stories, ("taker",) if loaded else names, takes)
            return takes


class _Taker:
    """Lets the partition that goes to and fro be taken over, and listens to what the protocol tells of it."""

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        self._workers = mover.group.workers
        self._seen: dict[str, float] = {}

    async def take(self, to: str) -> None:
        """Move the partition that goes to and fro, and wait until its first record was handed out."""
        before = (await self._workers[to].ask("count"))["ones"]
        await self._mover.bring(TAKEN, to)

        async def handed() -> bool:
            return bool((await self._workers[to].ask("count"))["ones"] > before)

        await until(handed, f"{to} is handed a record", 20.0)
        await asyncio.sleep(self._mover.group.random.uniform(0.02, 0.12))

    async def stories(self) -> list[tuple[str, float, str]]:
        """(kind, boot-time seconds, who) of the steps of the partition since the last time."""
        found: list[tuple[str, float, str]] = []
        for name in self._mover.members:
            story = (await self._workers[name].ask("story"))["story"]
            since = self._seen.get(name, 0.0)
            found += [(kind, at, name) for kind, at, of in story if of == TAKEN and at > since]
            self._seen[name] = max((at for _, at, _ in story), default=since)
        return found


def _measure(stamps: list[Stamp], stories: list[tuple[str, float, str]], takers: tuple[str, ...], takes: Takes) -> None:
    handed = by_partition(stamps)[TAKEN]
    appends = sorted(at for kind, at, _ in stories if kind == "AppendCommand")
    for kind, at, who in stories:
        if kind != "OpenCommand" or who not in takers:
            continue
        first = next((stamp.at_ns / 1e9 for stamp in handed if stamp.who == who and stamp.at_ns / 1e9 >= at), None)
        index = bisect_right(appends, at)
        if first is not None and index:
            takes.since_read.append(first - at)
            takes.since_append.append(first - appends[index - 1])


async def _bare(context: BenchmarkContext, takes: int, *, loaded: bool) -> list[float]:
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS) as group:
        await _prepared(group, loaded=loaded)
        busy = BUSY_SECONDS if loaded else 0.0
        (worker,) = await group.spawn(
            "bare", client="assigned", assigned=list(range(PARTITIONS)), one_of=TAKEN, busy_seconds=busy
        )
        await worker.ask("start")
        await asyncio.sleep(3.0)
        seconds: list[float] = []
        for number in range(takes):
            answer = await worker.ask("take", offset=number, seconds=BARE_SECONDS_MAX)
            first_ns = answer["first_ns"]
            seconds.append((first_ns - answer["called_ns"]) / 1e9 if first_ns is not None else BARE_SECONDS_MAX)
            await asyncio.sleep(group.random.uniform(0.02, 0.12))
        return seconds


BENCHMARK = Benchmark(name="takeover", title="Taking a partition over", run=run, seconds=240, quick_seconds=90)
