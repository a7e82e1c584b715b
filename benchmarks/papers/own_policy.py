"""Our own policy on the papers' loads: what every reader wants to see beside theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from benchmarks.papers.runner import Part, SimulatedJob, SimulatedResult, spread_of
from benchmarks.papers.table import AS_RUN, FigureRow, FigureTable
from loadtrim.simulate import Options, PlanConfig

__all__ = ["OWN", "own_part", "own_runs"]

OWN = "Our own policy"
PREFIX = "own/"
SEEDS = (1, 2, 3)
POLICY, PACKER = "objective", "trim"
MEASURES: tuple[tuple[str, str, int, Callable[[SimulatedResult], float]], ...] = (
    ("in time", "%", 2, lambda r: 100.0 * r.share_in_time),
    ("over W", "%", 2, lambda r: 100.0 * (1.0 - r.share_in_time)),
    ("replica-minutes", "", 1, lambda r: r.replica_minutes),
    ("consumer-seconds", "", 1, lambda r: 60.0 * r.replica_minutes),
    ("mean latency", "s", 2, lambda r: r.latency_mean),
    ("replicas", "", 2, lambda r: r.replicas_mean),
)
NOTE = (
    f"`{POLICY}` with `{PACKER}` and the default of 99.9 %, in a group of loadtrim's members, which hand partitions "
    "over one by one. So the difference from the paper is that of policy and protocol together. Load, cost of a "
    "record, W, start-up time and maximum are the paper's as run."
)


def own_runs(name: str, jobs: Iterable[SimulatedJob], seeds: Sequence[int] = SEEDS) -> dict[str, list[SimulatedJob]]:
    """Return the paper's jobs with our own policy, packer, protocol and rhythm, each with every seed.

    Args:
        name: what the load is called in the table.
        jobs: as the paper ran them; of their seeds nothing is kept.
        seeds: of a job each.
    """
    plain, rhythm = Options(), PlanConfig(group="papers")
    made = [
        replace(
            job,
            config=structs.replace(
                job.config,
                policy=POLICY,
                packer=PACKER,
                decision_seconds=rhythm.decision_seconds,
                report_seconds=rhythm.report_seconds,
            ),
            options=replace(
                job.options,
                seed=seed,
                protocol=plain.protocol,
                gather_seconds=plain.gather_seconds,
                phase_seconds=plain.phase_seconds,
                reports_spread=plain.reports_spread,
            ),
        )
        for job in jobs
        for seed in seeds
    ]
    return {f"{PREFIX}{name}": made}


def own_part() -> Part:
    """Return the table of these runs."""
    return Part(OWN, (PREFIX,), _table)


def _table(results: Mapping[str, Sequence[SimulatedResult]]) -> FigureTable:
    rows = [
        FigureRow(
            what=f"{name.removeprefix(PREFIX)}, {what}",
            form=AS_RUN,
            unit=unit,
            digits=digits,
            ours=spread_of(found, value),
        )
        for name, found in results.items()
        for what, unit, digits, value in MEASURES
    ]
    return FigureTable(title="", rows=tuple(rows), note=NOTE)
