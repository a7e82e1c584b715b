"""Knows what will arrive: as many replicas as the coming seconds need, asked for just in time.

A simulator knows the moments of the records. There it asks for the fewest replicas that have all records of a second in
time. ``counted`` is the share of a replica's capacity that it counts on. Below 1 it keeps some free for what cannot be
foreseen; above 1 some records may be late. With ``limit_records_per_second`` a replica takes so many records of a
second. By default, where no moments are known, that is ``mu x min(W, 1 s)``: one burst that it does within the
objective.

``sliced`` 0: whole partitions. ``sliced`` 1: as if every partition could be cut, the fewest that any placement could do
with. ``with_startup`` 0: for the present second, as if a replica were there at once; 1: for the most that any second
needs until a replica that is asked for now is there, so that it is there in time, and a pause shorter than that is
bridged.

Whole partitions are dealt out anew when members come or go. They are as well when a member is about to get more than it
takes, if another placement would mend that. As long as all fits nothing moves: packers that are not sticky would deal
out anew for every record that a partition gets more or less. (``sliced`` 1: whenever the packer finds a better
placement.)

Only for those who play a load that they know (``loadtrim simulate``); a running group refuses it at its start.

Source: CLOSER'24, section 5.1 ("Optimal": provisioned when the arrival rate reaches mu x W, instantly and with no
time to rebalance); as run 85 records/s per replica. Changed: moments, start-up time and slicing are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, structs

from ...parameters import Mu, Parameters, Positive
from ...placement.problem import Item
from ...sizing.policy import Future, Measure, View
from ...values import Reason, Sizing
from ..packers.least_loaded import BinSize, least_loaded
from .shared import PaperState, held, sized

__all__ = ["Clairvoyant"]


class ClairvoyantParameters(Parameters, frozen=True, kw_only=True):
    """The paper's Optimal acts at once (``with_startup`` 0); by default what it asks for takes a start-up time."""

    mu: Mu | None = None
    limit_records_per_second: (
        Annotated[Positive, Meta(description="records of a second that a replica takes (none: by their moments)")]
        | None
    ) = None
    counted: Annotated[Positive, Meta(description="share of a replica's capacity that is counted on")] = 1.0
    with_startup: Annotated[bool, Meta(description="replicas are asked for a start-up time ahead")] = True
    sliced: Annotated[bool, Meta(description="partitions may be cut")] = False


class Clairvoyant:
    """The policy ``clairvoyant``."""

    name = "clairvoyant"
    needs = frozenset({Measure.FUTURE, Measure.SERVICE_RATE})
    kind = ClairvoyantParameters
    state = PaperState

    def __init__(self, given: ClairvoyantParameters | None = None) -> None:
        self._given = given or ClairvoyantParameters()

    def decide(self, view: View, state: PaperState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given
        mu, limit = view.service_rate(given.mu), given.limit_records_per_second
        if limit is None and mu is not None:
            limit = mu * min(view.config.sla_seconds, 1.0)
        if view.future is None or limit is None:
            return held(view, state, Reason.NOT_READY, "what will come, or what a record costs, is not known")
        ahead = view.estimate.startup_seconds + view.config.decision_seconds if given.with_startup else 0.0
        rows, count = view.future.between(view.now, view.now + ahead), None
        if given.limit_records_per_second is None:
            count = view.future.replicas_needed(view.now, view.now + ahead, given.sliced, given.counted)
        if count is None:
            count = max((self._need(view, view.future, row, limit, given.sliced) for row in rows), default=1)
        most = max((sum(row) for row in rows), default=0.0)
        text = (
            f"up to {most:.0f} records come in a second of the next {ahead:.1f} s"
            if ahead
            else (f"{most:.0f} records come in this second")
        )
        sizing = sized(view, state, count, f"{text}, {limit:.0f} a replica")
        place = sizing.place or given.sliced or sizing.replicas < view.replicas
        return structs.replace(sizing, place=place or self._mends(view, view.future, limit))

    def _mends(self, view: View, future: Future, limit: float) -> bool:
        """Will a member get more than it takes before the next decision, and do those who are there have the room?"""
        owners = {item.partition: item.owner for item in view.items}
        owned = [owners.get(partition) for partition in future.partitions]
        rows = future.between(view.now, view.now + view.config.decision_seconds)
        return any(_crowded(owned, row, limit) for row in rows) and all(
            self._need(view, future, row, limit, sliced=False) <= view.replicas for row in rows
        )

    def _need(self, view: View, future: Future, row: Sequence[float], limit: float, sliced: bool) -> int:
        if sliced:
            return max(1, math.ceil(sum(row) / limit - 1e-9))
        items = [
            Item(partition=partition, owner=None, rate=rate)
            for partition, rate in zip(future.partitions, row, strict=True)
        ]
        return len(least_loaded(items, BinSize(limit, 2**62), bins_max=view.replicas_max))


def _crowded(owners: Sequence[str | None], row: Sequence[float], limit: float) -> bool:
    """Is a second too much for a member with several partitions? One partition that is, is so wherever it goes."""
    records: dict[str, list[float]] = {}
    for owner, count in zip(owners, row, strict=True):
        if owner is not None:
            records.setdefault(owner, []).append(count)
    return any(len(each) > 1 and sum(each) > limit + 1e-9 for each in records.values())
