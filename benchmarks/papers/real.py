"""The papers' loads on a real Kafka: real processes, real rebalances, real time.

``python -m benchmarks.papers.real``, or ``python -m benchmarks.papers --real``:
CLOSER'24's W1 and its skewed
form, ICCBDC'22's experiments 1 and 2, ten minutes each. The paper's policies run in groups of loadtrim's consumers;
then the reference assignors get as many replicas, at the same moments, as one of them asked for ("the same scaling"):
aiokafka's round-robin and sticky, librdkafka's cooperative-sticky, and the broker's own (KIP-848).

What was played is kept below ``out/papers-real`` and not played again, so that hours of it can be cut off and gone on
with. ``--seconds`` plays a piece of every load only; ``--stolen`` plays again what was disturbed by other machines on
the same host. Without ``KAFKA_BOOTSTRAP`` a broker is started. Exit codes: 0,
1 something was lost or is missing, 2 wrong use, 3 a run failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.papers import closer24, iccbdc22
from benchmarks.papers.bench import PROJECT, ExperimentContext
from benchmarks.papers.closer24 import IN_W, CloserReported
from benchmarks.papers.real_page import CAPTION, PICTURE, RealRun, merge_runs, paint, table
from benchmarks.papers.traces import by_partition, three_humps
from benchmarks.run_cache import machine, stolen_seconds
from demo.load import LoadRates
from demo.report import CONTROL_FILE, Report, RunSummary
from demo.run import RunFailedError, RunOptions
from demo.run import run as play_run
from demo.telemetry import fold, load_entries
from loadtrim.simulate import shares_skewed
from loadtrim.testing import Cluster, LocalKafkaError, any_kafka

__all__ = ["CachedRun", "Plan", "main", "plans", "publish"]

PAGE_FOLDER = PROJECT / "out" / "papers"
OUT = PROJECT / "out" / "papers-real"
KEPT_FILE = "kept.json"
REFERENCES = ("aiokafka", "aiokafka-sticky", "librdkafka-cooperative", "librdkafka-kip848")
ONE_PHASE = "Alg. 2, lag at one phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    name: str
    load: str
    rates: LoadRates
    shares: tuple[float, ...]
    objective_seconds: float
    busy_seconds: float
    policy: str = ""
    packer: str = ""
    monitor: str = "reports"
    client: str = "loadtrim"
    scaled_as: str = ""
    """Name of the run whose scaling it repeats; empty: its own leader scales."""
    paper: tuple[float, float] | None = None
    """% in time and replica-minutes that the paper reports."""

    @property
    def consumers(self) -> str:
        """Who it is, within its load."""
        return self.name.removeprefix(f"{self.load}/")

    @property
    def played(self) -> str:
        """Who scales and who deals out: what was kept of another group under the same name is played again."""
        return f"{self.client} {self.policy or self.scaled_as} {self.packer}".rstrip()


class CachedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    name: str
    summary: RunSummary
    replicas_at: tuple[tuple[float, int], ...]
    """(seconds of the load, replicas asked for from then on)."""
    at: float
    """When it began, seconds since the epoch."""
    machine: str
    played: str = ""
    """:attr:`Plan.played` of its plan."""
    stolen: float = 0.0
    """Share of the machine's CPU time that its host gave to others meanwhile, 0 to 1."""


def _closer(load: str, rates: LoadRates, shares: tuple[float, ...], paper: Mapping[str, CloserReported]) -> list[Plan]:
    def plan(name: str, policy: str, packer: str, reported: CloserReported | None = None) -> Plan:
        return Plan(
            name=f"{load}/{name}",
            load=load,
            rates=rates,
            shares=shares,
            objective_seconds=closer24.OBJECTIVE_SECONDS,
            busy_seconds=closer24.RUN.cost_seconds,
            policy=policy,
            packer=packer,
            paper=(reported.in_time, reported.replica_minutes) if reported else None,
        )

    # Not by the formula's letter, mu = 200: two replicas would do for 350/s, and which assignment is better cannot be
    # seen in a group that is too small for any. The paper's figures are those of what a replica does within W.
    linear = plan(IN_W, closer24.LINEAR_IN_W, "sticky", paper["linear"])
    return [
        # The paper's looks drifted through the bursts. Members report at the same moment of every second, which by
        # chance lies here or there after a burst: its lag is the one case, what drifting looks end up with the other.
        plan("Alg. 2", closer24.DRIFTING, "closer24_as_run", paper["Alg. 2"]),
        plan(ONE_PHASE, closer24.RUN.policy, "closer24_as_run", paper["Alg. 2"]),
        linear,
        plan("objective", "objective", "trim"),
        *_references(linear),
    ]


def _iccbdc(experiment: str, rates: LoadRates, shares: tuple[float, ...]) -> list[Plan]:
    load = f"ICCBDC'22 {experiment}"
    kafka, minutes = iccbdc22.REPORTED_KAFKA[experiment], iccbdc22.REPORTED_MINUTES[experiment]
    first = Plan(
        name=f"{load}/load-aware",
        load=load,
        rates=rates,
        shares=shares,
        objective_seconds=iccbdc22.OBJECTIVE_SECONDS,
        busy_seconds=iccbdc22.RUN.cost_seconds,
        policy=f"{iccbdc22.RUN.policy},cooldown_seconds={iccbdc22.COOLDOWN_SECONDS:g}",
        packer="iccbdc22_as_run",
        monitor="iccbdc22",
        paper=(100.0, minutes),
    )
    ours = replace(first, name=f"{load}/objective", policy="objective", packer="trim", monitor="reports", paper=None)
    return [first, ours, *_references(first, {"librdkafka-cooperative": (kafka, minutes)})]


def _references(base: Plan, paper: dict[str, tuple[float, float]] | None = None) -> list[Plan]:
    """The same scaling with other assignors."""
    return [
        replace(
            base,
            name=f"{base.load}/{client}",
            client=client,
            policy="",
            packer="",
            monitor="reports",
            scaled_as=base.name,
            paper=(paper or {}).get(client),
        )
        for client in REFERENCES
    ]


def plans() -> list[Plan]:
    """Everything that can be played, in order: who is scaled as another stands behind it."""
    humps, origin = three_humps()
    closer = LoadRates(tuple(humps), origin)
    first = iccbdc22.first_workload()
    rows, second_origin = iccbdc22.second_workload()
    return [
        *_closer("CLOSER'24 W1", closer, (0.2,) * 5, closer24.W1),
        *_closer("CLOSER'24 W1 skewed", closer, shares_skewed(9), closer24.W1_SKEWED),
        *_iccbdc("experiment 1", *_of_rows(first, "experiment 1 by the paper's rule")),
        *_iccbdc("experiment 2", *_of_rows(rows, second_origin)),
    ]


def _of_rows(rows: list[list[float]], source: str) -> tuple[LoadRates, tuple[float, ...]]:
    load = by_partition(rows)
    return LoadRates(load.per_second, source, load.shares), load.shares[0]


def _part(rates: LoadRates, begin: int, seconds: int | None) -> LoadRates:
    if seconds is None:
        return rates
    cut = slice(begin, begin + seconds)
    source = f"seconds {begin} to {begin + seconds} of {rates.source}"
    return LoadRates(rates.per_second[cut], source, rates.shares[cut])


# -- playing


def directory_of(plan: Plan, begin: int, seconds: int | None) -> Path:
    """Where a run is kept."""
    piece = "whole" if seconds is None else f"{begin}-{begin + seconds}"
    name = plan.name.replace("/", "-").replace(" ", "_").replace("'", "")
    return OUT / piece / name


def cached_run(plan: Plan, begin: int, seconds: int | None) -> CachedRun | None:
    """What came of it, if it was played to its end, and by the policy and packer that it has now."""
    try:
        found = msgspec.json.decode((directory_of(plan, begin, seconds) / KEPT_FILE).read_bytes(), type=CachedRun)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.played == plan.played else None


def cached_runs(begin: int, seconds: int | None, stolen: float) -> dict[str, CachedRun]:
    """What need not be played again, by name.

    Args:
        stolen: at most this share of the machine's CPU time was its host's to others meanwhile, 0 to 1.
    """
    found: dict[str, CachedRun] = {}
    for plan in plans():
        result = cached_run(plan, begin, seconds)
        if result is None or result.stolen > stolen:
            continue
        # What repeats the scaling of a run that was played again since then repeats nothing that is told of.
        if not plan.scaled_as or (plan.scaled_as in found and found[plan.scaled_as].at <= result.at):
            found[plan.name] = result
    return found


def play(plan: Plan, kafka: Cluster, begin: int, seconds: int | None, scaled: CachedRun | None) -> CachedRun:
    """Play one run and keep what came of it.

    Raises:
        RunFailedError: the group did not come up.
    """
    directory = directory_of(plan, begin, seconds)
    shutil.rmtree(directory, ignore_errors=True)
    rates = _part(plan.rates, begin, seconds)
    options = RunOptions(
        bootstrap=kafka.bootstrap,
        topic=kafka.create_topic(partitions=len(plan.shares)),
        group=f"papers-{uuid.uuid4().hex[:8]}",
        rates=rates,
        shares=plan.shares,
        directory=directory,
        objective_seconds=plan.objective_seconds,
        busy_seconds=plan.busy_seconds,
        policy=plan.policy,
        client=plan.client,
        replicas=scaled.replicas_at[0][1] if scaled else 1,
        replicas_at=scaled.replicas_at[1:] if scaled else (),
        comparable=seconds is None,
        env={
            **({"LOADTRIM_PACKER": plan.packer} if plan.packer else {}),
            "LOADTRIM_MONITOR": plan.monitor,
        },
    )
    begun, stolen = time.monotonic(), stolen_seconds()
    report = asyncio.run(play_run(options))
    passed = (time.monotonic() - begun) * (os.cpu_count() or 1)
    found = CachedRun(
        name=plan.name,
        summary=report.summary,
        replicas_at=_scaling(report, options.replicas),
        at=round(report.setting.started_at, 3),
        machine=machine(),
        played=plan.played,
        stolen=round((stolen_seconds() - stolen) / passed, 4),
    )
    # Written last and in one step: what is there was played to its end.
    half = directory / f"{KEPT_FILE}.half"
    half.write_bytes(msgspec.json.encode(found))
    half.rename(directory / KEPT_FILE)
    return found


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[bool]:
    """Is it this command's to play? Who plays it holds the file beside its directory, until it ends in whatever way."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _scaling(report: Report, first: int) -> tuple[tuple[float, int], ...]:
    """What its leader wanted, by the decisions on the control topic; none: as many as at first, all the time."""
    begun = report.setting.started_at
    changes = [(0.0, first)]
    for at, wanted in report.wanted:
        if at - begun <= 0.0:
            changes = [(0.0, wanted)]
        elif wanted != changes[-1][1]:
            changes.append((round(at - begun, 3), wanted))
    return tuple(changes)


def reported_after(reported_at: Sequence[float], started_at: float) -> float | None:
    """Median time from a burst to the members' reports, in seconds, 0 to 1; None: nobody reported.

    Args:
        reported_at: seconds since the epoch.
        started_at: when the first burst came, seconds since the epoch; another comes every second.
    """
    if not reported_at:
        return None
    # About the first of them: some a little before a burst and some a little after it have no median near 0.5.
    first = reported_at[0]
    apart = median((at - first + 0.5) % 1.0 - 0.5 for at in reported_at)
    return round((first + apart - started_at) % 1.0, 3)


def told(plan: Plan, result: CachedRun, directory: Path) -> RealRun:
    """What the page needs of a run that is kept in a directory."""
    summary = result.summary
    share, minutes = plan.paper or (None, None)
    return RealRun(
        load=plan.load,
        consumers=plan.consumers,
        scaled_as=plan.scaled_as.removeprefix(f"{plan.load}/"),
        paper_share=share,
        paper_minutes=minutes,
        share=100 * summary.share_in_time,
        replica_minutes=summary.replica_minutes,
        p99=summary.latency.p99,
        rebalances=summary.generations or None,
        lost=summary.lost + summary.left_over,
        repeated=summary.repeated,
        stolen=100 * result.stolen,
        reported_after_seconds=reported_after(fold(load_entries(directory / CONTROL_FILE)).reported_at, result.at),
        at=result.at,
        machine=result.machine,
    )


def publish(found: Mapping[str, CachedRun], folder: Path) -> None:
    """Put whole runs where the page is made from."""
    listed = plans()
    runs = merge_runs(
        folder,
        [told(plan, found[plan.name], directory_of(plan, 0, None)) for plan in listed if plan.name in found],
        [(plan.load, plan.consumers) for plan in listed],
    )
    if runs:
        given = ExperimentContext(quick=False, pool=None, folder=folder)
        given.draw(PICTURE, CAPTION, partial(paint, runs=runs), size=(13.0, 4.0))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.real", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--runs", default="", metavar="TEXT", help="only those whose names contain it")
    parser.add_argument("--seconds", type=int, metavar="N", help="play so many seconds of each load (all of it)")
    parser.add_argument("--begin", type=int, default=0, metavar="N", help="with --seconds: from this second on (0)")
    parser.add_argument(
        "--stolen", type=float, default=100.0, metavar="PERCENT",
        help="play again what is kept where the host took more than this of the machine's CPU time meanwhile (100)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="say what there is and what is kept; play nothing")
    given = parser.parse_args(arguments)
    if given.seconds is not None and (given.seconds < 1 or given.begin < 0):
        parser.error(f"--seconds {given.seconds} from {given.begin} on is no piece of a load; give 1 and 0 at least")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what is missing, tell all. Returns the exit code (see the module)."""
    given = _parsed(arguments)
    chosen = [plan for plan in plans() if given.runs in plan.name]
    if not chosen:
        print(
            f"no run is called {given.runs!r}; there are: {', '.join(plan.name for plan in plans())}", file=sys.stderr
        )
        return 2
    found = cached_runs(given.begin, given.seconds, given.stolen / 100)
    if given.list:
        for plan in chosen:
            result = found.get(plan.name)
            print(f"{f'kept, {result.stolen:.1%} stolen' if result else 'missing':18}  {plan.name}")
        return 0
    missing = [plan for plan in chosen if plan.name not in found]
    try:
        with any_kafka() if missing else contextlib.nullcontext() as kafka:
            for plan in missing:
                with _claimed(directory_of(plan, given.begin, given.seconds)) as claimed:
                    # Another command may have played it meanwhile, or what it is to be scaled as.
                    found |= cached_runs(given.begin, given.seconds, given.stolen / 100)
                    if plan.name in found:
                        continue
                    if not claimed:
                        print(f"{plan.name}: left to another command, which plays it now", file=sys.stderr)
                        continue
                    if plan.scaled_as and plan.scaled_as not in found:
                        print(f"{plan.name}: left out, for {plan.scaled_as} was not played", file=sys.stderr)
                        continue
                    print(f"{plan.name} ...", file=sys.stderr, flush=True)
                    assert kafka is not None
                    found[plan.name] = play(plan, kafka, given.begin, given.seconds, found.get(plan.scaled_as))
    except (RunFailedError, LocalKafkaError) as error:
        print(f"A run failed, those before it are kept: {error}", file=sys.stderr)
        return 3
    if given.seconds is None:
        publish(found, PAGE_FOLDER)
    for load in dict.fromkeys(plan.load for plan in chosen):
        rows = [
            told(plan, found[plan.name], directory_of(plan, given.begin, given.seconds))
            for plan in chosen
            if plan.load == load and plan.name in found
        ]
        print("\n".join(["", load, *table(rows)]))
    whole = all(plan.name in found for plan in chosen)
    lost = any(found[plan.name].summary.lost for plan in chosen if plan.name in found)
    return 0 if whole and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
