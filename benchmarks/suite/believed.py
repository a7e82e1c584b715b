"""A real group's runs beside the simulator's of the same load: how far the medians are apart."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from demo.report import RunSummary
from loadtrim.simulate import Outcome

from .results import Figure

__all__ = ["differences"]


def differences(
    real: Sequence[RunSummary],
    simulated: Sequence[Outcome],
    *,
    points_at_most: float | None,
    percent_at_most: float | None,
    of: str = "",
) -> Iterator[Figure]:
    """Return by how much the share in time and the replica-minutes differ.

    Args:
        real: one or more runs.
        simulated: one or more runs of the same load.
        points_at_most: of the shares, percentage points; None: not judged.
        percent_at_most: of the replica-minutes, relative to the real ones; None: not judged.
        of: comes before the figures' names.
    """
    share, simulated_share = (statistics.median(run.share_in_time for run in runs) * 100 for runs in (real, simulated))
    minutes, simulated_minutes = (statistics.median(run.replica_minutes for run in runs) for runs in (real, simulated))
    yield Figure(
        name=f"{of}share of records in time, difference",
        value=abs(simulated_share - share),
        unit="points",
        at_most=points_at_most,
        peer=f"real {share:.2f} %, simulated {simulated_share:.2f} %",
    )
    yield Figure(
        name=f"{of}replica-minutes, difference",
        value=abs(simulated_minutes / minutes - 1.0) * 100,
        unit="%",
        at_most=percent_at_most,
        peer=f"real {minutes:.2f}, simulated {simulated_minutes:.2f}",
    )
