"""ICCBDC'22: as many members as a bin packing of rate and lag opens, decided anew each time.

More than before: up. Fewer: down. As many: partitions move only if some member has more than ``mu`` records/s or more
than ``mu x W`` records that wait.

* ``iccbdc22``         as published: least-load first-fit decreasing. The packer of the same name places by it.
* ``iccbdc22_as_run``  as in the authors' code: one pass of plain first-fit decreasing says how many, 30 s of cool-down
  for up and down together, ``sampled_lag``.

The lag that counts is the one just after a usual burst (``sampled_lag`` 1: as reported): a sampler whose moment drifts
through the bursts, as theirs did, meets it sooner or later, and would ask for fewer and for more in turns.

Source: *Cost-Efficient and Latency-Aware Event Consuming in Workload-Skewed Distributed Event Queues*, ICCBDC 2022,
section 3.2, algorithm 1 (AutoScaleCG) and appendix. Changed: mu is measured (the paper's: 95 records/s reported by
members that were set to 100); limits are "at most" as in its integer program, not "less than" as in equation 6.
"""

from __future__ import annotations

from msgspec import structs

from ...parameters import Mu, Parameters
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from ..packers.least_loaded import with_lag
from .packing import SampledLag, lag_after_burst, member_size, opened, opened_in_one_pass, violated
from .shared import Cooldown, PaperState, cooling, held, sized, unknown_cost, wanted

__all__ = ["ICCBDC22", "Iccbdc22"]


class Iccbdc22Parameters(Parameters, frozen=True, kw_only=True):
    """As published."""

    mu: Mu | None = None
    cooldown_seconds: Cooldown = 0.0
    sampled_lag: SampledLag = False


class Iccbdc22AsRunParameters(Iccbdc22Parameters, frozen=True, kw_only=True):
    """As in the authors' code and their second experiment."""

    cooldown_seconds: Cooldown = 30.0
    sampled_lag: SampledLag = True


ICCBDC22 = {"iccbdc22": Iccbdc22Parameters, "iccbdc22_as_run": Iccbdc22AsRunParameters}


class Iccbdc22:
    """One of :data:`ICCBDC22`."""

    needs = frozenset({Measure.RATES, Measure.LAG, Measure.SERVICE_RATE})
    state = PaperState

    def __init__(self, name: str, given: Iccbdc22Parameters | None = None) -> None:
        self.name = name
        self.kind = ICCBDC22[name]
        self._given = given or self.kind()
        self._count = opened if name == "iccbdc22" else opened_in_one_pass

    def decide(self, view: View, state: PaperState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        if unknown_cost(view, given.mu):
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        lag = lag_after_burst(given.sampled_lag)
        items = with_lag(view.items, lag)
        size = member_size(view, 1.0, given.mu, whole_lag=False)
        count, before = self._count(view, items, size), wanted(view, state)
        text = f"{sum(i.rate for i in items):.0f} records/s arrive, {sum(i.lag for i in items)} wait"
        text += f"; packed they need {count}"
        left = cooling(view, state, given.cooldown_seconds)
        if count != before and left > 0:
            text = f"{text}; the cool-down takes {left:.0f} s more"
            return structs.replace(held(view, state, Reason.STABILIZING, text, count), lag=lag)
        sizing = structs.replace(sized(view, state, count, text), lag=lag)
        if count == before and view.replicas == count and violated(items, size):
            return structs.replace(
                sizing, reason=Reason.PLACEMENT, place=True, text=f"{text}, but one has more than it can do"
            )
        return sizing
