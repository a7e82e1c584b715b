"""Programs and loads on real processes: the fewest replicas that hold the objective, and what the group asks for.

Each run is a group of its own under ``loadtrim up``'s orchestrator, on one broker that all runs share. Its records wait
and compute nothing, so several runs go side by side; how late the machine made them stands beside the figures. A run
has a process of its own for its producer and for what it wrote down: to read that takes seconds, in which no other
run's producer may stand still.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from benchmarks.code_state import commit_now
from benchmarks.programs.cells import JUDGED, SETTLE_SECONDS, Arrival, Cell, arrivals, cell_named, cells
from benchmarks.programs.judge import Done, Life, Played, Sent, Verdict, judge
from benchmarks.programs.search import Search
from benchmarks.programs.table import CellResult, load_results, markdown, result_of, save_result
from benchmarks.run_cache import end_with_parent
from demo.journal import JournaledRun, read_run
from demo.load import LoadRates, shares_even
from demo.report import CONTROL_FILE, Setting, read_setting
from demo.run import RunOptions
from demo.run import run as run_demo
from demo.telemetry import load_entries
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.telemetry_records import ReportRecord
from programs.service import SHAPE, Task

from .results import OUT, Figure, percentile
from .suite import CONSUMER, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

SERVICE = Path(__file__).resolve().parents[2] / "examples" / "programs" / "service.py"
AT_ONCE = 6
"""Number of runs side by side. Measured: see docs/decisions/simulator.md#how-programs-and-loads-are-judged."""
QUICK = ("gather/1.5", "threads/0.7")
QUICK_JUDGED_SECONDS = 30.0
BEHIND_SECONDS_MAX = 0.5
"""A producer that is further behind sends a burst that the load does not have. Chosen."""
FORM = "real"
LABORATORY_FILE = OUT / "demand.json"
"""The file in which ``python -m whole.demand --json`` keeps its results: the search on real processes begins there."""
FILE = OUT / "programs.json"
PAGE = OUT / "programs.md"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One run."""

    verdict: Verdict
    overshoot: tuple[float, ...]
    """Seconds that records took above what they said."""
    behind_seconds: float
    """Furthest that the producer was behind its schedule."""
    intervals: tuple[float, ...]
    """Seconds between two reports of a member, which are one where its agent was held up by nothing."""
    members_max: int
    """The most that ran at once."""


class _Laboratory:
    """The runs of one invocation, so many at a time, each in a process.

    Args:
        context: broker and scratch directory.
        seed: of the loads.
        pool: the processes.
    """

    def __init__(self, context: BenchmarkContext, seed: int, pool: ProcessPoolExecutor) -> None:
        self._context = context
        self._seed = seed
        self._pool = pool
        self.outcomes: list[_Outcome] = []

    async def examine(self, cell: Cell, begin: int | None) -> CellResult:
        """Search and judge one cell. The first two runs of the search and the judged run go side by side."""
        search = Search(cell.replicas_least, cell.partitions, cell.objective_share, begin)
        judged = asyncio.create_task(self._play(cell, None))
        first = search.next
        assert first is not None
        numbers = [first, *([first - 1] if first > cell.replicas_least else [])]
        verdicts = await asyncio.gather(*(self._play(cell, number) for number in numbers))
        for number, verdict in zip(numbers, verdicts, strict=True):
            search.tell(number, verdict)
        while (further := search.next) is not None:
            search.tell(further, await self._play(cell, further))
        return result_of(cell, self._seed, FORM, search, await judged, commit_now())

    async def _play(self, cell: Cell, replicas: int | None) -> Verdict:
        name = f"{cell.name.replace('/', '-')}-{replicas or 'asked'}"
        directory, kafka = self._context.scratch / name, self._context.cluster()
        topic = await asyncio.to_thread(kafka.create_topic, partitions=cell.partitions)
        played = _Run(cell, self._seed, replicas, kafka.bootstrap, topic, directory)
        outcome = await asyncio.get_running_loop().run_in_executor(self._pool, _play_alone, played)
        self.outcomes.append(outcome)
        return outcome.verdict


@dataclass(frozen=True, slots=True)
class _Run:
    """A run as another process is told to play it."""

    cell: Cell
    seed: int
    replicas: int | None
    """None: as many as the group asks for."""
    bootstrap: str
    topic: str
    directory: Path


def _play_alone(played: _Run) -> _Outcome:
    return asyncio.run(_played(played))


async def _played(played: _Run) -> _Outcome:
    cell, replicas, directory = played.cell, played.replicas, played.directory
    load = arrivals(cell, played.seed)

    def event(record_id: str, at: float) -> tuple[int, bytes]:
        arrival = load[int(record_id)]
        return arrival.partition, msgspec.json.encode(Task(record_id, arrival.busy_seconds))

    group = f"programs-{directory.name}"
    report = await run_demo(
        RunOptions(
            bootstrap=played.bootstrap,
            topic=played.topic,
            group=group,
            rates=_rates(cell, load),
            shares=shares_even(cell.partitions),
            directory=directory,
            even=True,
            objective_seconds=cell.objective_seconds,
            objective_share=cell.objective_share,
            busy_seconds=cell.record_seconds,
            policy=f"fixed:replicas={replicas}" if replicas else "",
            service=SERVICE,
            events=event,
            replicas=replicas or 1,
            startup_delay_seconds=cell.start_seconds,
            finish_seconds=cell.seconds,
            env={SHAPE: cell.program},
        )
    )
    run, setting = read_run(directory), read_setting(directory)
    written = _written(run, setting, directory, group)
    return _Outcome(
        verdict=judge(cell, written),
        overshoot=_overshoot(run, load),
        behind_seconds=setting.behind_seconds_max,
        intervals=tuple(record.interval for _, record in written.control if isinstance(record, ReportRecord)),
        members_max=report.summary.replicas_max,
    )


def _rates(cell: Cell, load: Sequence[Arrival]) -> LoadRates:
    counts = Counter(int(arrival.at) for arrival in load)
    per_second = tuple(float(counts[second]) for second in range(math.ceil(cell.seconds)))
    source = f"{cell.program} at {cell.load} members' capacity"
    return LoadRates(per_second, source, moments=tuple(arrival.at for arrival in load))


def _written(run: JournaledRun, setting: Setting, directory: Path, group: str) -> Played:
    """Return what the run's processes wrote down, with the time at which the load began as zero."""
    zero = setting.started_at
    epoch = run.epoch_offset_ns
    return Played(
        sent=[
            Sent(each.timestamp_ms / 1e3 - zero, each.tp.partition, each.offset)
            for each in run.sent.values()
            if each.offset is not None
        ],
        done=[
            Done((each.done_ns + epoch) / 1e9 - zero, each.tp.partition, each.offset)
            for each in run.handouts()
            if each.done_ns is not None
        ],
        lives=[
            Life(each.asked_at - zero, math.inf if each.ended_at is None else each.ended_at - zero)
            for each in setting.replicas
        ],
        control=_control(directory, zero),
        group=group,
    )


def _control(directory: Path, zero: float) -> list[tuple[float, Record]]:
    records = []
    for entry in load_entries(directory / CONTROL_FILE):
        try:
            records.append((entry.at - zero, decode(entry.value.encode())))
        except UnreadableRecord:
            continue
    return records


def _overshoot(run: JournaledRun, load: Sequence[Arrival]) -> tuple[float, ...]:
    return tuple(
        (each.done_ns - each.handed_ns) / 1e9 - load[int(each.record_id)].busy_seconds
        for each in run.handouts()
        if each.done_ns is not None
    )


async def run(context: BenchmarkContext) -> Finding:
    """Every cell that is asked for; with ``--quick`` two of them for half a minute that is judged."""
    seed = random.SystemRandom().randrange(1 << 31) if context.seed is None else context.seed
    chosen = _chosen(context, {cell.name: cell for cell in cells(random.Random(seed))})
    print(f"seed {seed}", file=sys.stderr, flush=True)
    known = {each.name: each.fewest for each in load_results(LABORATORY_FILE)}
    spawn = multiprocessing.get_context("spawn")  # a fork would have this process's event loop and threads
    with ProcessPoolExecutor(AT_ONCE, mp_context=spawn, initializer=end_with_parent) as pool:
        laboratory = _Laboratory(context, seed, pool)
        examined = [asyncio.create_task(laboratory.examine(cell, known.get(cell.name))) for cell in chosen]
        results = []
        for next_one in asyncio.as_completed(examined):
            results.append(await next_one)
            print(markdown(results).splitlines()[-1], file=sys.stderr, flush=True)
            if not context.quick:
                save_result(FILE, results[-1])
                PAGE.write_text(markdown(load_results(FILE)) + "\n")
    return _finding(seed, results, laboratory.outcomes)


def _chosen(context: BenchmarkContext, found: Mapping[str, Cell]) -> list[Cell]:
    if context.quick:
        names = context.parts or QUICK
        return [replace(cell_named(name, found), seconds=SETTLE_SECONDS + QUICK_JUDGED_SECONDS) for name in names]
    return [cell_named(name, found) for name in context.parts] or list(found.values())


def _finding(seed: int, results: Sequence[CellResult], outcomes: Sequence[_Outcome]) -> Finding:
    judged = [result for result in results if result.name.partition("/")[0] in JUDGED]
    overshoot = [seconds for outcome in outcomes for seconds in outcome.overshoot]
    intervals = [seconds for outcome in outcomes for seconds in outcome.intervals]
    off = Counter(problem for result in judged for problem in result.problems)
    return Finding(
        setting=(
            f"Seed {seed}. Programs of examples/programs under `loadtrim up`'s orchestrator, {AT_ONCE} runs side by "
            f"side on one broker. A record waits; lognormal times, random keys, Poisson arrivals; W is ten records. "
            f"Judged is what comes after the first {SETTLE_SECONDS:g} s, and after as long behind a step."
        ),
        figures=(
            Figure(name="cells judged", value=len(judged)),
            Figure(name="cells with nothing off", value=sum(not result.problems for result in judged)),
            *(
                Figure(name=f"cells: {problem}", value=off[problem], at_most=0)
                for problem in ("late", "too many", "too few", "scalings", "replica-minutes", "lost", "repeated")
            ),
            Figure(name="members of all runs, most of each", value=sum(outcome.members_max for outcome in outcomes)),
            Figure(name="time above what a record says, p99", value=percentile(overshoot, 0.99), unit="ms"),
            Figure(name="between two reports of a member, p99", value=percentile(intervals, 0.99), unit="s"),
            Figure(
                name="producer behind its schedule, most",
                value=max(outcome.behind_seconds for outcome in outcomes),
                unit="ms",
                at_most=BEHIND_SECONDS_MAX,
            ),
        ),
        notes=tuple(f"{result.name}: {', '.join(result.problems)}" for result in judged if result.problems),
        details={"seed": seed, "cells": msgspec.to_builtins(results)},
    )


BENCHMARK = Benchmark(
    name="programs",
    title="Programs and loads: the fewest replicas, and what is asked for",
    run=run,
    seconds=7200,
    quick_seconds=300,
    by_name_only=True,
    measures=(*CONSUMER, "examples/programs", "benchmarks/programs"),
)
