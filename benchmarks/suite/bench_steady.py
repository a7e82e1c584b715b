"""A constant load that is only just below a whole number of replicas: nothing should happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from demo.load import noisy, shares_even
from demo.report import CONTROL_FILE, SecondFigures, Setting, read_setting
from demo.run import RunOptions
from demo.run import run as run_demo
from demo.telemetry import fold, load_entries

from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK", "Counted", "counted"]

PARTITIONS = 9
REPLICAS = 3
BUSY_SECONDS = 0.0059
BELOW = 0.05
NOISE = 0.10
SECONDS, SECONDS_QUICK = 600, 90
SETTLE_SECONDS = 60
"""Not counted, in no figure: the leader learns in them what a record costs."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The records from one second of the load on, until its end.

    Attributes:
        records: that were sent in these seconds.
        late: of these, what was done after the objective or never.
        late_before: records that were sent before these seconds, and late.
        replica_minutes: from a replica being asked for until it was gone, within these seconds.
    """

    records: int
    late: int
    late_before: int
    replica_minutes: float

    @property
    def share_in_time(self) -> float:
        """In percent."""
        return 100.0 * (1 - self.late / self.records)


def counted(rows: Sequence[SecondFigures], setting: Setting, since: int) -> Counted:
    """Count from second ``since`` of the load on."""
    begun, ended = setting.started_at + since, setting.started_at + len(setting.per_second)
    lives = ((each.asked_at, ended if each.ended_at is None else each.ended_at) for each in setting.replicas)
    return Counted(
        records=sum(row.records for row in rows if row.second >= since),
        late=sum(row.late for row in rows if row.second >= since),
        late_before=sum(row.late for row in rows if row.second < since),
        replica_minutes=sum(max(0.0, min(gone, ended) - max(asked, begun)) for asked, gone in lives) / 60,
    )


async def run(context: BenchmarkContext) -> Finding:
    """The payments service under ``loadtrim up``'s orchestrator, evenly spread arrivals, another rate each second."""
    kafka = context.cluster()
    topic = kafka.create_topic(partitions=PARTITIONS)
    rate = REPLICAS * (1.0 - BELOW) / BUSY_SECONDS
    directory = context.scratch / "run"
    report = await run_demo(
        RunOptions(
            bootstrap=kafka.bootstrap,
            topic=topic,
            group="bench-steady",
            rates=noisy(rate, SECONDS_QUICK if context.quick else SECONDS, NOISE),
            shares=shares_even(PARTITIONS),
            directory=directory,
            even=True,
            busy_seconds=BUSY_SECONDS,
            replicas=REPLICAS,
        )
    )
    setting = read_setting(directory)
    telemetry = fold(load_entries(directory / CONTROL_FILE))
    settled = setting.started_at + SETTLE_SECONDS
    load_ends = setting.started_at + len(setting.per_second)
    moves = [change for change in telemetry.owner_changes if settled <= change.at < load_ends]
    decisions = [d for d in telemetry.decisions if settled <= d.at < load_ends]
    wanted = [d.replicas_wanted for d in decisions]
    scalings = sum(before != after for before, after in pairwise(wanted))
    reasons = sorted({d.reason for d in decisions if d.outcome in ("up", "down", "move")})
    summary = report.summary
    all_of_it = counted(report.seconds, setting, SETTLE_SECONDS)
    minutes = (load_ends - settled) / 60
    return Finding(
        setting=(
            f"{PARTITIONS} partitions, {rate:.0f} records/s +-{NOISE:.0%} (another value each second, evenly "
            f"spread in it) x {BUSY_SECONDS * 1e3:g} ms: {BELOW:.0%} below {REPLICAS} replicas; W = 0.5 s, "
            f"{len(setting.per_second)} s with {REPLICAS} replicas at the start, LOADTRIM_SLA_SHARE="
            f"{setting.objective_share:g}. Every figure is of what came after the first {SETTLE_SECONDS} s, which are "
            "thrown away."
        ),
        figures=(
            Figure(name="scalings", value=scalings, at_most=0),
            Figure(name="moves", value=len(moves), at_most=0),
            Figure(name="replicas wanted at the end", value=wanted[-1] if wanted else float("nan")),
            Figure(
                name="share in time",
                value=all_of_it.share_in_time,
                unit="%",
                at_least=setting.objective_share * 100,
                peer=f"{all_of_it.late:,} of {all_of_it.records:,} late, "
                f"where {all_of_it.records * (1 - setting.objective_share):,.0f} may be",
            ),
            Figure(
                name="replica-minutes",
                value=all_of_it.replica_minutes,
                peer=f"{REPLICAS} replicas for {minutes:g} minutes: {REPLICAS * minutes:.1f}",
            ),
        ),
        details={
            "reasons": reasons[:20],
            "late_in_the_first_seconds": all_of_it.late_before,
            "late_by_cause_of_the_whole_run": summary.late_by_cause,
            "lost": summary.lost,
            "repeated": summary.repeated,
            "sent_behind_seconds_max": summary.behind_max,
        },
    )


BENCHMARK = Benchmark(name="steady", title="A constant load", run=run, seconds=630, quick_seconds=115)
