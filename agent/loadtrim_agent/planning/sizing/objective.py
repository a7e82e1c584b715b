"""Size the pool so that the share of records in time is kept: up at once, down with patience.

The group is sized as one server of n members' capacity (handoffs of milliseconds let partitions be passed on), so that
for every window length the work that arrives in it, one standard deviation and what waits fit what the group can do in
the window plus the objective. Then it is looked at how whole partitions divide over that many members (dealt out
largest first; over those that are there, by what their packer makes of it): further replicas are asked for where more
would be late by the division than the share permits over time.

They are given back when fewer have been enough for 2 s, or for twice what no trend foresees of the start-up time where
that is longer; every down that is regretted doubles that, and it halves every minute again (from a start-up of a minute
on that adds nothing). Replicas that brought no throughput to a group that was saturated before and after (something
else is the bottleneck) are not asked for again for 5 minutes, doubling up to an hour; as many as there were then still
are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import RejectedPlan

from ..explain import listed
from ..forecast import reach_seconds
from ..parameters import Amount, Parameters
from ..placement.problem import Dealer, Item, Problem, limits_of
from ..values import TAUS_SECONDS, Reason, Sizing
from .policy import View

__all__ = ["Need", "Objective", "needed"]

RATE_SHARE = 0.98
"""Of the capacity that the mean rate may take."""
STAY = 1.015
"""A group is left as it is up to this much above what a new one would be sized for (a mean rate of 0.995 of the
capacity), or the noise of the measurement would scale it. What builds up meanwhile is seen as backlog."""
BACKLOG_SECONDS = 30.0
"""A standing backlog is worked off within this time."""
SOON_SECONDS = 10.0
SOON_STARTUPS = 3.0
"""Late work is to be worked off within this time, or this many times the start-up time, where a doubled group can; else
within the configured time."""
SOON_OF_SECONDS = 300.0
"""Late work may also take as long as the share permits of this time."""
GAINS = (0.5, 0.35, 0.25, 0.2, 0.18, 0.16, 0.14, 0.125, 0.11, 0.1, 0.085, 0.07, 0.05, 0.03, 0.015, 0.005)
"""A replica for the placement's sake must bring this share of its capacity as work in time: the largest of them with
which the objective's share is kept (:func:`_priced`), or what the parameter ``placement_gain`` says."""
PRICED_SECONDS = 600.0
"""The share is to be kept over about this time."""
PRICED_DIGITS = 6
"""Every decision carries these sums in its state."""
GAIN_REACH = 3
"""So many more replicas are looked at together: one alone may bring nothing where two do."""
DOWN_MARGIN = 1.03
PATIENCE_SECONDS = 2.0
PATIENCE_UNSEEN = 2.0
"""Or this many times what no trend foresees of a start-up time, where that is longer: 3 s of 10, 21 of 30, 66 of 60."""
PATIENCE_SECONDS_MAX = 300.0
PATIENCE_DECAY_SECONDS = 60.0
"""Patience halves after this time without a regretted down. So where a replica takes a minute or more to start, regrets
add nothing: what is waited there pays for itself already, whatever comes back."""
FALLING_SECONDS = 30.0
FALLING_STARTUPS = 2.0
"""A load that has been seen to fall for so long (or so many start-up times) is no noise that patience would have to
sit out."""
REGRET_SECONDS = 10.0
FUTILE_SETTLE_SECONDS = 5.0
"""New replicas are given this time before their effect is judged."""
FUTILE_SHARE = 0.3
"""Of the throughput that new replicas should add: with less than this they were futile."""
FUTILE_SECONDS = 300.0
FUTILE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """How many replicas a load asks for, and what binds."""

    replicas: int
    pool: int
    """What the work alone asks for, without looking at partitions."""
    required: float
    """Capacity, work per second."""
    tau_seconds: float | None
    """Window that binds; None: the mean rate."""
    late: float
    """Work per second that is late even so, because whole partitions do not divide better."""
    late_pool: float
    """The same with ``pool`` replicas."""
    at_max: bool = False


def needed(view: View, level: float, error: float = 0.0, slack: float = 1.0, gain: float = 0.0) -> Need:
    """The fewest replicas for arrivals of ``level`` work per second.

    Args:
        view: of the group.
        level: work per second.
        error: its standard error, to be kept free.
        slack: so many times their capacity may be asked for.
        gain: what a replica must bring for the placement's sake.

    Cost: O(p log p) per number that is looked at.
    """
    pool, required, tau = _pool(view, level, error, slack)
    replicas, late = _divided(view, pool, level, gain)
    total = sum(item.work for item in view.items)
    return Need(
        replicas=replicas,
        pool=pool,
        required=required,
        tau_seconds=tau,
        late=late,
        late_pool=view.late(pool, level / total) if total > 0 else 0.0,
        at_max=pool == view.replicas_max and view.capacity(pool) * slack < required,
    )


def _pool(view: View, level: float, error: float, slack: float) -> tuple[int, float, float | None]:
    """The fewest replicas that have the capacity for the group's work, how much it is, and the window that binds."""
    required, tau = _required(view, level, error)
    pool = 1
    while pool < view.replicas_max and view.capacity(pool) * slack < required:
        pool += 1
    return max(pool, view.replicas_min), required, tau


def _required(view: View, level: float, error: float) -> tuple[float, float | None]:
    """Capacity that the work curve and the mean rate ask for, and the window that binds."""
    estimate, config = view.estimate, view.config
    serial = [item for item in view.items if item.serial]
    total = sum(item.work for item in view.items)
    factor = level / total if total > 0 else 1.0
    fastest = max((member.capacity for member in estimate.members.values()), default=1.0)
    rate = level + error + estimate.backlog / BACKLOG_SECONDS + _catching_up(view, level)
    rate -= sum(max(0.0, item.work * factor - fastest) for item in serial)
    best, binding = rate / RATE_SHARE, None
    for index, (tau, window) in enumerate(zip(TAUS_SECONDS, limits_of(estimate, config).windows, strict=True)):
        mean, sd = level * estimate.curve.mean[index], level * estimate.curve.sd[index]
        work = estimate.backlog + mean + config.z * math.sqrt(sd * sd + mean * estimate.scatter)
        # What exceeds one member in a single partition is late whatever the number of members: not to be answered.
        able = fastest * (tau + config.objective_seconds)
        work -= sum(max(0.0, item.mean[index] * factor - able) for item in serial)
        if work / window > best:
            best, binding = work / window, tau
    return best, binding


def _catching_up(view: View, level: float) -> float:
    """Capacity to work off what is already late.

    Partitions are read in order, so everything behind late work is late as well, for as long as there is any; and to
    work it off takes the same replica-time whether it is done soon or slowly, as long as the replicas stay for longer
    than they take to start. So it is done as soon as that allows, and the configured time is the longest: it binds
    where the backlog is so large that it would take more than twice the group.
    """
    estimate, config = view.estimate, view.config
    permitted = (1.0 - config.objective_share) * SOON_OF_SECONDS
    soon = max(SOON_SECONDS, SOON_STARTUPS * estimate.startup_seconds, permitted)
    return max(estimate.late / config.catchup_seconds, min(estimate.late / soon, level))


def _divided(view: View, pool: int, level: float, gain: float) -> tuple[int, float]:
    """``pool`` or more replicas, as long as more bring enough work into time."""
    total = sum(item.work for item in view.items)
    if total <= 0:
        return pool, 0.0
    factor = level / total
    replicas, late = pool, view.late(pool, factor)
    # What is late at all is the most that more replicas can bring.
    while late > 1e-9 and late >= gain * (view.capacity(replicas + 1) - view.capacity(replicas)):
        best: tuple[float, int, float] | None = None
        for more in range(replicas + 1, min(replicas + GAIN_REACH, view.replicas_max) + 1):
            other = view.late(more, factor)
            worth = late - other - gain * (view.capacity(more) - view.capacity(replicas))
            if late - other > 1e-9 and worth >= 0 and (best is None or worth > best[0]):
                best = (worth, more, other)
        if best is None:
            break
        _, replicas, late = best
    return replicas, late


class ObjectiveParameters(Parameters, frozen=True, kw_only=True):
    """One, for those who will not have it follow from the objective's share."""

    placement_gain: (
        Annotated[
            Amount,
            Meta(
                description="share of its capacity that a replica for the placement's sake must bring as work in time "
                "(default: the most that keeps the objective's share)",
            ),
        ]
        | None
    ) = None


class Objective:
    """The policy ``objective``."""

    name = "objective"
    kind = ObjectiveParameters

    def __init__(self, given: ObjectiveParameters | None = None) -> None:
        self._given = given or ObjectiveParameters()

    def decide(self, view: View) -> Sizing:
        """See :class:`.policy.Policy`."""
        view = replace(view, late=_Present(view).late)
        memory = dict(view.memory)
        wanted = view.bounded(round(memory.get("wanted", view.replicas)))
        gain = self._given.placement_gain
        if gain is None:
            gain = _priced(view, memory)
        # More load may divide better, so a baseline that expects more could ask for fewer: both are looked at.
        peaks = sorted({view.forecast.trend_peak, view.forecast.peak})
        need = max((_asked(view, peak, wanted, gain) for peak in peaks), key=lambda entry: entry.replicas)
        futile = _watch_futile(view, memory)
        sizing = self._up(view, memory, wanted, need) or self._down(view, memory, wanted, need, gain)
        most = max(wanted, futile)
        if futile and sizing.replicas > most:
            sizing = replace(
                sizing,
                replicas=most,
                reason=Reason.FUTILE,
                text=f"{sizing.text}; but the replicas up to {futile} brought no throughput, so no more are asked for",
                rejected=(RejectedPlan(replicas=sizing.replicas, reason="more replicas brought no throughput"),),
            )
        if sizing.replicas > view.replicas and sizing.replicas > wanted:
            memory |= _before_up(view, memory)
        memory["wanted"] = float(sizing.replicas)
        return replace(sizing, memory=memory, load_factor=_load_factor(view))

    def _up(self, view: View, memory: dict[str, float], wanted: int, need: Need) -> Sizing | None:
        if need.replicas <= wanted:
            return None
        down_at = memory.get("down_at")
        regret = max(REGRET_SECONDS, 3.0 * view.estimate.startup_seconds)
        if down_at is not None and view.now - down_at <= regret:
            # It was let go too early: be slower next time.
            memory["patience"] = min(2.0 * _patience(view, memory), PATIENCE_SECONDS_MAX)
            memory["regret_at"] = view.now
            memory.pop("down_at")
        memory.pop("fit_since", None)
        rejected = [RejectedPlan(replicas=wanted, reason=_misfit(view, need, wanted))]
        if need.pool < need.replicas and need.pool > wanted:
            rejected.append(RejectedPlan(replicas=need.pool, reason="whole partitions do not divide well over them"))
        reason = Reason.NEEDS_MORE if need.pool > wanted else Reason.PLACEMENT
        return Sizing(replicas=need.replicas, reason=reason, text=_words(view, need), rejected=tuple(rejected))

    def _down(self, view: View, memory: dict[str, float], wanted: int, need: Need, gain: float) -> Sizing:
        text = _words(view, need)
        smaller = need
        if need.replicas < wanted:
            # The present fits (need); what is expected must fit with a margin as well.
            margin = view.forecast.trend * DOWN_MARGIN + view.forecast.error
            ahead = needed(view, margin, slack=STAY, gain=gain)
            smaller = max(need, ahead, key=lambda entry: entry.replicas)
        if smaller.replicas < wanted and view.forecast.returning > 0.0:
            back = needed(view, view.forecast.returning * DOWN_MARGIN, slack=STAY, gain=gain)
            if back.replicas >= wanted:
                memory.pop("fit_since", None)
                return _returning(view, wanted, smaller, text)
            smaller = max(smaller, back, key=lambda entry: entry.replicas)
        if smaller.replicas >= wanted:
            memory.pop("fit_since", None)
            serial = any(item.serial for item in view.items)
            reason = Reason.AT_MAX if need.at_max else Reason.SERIAL if serial else Reason.FITS
            rejected = (
                (RejectedPlan(replicas=need.replicas, reason="fits, but not with a margin"),)
                if need.replicas < wanted
                else ()
            )
            return Sizing(replicas=wanted, reason=reason, text=text, rejected=rejected)
        since = memory.get("fit_since")
        most = smaller.replicas if since is None else max(smaller.replicas, round(memory.get("fit_replicas", 1)))
        since = view.now if since is None else since
        patience = _waiting(view, memory)
        if view.now - since < patience:
            memory |= {"fit_since": since, "fit_replicas": float(most)}
            left = patience - (view.now - since)
            why = f"would do; waiting {left:.1f} s more to be sure"
            return Sizing(
                replicas=wanted,
                reason=Reason.PATIENCE,
                text=f"{text}; {most} {why}",
                rejected=(RejectedPlan(replicas=most, reason=why),),
            )
        memory.pop("fit_since", None)
        memory.pop("fit_replicas", None)
        memory["down_at"] = view.now
        return Sizing(
            replicas=most,
            reason=Reason.NEEDS_LESS,
            text=f"{text}; {most} would have done for the last {view.now - since:.1f} s",
            rejected=(RejectedPlan(replicas=wanted, reason="more than is needed"),),
        )


class _Present:
    """How partitions divide over as many replicas as are there, by what their packer makes of it.

    Dealing them out (:class:`..placement.problem.Dealer`) is quick and shows how whole partitions divide over any
    number
    of members. Over those that are there the packer has had the time to find better: no more is late than as they lie
    now, or as it would repair that at once. So nobody is asked for a replica where a move will do.

    Cost: O(p log p) per load factor at which dealing makes something late, and at most one packing.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._bins = {entry.member: entry for entry in view.supply if entry.member in view.estimate.members}
        owners = {item.partition: item.owner for item in view.items if item.owner in self._bins}
        self._lying = owners if len(owners) == len(view.items) else None
        self._packed: Mapping[Partition, str | None] | None = None
        self._late: dict[float, float] = {}

    def late(self, replicas: int, factor: float) -> float:
        """As :attr:`.policy.View.late`."""
        dealt = self._view.late(replicas, factor)
        if dealt <= 0.0 or replicas != self._view.replicas or self._lying is None:
            return dealt
        if factor not in self._late:
            self._late[factor] = self._least(self._lying, factor)
        return min(dealt, self._late[factor])

    def _least(self, lying: Mapping[Partition, str | None], factor: float) -> float:
        dealer = self._view.dealer(factor)
        late = self._as(dealer, lying)
        return min(late, self._as(dealer, self._repaired())) if late > 0.0 else late

    def _repaired(self) -> Mapping[Partition, str | None]:
        """Where the packer would put them at the load that this decision is made for, whatever is asked first."""
        if self._packed is None:
            view = self._view
            limits = limits_of(view.estimate, view.config, _load_factor(view))
            problem = Problem(items=view.items, bins=tuple(self._bins.values()), limits=limits)
            self._packed = view.packer.pack(problem).owners
        return self._packed

    def _as(self, dealer: Dealer, owners: Mapping[Partition, str | None]) -> float:
        """Late where they lie so; what is late with nobody owning a part of it is not to be said."""
        held: dict[str, list[Item]] = {member: [] for member in self._bins}
        for item in self._view.items:
            owner = owners.get(item.partition)
            if owner is None:
                return math.inf
            held[owner].append(item)
        return dealer.late_as((items, self._bins[member].capacity) for member, items in held.items())


def _load_factor(view: View) -> float:
    """So many times the present load is planned for."""
    total = sum(item.work for item in view.items)
    factor = view.forecast.peak / total if total > 0 else 1.0
    return min(max(factor, 0.5), 4.0)


def _asked(view: View, peak: float, wanted: int, gain: float) -> Need:
    """What a load asks for: as many as are there where they will do, else with room for the error."""
    need = needed(view, peak, slack=STAY, gain=gain)
    return needed(view, peak, view.forecast.error, gain=gain) if need.replicas > wanted else need


def _returning(view: View, wanted: int, smaller: Need, text: str) -> Sizing:
    """As many as there are, because they would be asked for again before letting them go had paid."""
    expected = f"{_number(view.forecast.returning)} busy seconds/s are expected back"
    why = f"would do, but {expected} before a replica that is let go would have paid"
    return Sizing(
        replicas=wanted,
        reason=Reason.RETURNING,
        text=f"{text}; {smaller.replicas} {why}",
        rejected=(RejectedPlan(replicas=smaller.replicas, reason=why),),
    )


def _priced(view: View, memory: dict[str, float]) -> float:
    """The most that may be asked of a replica for the placement's sake so that the objective's share is kept.

    How much of the work is late because whole partitions do not divide depends on the load: it is nothing at one level
    and a lot at the next. The share is promised over time, so what counts is the mean over the loads of the last
    minutes. Of all rules that keep it, the one with the fewest replicas asks the same gain of every replica (the
    multiplier of the constrained problem). So it is remembered for each of some gains how many replicas there would be
    and how much would have been late with it, and the largest is used that would have kept the share and keeps it if
    the present goes on. Under a constant load that is the share at this load: nothing is saved up and spent in turns.
    """
    if view.config.slicing:
        return math.inf  # members divide partitions among themselves: the pool alone sizes
    ahead, level = view.forecast, view.forecast.level
    # Replicas are added for the first and given back for the second: in between there are as many as before.
    loads = (ahead.trend_peak, max(ahead.trend_peak, ahead.trend * DOWN_MARGIN + ahead.error))
    pools = [(_pool(view, load, 0.0, STAY)[0], load) for load in loads]
    total = sum(item.work for item in view.items)
    keep = math.exp(-max(0.0, view.now - memory.get("priced_at", view.now)) / PRICED_SECONDS)
    memory["priced_at"] = view.now
    memory["priced_work"] = round(memory.get("priced_work", 0.0) * keep + level, PRICED_DIGITS)
    # What has been as it is for so long is expected to go on for as long: what was saved up buys no smaller group that
    # has to grow again as soon as it is spent.
    onward = 0.0 if ahead.slope else ahead.window_seconds / view.config.decision_seconds
    permitted = (1.0 - view.config.objective_share) * (memory["priced_work"] + onward * level)
    # The least also where the share is missed with every one of them: a replica that brings nothing keeps no share.
    chosen = GAINS[-1]
    before, there = memory.get("wanted", float(view.replicas)), 0
    for gain in reversed(GAINS):
        before = memory.pop(f"with_{gain:g}", before)
        least, most = (_divided(view, pool, load, gain)[0] for pool, load in pools)
        held = max(least, min(round(before), most))
        if held != there:
            memory[f"with_{gain:g}"] = float(held)  # else as many as with the smaller gain
        there = held
        now = view.late(held, level / total) if total > 0 else 0.0
        late = round(memory.pop(f"late_{gain:g}", 0.0) * keep + now, PRICED_DIGITS)
        if late > 0:
            memory[f"late_{gain:g}"] = late
        if late + onward * now <= permitted:
            chosen = gain
    return chosen


def _patience_min(view: View) -> float:
    """D of a group that regrets nothing.

    A load that comes back is late until a replica is there again, except for what the trend foresees. To keep a replica
    for as long as it takes to start costs at most twice what one who knows the future pays (the break-even rule of
    renting and buying; as the delayed off of A. Gandhi et al., *AutoScale*, 2012); changed: what is foreseen does not
    count.
    """
    startup = view.estimate.startup_seconds
    return max(PATIENCE_SECONDS, PATIENCE_UNSEEN * (startup - reach_seconds(startup)))


def _patience(view: View, memory: dict[str, float]) -> float:
    """D now: it doubles with every regretted down and halves with every quiet minute."""
    least = _patience_min(view)
    patience = memory.get("patience", least)
    quiet = max(0.0, view.now - memory.get("regret_at", view.now))
    return max(least, patience * math.exp(-math.log(2.0) * quiet / PATIENCE_DECAY_SECONDS))


def _waiting(view: View, memory: dict[str, float]) -> float:
    """How long fewer must have been enough: D, or without a regret the less the longer the load has been falling."""
    patience, falling = _patience(view, memory), max(FALLING_SECONDS, FALLING_STARTUPS * view.estimate.startup_seconds)
    if patience > _patience_min(view) or view.forecast.slope >= 0.0:
        return patience
    return patience * max(0.0, 1.0 - view.forecast.window_seconds / falling)


def _before_up(view: View, memory: dict[str, float]) -> dict[str, float]:
    """What has to be known to judge later whether the replicas helped."""
    estimate = view.estimate
    saturated = estimate.backlog + estimate.late >= view.config.objective_seconds * view.capacity(view.replicas)
    return {
        "up_from": float(view.replicas),
        "up_rate": memory.get("done_rate", estimate.throughput),
        "up_saturated": float(saturated),
        "up_there_at": 0.0,
    }


def _watch_futile(view: View, memory: dict[str, float]) -> int:
    """As many as there were when the last of them brought no throughput, for some time after; 0: none such is known.

    Only where the group was saturated before and after, and every member has something to do: under other protocols
    than ours it takes seconds until a new one is given a partition.
    """
    estimate = view.estimate
    memory["done_rate"] = 0.7 * memory.get("done_rate", estimate.throughput) + 0.3 * estimate.throughput
    if view.now < memory.get("futile_until", 0.0):
        # A leader of an older version has left the time alone.
        return round(memory.get("futile_replicas", view.replicas))
    start = memory.get("up_from", 0.0)
    if not memory.get("up_saturated") or view.replicas <= start:
        return 0
    if not memory.get("up_there_at") and _all_own(view):
        memory["up_there_at"] = view.now
    if view.now - (memory.get("up_there_at") or view.now) < FUTILE_SETTLE_SECONDS:
        return 0
    memory["up_saturated"] = 0.0
    backlog = estimate.backlog + estimate.late
    if backlog < view.config.objective_seconds * view.capacity(view.replicas):
        memory.pop("futile_seconds", None)
        return 0
    should = memory["up_rate"] * (1.0 + FUTILE_SHARE * (view.replicas / start - 1.0))
    if memory["done_rate"] >= should:
        memory.pop("futile_seconds", None)
        return 0
    seconds = memory.get("futile_seconds", FUTILE_SECONDS)
    memory["futile_until"] = view.now + seconds
    memory["futile_seconds"] = min(2.0 * seconds, FUTILE_SECONDS_MAX)
    memory["futile_replicas"] = float(view.replicas)
    return view.replicas


def _all_own(view: View) -> bool:
    """Does every member own something, as far as there are partitions? What is on its way is nobody's yet."""
    members = view.replicas * view.members_per_replica
    owners = {item.owner for item in view.items if item.owner is not None and item.movable}
    return len(owners) >= min(members, len(view.items))


def _misfit(view: View, need: Need, replicas: int) -> str:
    if need.pool > replicas:
        return (
            f"gives {_number(view.capacity(replicas))} of the {_number(need.required)} busy seconds/s that are needed"
        )
    return "whole partitions do not divide well over them"


def _words(view: View, need: Need) -> str:
    """What comes, what it takes, and what replicas cannot help."""
    ahead, within = view.forecast, f"{view.config.objective_seconds:g} s"
    text = f"{_number(ahead.level)} busy seconds/s arrive"
    if ahead.ahead > ahead.level * 1.005:
        text += f", {_number(ahead.ahead)} expected in {ahead.horizon_seconds:.1f} s"
        text += " by the baseline" if ahead.source == "baseline" else ""
    if need.tau_seconds is None:
        text += f"; to keep up takes {_number(need.required)}"
    elif need.tau_seconds == 0:
        text += f"; to do a burst within {within} takes {_number(need.required)}"
    else:
        text += f"; to do what comes in {need.tau_seconds:g} s within {within} takes {_number(need.required)}"
    level, permitted = max(ahead.level, 1e-9), 1.0 - view.config.objective_share
    if need.replicas > need.pool:
        text += f"; with {need.pool} about {_percent(need.late_pool / level)} would be late, because whole partitions "
        text += f"divide badly, and the share permits {_percent(permitted)} over time"
    if need.at_max:
        text += f"; no more than {view.replicas_max} are allowed or have a partition"
    elif need.late > permitted * level:
        text += f"; about {_percent(need.late / level)} will be late, because whole partitions divide badly"
    serial = [str(item.partition) for item in view.items if item.serial]
    if serial:
        text += f"; too large for one member, so replicas cannot help: {listed(serial)}"
    return text


def _percent(share: float) -> str:
    """Of 0 .. 1: "12 %", "0.1 %"."""
    return f"{min(share, 1.0):.1%}".replace(".0%", "%").replace("%", " %")


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
