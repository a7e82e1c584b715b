"""Landau'24's controller: as many replicas as the chosen packer opens, looked at anew when somebody is over the limit.

It watches until a member carries more than the limit, a partition has no owner, or ``interval_seconds`` have passed
(the sentinel state); then it asks the packer (``LOADTRIM_PACKER``) how many bins of C it would open. New replicas are
waited for, then partitions move.

* ``landau24``         as published: C is 5/6 of what a member can do, and the limit is C. ``interval_seconds`` 30 is
  the length of an iteration in section VI-C; the condition itself has no figure there.
* ``landau24_as_run``  as in the authors' code: C is 0.75 of what a member can do, and the limit all of it (100 and 133
  of theirs). What lies between is its hysteresis. It packs anew every 10 s.

The paper's byte rates are
``LOADTRIM_MONITOR=landau24``, its consumers' cycle is ``examples/batches``.

Source: Landau'24, section V-C. Changed: loads are busy seconds per second, not bytes/s, so that unlike messages and
machines compare. Packers that look at counts only know no C: ``range``, ``roundrobin`` and ``sticky`` use every bin
they are given, so with those it asks for the maximum; ``kd_n`` keeps every owner, so with it the group never grows.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, structs

from ...parameters import Fill, Parameters, Positive
from ...placement.bin_source import wanted as bins_wanted
from ...placement.problem import Problem
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing
from .shared import PaperState, held, unknown_cost, wanted

__all__ = ["LANDAU24", "Landau24"]


Filled = Annotated[Fill, Meta(description="C over what a member can really do")]
Interval = Annotated[Positive, Meta(description="it is packed anew after this long at the latest")]
Limit = Annotated[Fill, Meta(description="share of a member above which it is packed anew (none: C)")]


class Landau24Parameters(Parameters, frozen=True, kw_only=True):
    """As published."""

    fill: Filled = 5.0 / 6.0
    limit: Limit | None = None
    interval_seconds: Interval = 30.0


class Landau24AsRunParameters(Landau24Parameters, frozen=True, kw_only=True):
    """The authors' code has these."""

    fill: Filled = 0.75
    limit: Limit | None = 1.0
    interval_seconds: Interval = 10.0


LANDAU24: dict[str, type[Landau24Parameters]] = {
    "landau24": Landau24Parameters,
    "landau24_as_run": Landau24AsRunParameters,
}


class Landau24State(PaperState, frozen=True, kw_only=True):
    """What Landau'24's controller remembers."""

    packed_at: float | None = None
    """When the packer was asked last."""
    assign_at: int | None = None
    """Replicas that are waited for before partitions move; None: nothing is waited for."""


class Landau24:
    """One of :data:`LANDAU24`."""

    needs = frozenset({Measure.RATES, Measure.SERVICE_RATE})
    state = Landau24State

    def __init__(self, name: str, given: Landau24Parameters | None = None) -> None:
        self.name = name
        self.kind = LANDAU24[name]
        self._given = given or self.kind()

    def decide(self, view: View, state: Landau24State) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        if unknown_cost(view):
            return held(view, state, Reason.NOT_READY, "nothing was done yet, so what a record costs is not known")
        before = wanted(view, state)
        fill = given.fill
        why = self._exit(view, given, state.packed_at)
        packed_at, assign_at = state.packed_at, state.assign_at
        arrived = assign_at is not None and view.replicas >= assign_at
        sizing = Sizing(replicas=before, reason=Reason.FITS, text="nobody is over the limit", place=False)
        if why:
            packed_at = view.now
            problem = Problem(
                items=view.items, bins=view.supply, fill=fill, mu=view.config.parameters.get("mu"), leader=""
            )
            count = view.bounded(bins_wanted(view.packer, problem))
            text = f"{why}; {view.config.packer} opens {count} at {fill:.0%} of a member"
            reason = Reason.NEEDS_MORE if count > before else Reason.NEEDS_LESS if count < before else Reason.PLACEMENT
            # Whoever is to be added is waited for; until then nothing moves.
            sizing = Sizing(replicas=count, reason=reason, text=text, place=count <= view.replicas)
            if count > view.replicas:
                assign_at = count
        if arrived or sizing.place:
            assign_at = None
        state = structs.replace(state, wanted=sizing.replicas, packed_at=packed_at, assign_at=assign_at)
        return structs.replace(sizing, place=sizing.place or arrived, fill=fill, state=state)

    def _exit(self, view: View, given: Landau24Parameters, packed_at: float | None) -> str:
        """Why the controller leaves its sentinel state, if it does."""
        if packed_at is None:
            return "the first look"
        limit, interval = given.fill if given.limit is None else given.limit, given.interval_seconds
        carried: dict[str, float] = {}
        for item in view.items:
            if item.owner is None:
                return f"nobody owns {item.partition}"
            carried[item.owner] = carried.get(item.owner, 0.0) + item.work
        for entry in view.supply:
            if carried.get(entry.member, 0.0) > entry.capacity * limit:
                return f"{entry.unit} carries more than {limit:.0%} of what it can"
        return f"{view.now - packed_at:.0f} s have passed" if view.now - packed_at >= interval else ""
