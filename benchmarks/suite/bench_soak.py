"""Run load for an hour, or for as long as is asked for, with a membership change every ten seconds; see what grows."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .child import Child
from .group import Group
from .results import OUT, Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "Soak", "Vitals", "judge", "slope_per_hour"]

PARTITIONS = 12
RATE = 2_000.0
STAYING = ("one", "two")
GUEST = "guest"
"""Its process stays; its consumer starts and stops, so that what a consumer leaves behind adds up."""
CHANGE_SECONDS = 10.0
SECONDS, SECONDS_QUICK = 3_600.0, 120.0
WARM_SHARE = 1 / 6
"""Not counted: caches fill and the allocator finds its size."""
MB = 1 << 20
RSS_PER_HOUR_MAX = 1.0
"""MB, of an hour or more."""
RSS_GROWTH_MAX = 8.0
"""MB, of a shorter run that is not quick. Its slope says nothing: a leader grows until about the ninth minute. Measured
in ten minutes: 3.6 MB more at the leader, 3.3 at the guest. Chosen: about twice that, 0.2 MB for each change."""
SOCKETS_MORE_SHORT = 1
"""Of a shorter run: the first refresh of metadata, after five minutes, opens a connection that stays."""
LINES_PER_CHANGE_MAX = 12
"""INFO lines of a member that stays. Chosen: it tells of its generation, and of what comes and goes."""
PLOT_FILE = "soak.png"


@dataclass(frozen=True, slots=True)
class Vitals:
    """Tell what one process holds at a moment."""

    at: float
    """Seconds since the run began."""
    resident_bytes: int
    threads: int
    sockets: int
    files: int
    """Open descriptors that are no sockets."""
    tasks: int
    """Tasks of asyncio, in the loops of user code and of the agent."""
    lines: int
    """Logged so far."""


@dataclass(slots=True)
class Soak:
    """Keep what a run has seen so far."""

    started: float = field(default_factory=time.monotonic)
    vitals: dict[str, list[Vitals]] = field(default_factory=dict)
    changes: int = 0
    handed_out: int = 0
    acknowledged: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


async def run(context: BenchmarkContext) -> Finding:
    """Keep two members, and have a third join and leave in turn, each time with a new consumer in one process."""
    length = context.minutes * 60 if context.minutes else SECONDS_QUICK if context.quick else SECONDS
    soak = Soak()
    env = {"LOADTRIM_HTTP": "127.0.0.1:0", "BENCH_LOG": "INFO"}
    async with Group(context.cluster(), context.scratch, partitions=PARTITIONS, env=env) as group:
        await group.spawn(*STAYING, GUEST, stamped=False)
        for name in STAYING:
            await group.workers[name].ask("start")
        await group.until_settled(*STAYING)
        await group.start_feed(RATE)
        soak.started = time.monotonic()
        while soak.seconds < length:
            await _change(group, soak)
        soak.acknowledged = await group.drain()
        soak.handed_out = await group.counted()
    if not context.quick:
        _plot(soak, OUT / PLOT_FILE)
    return judge(soak, length, quick=context.quick)


async def _change(group: Group, soak: Soak) -> None:
    """Have the guest join or leave, and look at everybody ten seconds later."""
    due = soak.started + (soak.changes + 1) * CHANGE_SECONDS
    joins = soak.changes % 2 == 0
    await group.workers[GUEST].ask("start" if joins else "stop")
    soak.changes += 1
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    for name in STAYING if joins else (*STAYING, GUEST):  # the guest is looked at when its consumer is gone
        soak.vitals.setdefault(name, []).append(await _vitals(group.workers[name], soak.seconds))


async def _vitals(child: Child, at: float) -> Vitals:
    tasks = (await child.ask("vitals"))["tasks"]
    sockets, files = child.descriptors
    return Vitals(at, child.resident_bytes, child.threads, sockets, files, tasks, child.lines)


def slope_per_hour(vitals: list[Vitals]) -> float:
    """Return the growth of the resident set by least squares, MB an hour; 0 of fewer than two looks."""
    if len(vitals) < 2:
        return 0.0
    line = statistics.linear_regression([one.at for one in vitals], [one.resident_bytes / MB for one in vitals])
    return line.slope * 3600


def judge(soak: Soak, length: float, *, quick: bool) -> Finding:
    """Return the figures of a run of so many seconds, each with the target that fits its length."""
    warm = {name: [one for one in looks if one.at >= length * WARM_SHARE] for name, looks in soak.vitals.items()}
    more = soak.handed_out - soak.acknowledged
    figures = [Figure(name="records handed out, less those acknowledged", value=more, at_least=0, at_most=0)]
    for name, looks in warm.items():
        # Beside each other: what comes and goes with the guest is not counted as growth.
        first, last = looks[: len(looks) // 4], looks[-(len(looks) // 4) :]
        peer = f"{looks[0].resident_bytes / MB:.1f} MB, then {looks[-1].resident_bytes / MB:.1f} MB"
        grown = (max(one.resident_bytes for one in last) - max(one.resident_bytes for one in first)) / MB
        hour = length >= SECONDS
        figures += [
            Figure(
                name=f"{name}: resident set, growth",
                value=slope_per_hour(looks),
                unit="MB/h",
                at_most=RSS_PER_HOUR_MAX if hour else None,
                peer=peer,
            ),
            Figure(
                name=f"{name}: resident set, more than before",
                value=grown,
                unit="MB",
                at_most=None if hour or quick else RSS_GROWTH_MAX,  # two minutes are all warming up
            ),
        ]
        for what in ("tasks", "threads", "sockets", "files"):
            before, after = (max(getattr(one, what) for one in part) for part in (first, last))
            figures.append(
                Figure(
                    name=f"{name}: {what} more than before",
                    value=after - before,
                    at_most=SOCKETS_MORE_SHORT if what == "sockets" and not hour else 0,
                    peer=f"{before} before",
                )
            )
        lines = (looks[-1].lines - looks[0].lines) / max(1, round((looks[-1].at - looks[0].at) / CHANGE_SECONDS))
        if name != GUEST:
            figures.append(Figure(name=f"{name}: lines logged a change", value=lines, at_most=LINES_PER_CHANGE_MAX))
    details: dict[str, Any] = {
        name: [[round(one.at), one.resident_bytes, one.threads, one.sockets, one.files, one.tasks, one.lines]
               for one in looks] for name, looks in soak.vitals.items()
    }  # fmt: skip
    return Finding(
        setting=(
            f"{PARTITIONS} partitions, {RATE:g} records/s for {length:g} s; two members stay, a third joins or leaves "
            f"every {CHANGE_SECONDS:g} s ({soak.changes} changes), each time with a new consumer in the same process. "
            f"Thrown away: the first {WARM_SHARE:.0%}. Growth is a line by least squares through what is resident "
            "before each change; what is more than before is the most in the last quarter above the most in the first."
        ),
        figures=tuple(figures),
        details=details,
    )


def _plot(soak: Soak, path: Path) -> None:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(9, 4.5), layout="constrained")
    axes = drawing.subplots()
    for name, looks in soak.vitals.items():
        minutes = [one.at / 60 for one in looks]
        axes.plot(minutes, [one.resident_bytes / MB for one in looks], label=name, linewidth=1)
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident, MB")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{RATE:g} records/s, a membership change every {CHANGE_SECONDS:g} s")
    axes.legend()
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=120)


BENCHMARK = Benchmark(
    name="soak",
    title="A membership change every ten seconds, for an hour or as long as is asked for",
    run=run,
    seconds=3_700,
    quick_seconds=140,
    by_name_only=True,
)
