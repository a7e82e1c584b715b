"""Li & Ku: a queueing model and the length of the buffer, whichever asks for more.

* Queue profiler: every consumer an M/M/1 queue; the smallest ``c_q`` with ``1 / (mu - lambda / c_q) <= T_a``.
* Buffer profiler: ``c_l = c + (Buffer - Buffer_t) / Buffer_t x w`` with ``Buffer_t = mu x c x 1.95``.
* Decision maker, each second, with a cool-down after every action: ``c_q > c`` or ``c_l > c``: clear the down list,
  note ``max(c_q, c_l)``; with 2 notes scale to their mean (4 under cooperative rebalancing). Else ``c_q < c`` or
  ``c_l < c``: clear the up list, note the same; with 10 notes scale to the mean of the last 3. Else clear both.

Source: Li and Ku, *Cost-Effective Autoscaler under Event-Driven Architecture*, equations 1 to 8 and algorithm 1.
Changed: mu is measured (the paper's: 58 requests/s) and T_a is the objective W. A mean that is no whole number, of
which the paper says nothing, is rounded up. The tenth note and every later one is looked at: as printed (``len ==
downReactW``) a list whose tenth mean asks for no change would never be looked at again. Down never means up, nor up
down.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Annotated

from msgspec import Meta, field, structs

from ...parameters import Mu, Parameters, Positive
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .shared import Cooldown, PaperState, cooling, held, sized, wanted

__all__ = ["LiKu"]


class LiKuParameters(Parameters, frozen=True, kw_only=True):
    """The paper's experiments."""

    mu: Mu | None = None
    rate_seconds: Annotated[Positive, Meta(description="the arrival rate is that of so many last seconds")] = 2.0
    weight: Annotated[Positive, Meta(description="w: replicas per threshold's worth of buffer")] = 1.5
    buffer_seconds: Annotated[Positive, Meta(description="Buffer_t: so many seconds' work of the group")] = 1.95
    up_notes: Annotated[int, Meta(ge=1, le=100, description="upReactW: looks that agree before an up")] = 2
    down_notes: Annotated[int, Meta(ge=1, le=100, description="downReactW: looks that agree before a down")] = 10
    down_mean_notes: Annotated[int, Meta(ge=1, le=100, description="a down goes to the mean of so many last ones")] = 3
    cooldown_seconds: Cooldown = 10.0


class LiKuState(PaperState, frozen=True, kw_only=True):
    """What the decision maker remembers."""

    ups: tuple[float, ...] = field(name="up", default=())
    """Replicas that the looks which agree on an up asked for, oldest first."""
    downs: tuple[float, ...] = field(name="down", default=())
    """Replicas that the looks which agree on a down asked for, oldest first."""


class LiKu:
    """The policy ``li_ku``."""

    name = "li_ku"
    needs = frozenset({Measure.RATES, Measure.LAG, Measure.SERVICE_RATE})
    kind = LiKuParameters
    state = LiKuState

    def __init__(self, given: LiKuParameters | None = None) -> None:
        self._given = given or LiKuParameters()

    def decide(self, view: View, state: LiKuState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        mu, rate, before = view.service_rate(given.mu), view.arrival_rate(given.rate_seconds), wanted(view, state)
        if mu is None or rate is None:
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        if (left := cooling(view, state, given.cooldown_seconds)) > 0:
            return held(
                view, state, Reason.STABILIZING, f"the cool-down after the last scaling takes {left:.0f} s more"
            )
        queue = queueing(rate, mu, view.config.sla_seconds)
        buffer = before + buffered(view.lag, mu * before * given.buffer_seconds) * given.weight
        target = min(max(queue, buffer), float(view.replicas_max))
        text = f"{rate:.0f} records/s arrive and {view.lag} wait; the queueing model asks for {_shown(queue)}, "
        text += f"the buffer for {buffer:.1f}"
        ups, downs = [*state.ups], [*state.downs]
        asked: float = before
        if queue > before or buffer > before:
            ups, downs = [*ups, target][-given.up_notes :], []
            if len(ups) == given.up_notes:
                asked = max(before, fmean(ups))
        elif queue < before or buffer < before:
            ups, downs = [], [*downs, target][-given.down_notes :]
            if len(downs) == given.down_notes:
                asked = min(before, fmean(downs[-given.down_mean_notes :]))
        else:
            ups, downs = [], []
        count = view.bounded(asked)
        if count != before:
            ups, downs = [], []
        state = structs.replace(
            state, ups=tuple(round(note, 6) for note in ups), downs=tuple(round(note, 6) for note in downs)
        )
        if count == before and (ups or downs):
            agreed = f"{len(ups)} of {given.up_notes} looks" if ups else f"{len(downs)} of {given.down_notes} looks"
            text += f"; {agreed} agree"
        return sized(view, state, count, text)


def queueing(rate: float, mu: float, objective_seconds: float) -> float:
    """The fewest M/M/1 servers whose mean time in the system is within the objective; infinite where none is."""
    spare = mu - 1.0 / objective_seconds
    if rate <= 0:
        return 1.0
    return max(1.0, math.ceil(rate / spare - 1e-9)) if spare > 0 else math.inf


def buffered(buffer: float, threshold: float) -> float:
    """By how many times its threshold the buffer is too long (negative: too short)."""
    return (buffer - threshold) / threshold


def _shown(count: float) -> str:
    return f"{count:.0f}" if count < math.inf else "more than there can be, for a record alone takes too long"
