"""Both groups at once, on one Kafka and under one load, and a line every now and then on how they do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from benchmarks.baselines.schedule import Schedule, clock
from demo.journal import clock_ns
from demo.report import Report
from demo.run import Live, RunFailedError, RunOptions, run
from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import GroupFollower, following

__all__ = ["play_both"]

LOOK_SECONDS = 0.5
LINE_SECONDS = 10


@dataclass(slots=True)
class _Watched:
    name: str
    live: Live
    group: GroupFollower
    wanted: int | None = None
    """What was told last."""


class _GroupWatch:
    """Tells how the groups do.

    Args:
        schedule: when what happens.
        tell: is given every line.
    """

    def __init__(self, schedule: Schedule, tell: Callable[[str], None]) -> None:
        self._schedule = schedule
        self._tell = tell
        self._watched: list[_Watched] = []

    def of(self, name: str) -> Callable[[Live], contextlib.AbstractAsyncContextManager[None]]:
        """What :func:`demo.run.run` enters while a group runs."""

        @contextlib.asynccontextmanager
        async def show(live: Live) -> AsyncIterator[None]:
            async with following(Connection(live.options.bootstrap, "the demo"), live.options.group) as group:
                self._watched.append(watched := _Watched(name, live, group))
                try:
                    yield
                finally:
                    self._watched.remove(watched)

        return show

    async def run(self) -> None:
        """For ever."""
        said = -1
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for watched in self._watched:
                self._tell_wanted(watched)
            now = int(time.time()) // LINE_SECONDS
            if now != said and len(self._watched) > 1:
                said = now
                sides = sorted(self._watched, key=lambda watched: watched.name)
                self._tell(f"{self._when(time.time())}  " + "; ".join(map(self._line, sides)))

    def _tell_wanted(self, watched: _Watched) -> None:
        decision = None if watched.group.trouble else watched.group.state().decision
        if decision is None or decision.replicas_wanted == watched.wanted:
            return
        if watched.wanted is not None:
            why = decision.reason.partition(";")[0].rstrip(".")
            self._tell(f"{self._when(decision.at)}  {watched.name}: the leader wants {why}.")
        watched.wanted = decision.replicas_wanted

    def _when(self, at: float) -> str:
        return f"{clock(at)}  T{at - self._schedule.rise_at:+6.1f} s"

    def _line(self, watched: _Watched) -> str:
        live, since = watched.live, clock_ns() - LINE_SECONDS * 10**9
        latencies = [latency for at, latency in live.follower.recent if at >= since]
        late = sum(latency > live.options.objective_seconds for latency in latencies)
        count = live.orchestrator.replicas
        return f"{watched.name} {count} replica{'s' if count != 1 else ''}, {late:,} of {len(latencies):,} late"


async def play_both(
    options: tuple[RunOptions, RunOptions], names: tuple[str, str], schedule: Schedule, tell: Callable[[str], None]
) -> tuple[Report, Report]:
    """Play the load to both groups; they see the same records at the same moments.

    Args:
        options: of the groups; when the load begins is set here.
        names: of the groups, for people.
        schedule: when what happens.
        tell: is given a line every 10 s, and each change of what a leader wants.

    Raises:
        RunFailedError: one of them did not come up, or not in time.
    """
    watch = _GroupWatch(schedule, tell)
    watching = asyncio.create_task(watch.run(), name="watch")
    try:
        async with asyncio.TaskGroup() as tasks:
            first, second = (
                tasks.create_task(run(replace(each, begin_at=float(schedule.begin_at)), watch.of(name)), name=name)
                for each, name in zip(options, names, strict=True)
            )
        return first.result(), second.result()
    except* RunFailedError as errors:
        raise RunFailedError("; ".join(map(str, errors.exceptions))) from errors
    finally:
        watching.cancel()
