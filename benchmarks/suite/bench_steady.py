"""A constant load that is only just below a whole number of replicas: nothing should happen."""

from __future__ import annotations

from itertools import pairwise

from demo.load import noisy, shares_even
from demo.report import CONTROL_FILE, read_setting
from demo.run import RunOptions
from demo.run import run as run_demo
from demo.telemetry import fold, load_entries

from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
REPLICAS = 3
BUSY_SECONDS = 0.0059
BELOW = 0.05
NOISE = 0.10
SECONDS, SECONDS_QUICK = 600, 90
SETTLE_SECONDS = 60.0


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
    return Finding(
        setting=(
            f"{PARTITIONS} partitions, {rate:.0f} records/s +-{NOISE:.0%} (another value each second, evenly "
            f"spread in it) x {BUSY_SECONDS * 1e3:g} ms: {BELOW:.0%} below {REPLICAS} replicas; W = 0.5 s, "
            f"{len(setting.per_second)} s with {REPLICAS} replicas at the start. Counted after the first "
            f"{SETTLE_SECONDS:g} s."
        ),
        figures=(
            Figure(name="scalings", value=scalings, at_most=0),
            Figure(name="moves", value=len(moves), at_most=0),
            Figure(name="replicas wanted at the end", value=wanted[-1] if wanted else float("nan")),
            Figure(
                name="share in time",
                value=summary.share_in_time * 100,
                unit="%",
                peer=f"p99 {summary.latency.p99 * 1e3:.0f} ms; possible {summary.share_possible:.2%}",
            ),
            Figure(name="replica-minutes", value=summary.replica_minutes),
        ),
        details={
            "reasons": reasons[:20],
            "lost": summary.lost,
            "repeated": summary.repeated,
            "sent_behind_seconds_max": summary.behind_max,
        },
    )


BENCHMARK = Benchmark(name="steady", title="A constant load", run=run, seconds=630, quick_seconds=115)
