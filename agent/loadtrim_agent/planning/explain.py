"""Decisions in words, and late records by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from loadtrim_agent.common.member_names import member_names, short_member
from loadtrim_agent.wire.ownership_records import MovePlan
from loadtrim_agent.wire.telemetry_records import BaselineUse

from .observed import Observation
from .values import (
    Estimate,
    GroupState,
    Moving,
    NotReady,
    Placement,
    PlanConfig,
    Reason,
    Sizing,
    units_of,
)

__all__ = ["NAMES_MAX", "attribute", "blind", "explain", "format_list", "replicas_text", "with_silent"]

QUEUED = "queued"
"""What a member says of a record that waited for other partitions' records: it cannot know why nobody else had them."""
NAMES_MAX = 3
_LEFT_OUT = {
    "slot_time": "what they tell is minutes from the broker's clock; look at the clock of its host",
    "slot_length": "they count in slots of another length; let all members have one version",
}
MISSING = "missing"
"""Code of a topic that has no baseline (:class:`.baseline.Ignored`)."""
STILL = Moving(in_hand_seconds=0.0)


def format_list(names: Sequence[str]) -> str:
    """Names in a sentence: "a", "a and b", "a, b, c and 4 others"."""
    if len(names) > NAMES_MAX:
        others = len(names) - NAMES_MAX
        return f"{', '.join(names[:NAMES_MAX])} and {others} other{'s' if others != 1 else ''}"
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def replicas_text(wanted: int, there: int) -> str:
    """Return a number of replicas, and how many are there where that differs: "4 replicas (3 there)"."""
    count = f"{wanted} replica{'s' if wanted != 1 else ''}"
    return count if wanted == there else f"{count} ({there} there)"


def explain(
    sizing: Sizing,
    placement: Placement,
    moves: Sequence[MovePlan],
    group: GroupState,
    config: PlanConfig,
    baseline: BaselineUse | None = None,
    moving: Moving = STILL,
) -> str:
    """One English sentence: "4 replicas (3 there): 2.9 busy seconds/s arrive, ...; 2 partitions move (...)."."""
    units = units_of(group)
    there = sum(1 for unit in units if not unit.leaving)
    parts = [f"{replicas_text(sizing.replicas, there)}: {sizing.text}"]
    least = -(-placement.bound // max((len(unit.members) for unit in units), default=1))
    if not moving.slicing and _adds(least, sizing):
        parts.append(f"no fewer than {least} could do")
    if (standing := group.replicas_standing or 0) > sizing.replicas:
        parts.append(f"{standing} replicas stand that somebody else set, so as many work on")
    if placement.victims:
        # Whole instances go.
        going = {group.members[m].instance or short_member(m) for m in placement.victims if m in group.members}
        parts.append(f"{format_list(sorted(going))} to go")
    if moving.unsliced:
        names = member_names(group.instances)
        who = format_list([f"{names[member]} ({why})" for member, why in sorted(moving.unsliced.items())])
        parts.append(f"sized for whole partitions, for not all pass them on: not {who}")
    if unknown := len(group.unknown):
        parts.append(f"{unknown} member{'s have' if unknown > 1 else ' has'} not told the instance yet")
    if moves:
        reasons = sorted({move.reason for move in moves})
        why = f" ({reasons[0]})" if len(reasons) == 1 and reasons[0] else ""
        parts.append(f"{len(moves)} partition{'s' if len(moves) != 1 else ''} to move{why}")
    if baseline is not None and baseline.reason:
        parts.append(_objection(baseline))
    if sizing.replicas != there:
        if config.mode == "shadow":
            parts.append("shadow mode, so nothing is scaled")
        elif not config.can_scale:
            parts.append("no scaler is set, so this is advice only")
    return "; ".join(parts) + "."


def _objection(use: BaselineUse) -> str:
    """Return what speaks against baselines. Of one that is used only a part may count, which does not ignore it."""
    if not use.used:
        return f"the baseline is ignored ({use.reason})"
    # Topics without a baseline have no reason to be told.
    some = any(why != MISSING for why in use.ignored.values())
    return f"{'some baselines are ignored' if some else 'the baseline counts in part'} ({use.reason})"


def _adds(least: int, sizing: Sizing) -> bool:
    """Does the fewest replicas that whole partitions could fit say more than the policy did?

    Not where fewer have just been said to do: a policy may leave a group as it is that is a little fuller than a
    placement is made for.
    """
    if sizing.reason in (Reason.STABILIZING, Reason.RETURNING, Reason.POSTPONED):
        return False
    return 1 < least <= sizing.replicas or (least > sizing.replicas and sizing.reason is Reason.AT_MAX)


def blind(ages: Mapping[str, float | None], left_out: Mapping[str, str], group: GroupState) -> str:
    """Name those that have not reported, and for how long: "no report from pod-3 for 4.2 s"; or why reports count for
    nothing.

    Args:
        ages: member -> seconds since its last report; None: it never told. At least one.
        left_out: member -> reason why its reports count for nothing.
        group: as it is.
    """
    first = next(iter(ages))
    names = member_names(group.instances)
    if why := left_out.get(first):
        return f"the reports of {names[first]} count for nothing: {_LEFT_OUT[why]}"
    age = ages[first]
    who = format_list([names[member] for member in ages])
    return f"no report from {who} {f'for {age:.1f} s' if age is not None else 'yet'}"


def with_silent(why: NotReady, observation: Observation, group: GroupState) -> NotReady:
    """Return why nothing can be said, with the owners whose reports are missing."""
    if not observation.stale:
        return why
    return structs.replace(why, text=f"{why.text}; {blind(dict(observation.stale), observation.left_out, group)}")


def attribute(
    estimate: Estimate, placement: Placement, actual: int, wanted: int, *, asks: bool = True
) -> dict[str, int]:
    """Late records by cause.

    What members call *queued* waited because the capacity was not in the right place:

    * a replica is on its way (``startup``);
    * nobody is asked for the replicas that are wanted (``unasked``);
    * whole partitions do not fit better (``placement``);
    * more came than was expected (``forecast``).

    Args:
        estimate: of the group.
        placement: of its partitions.
        actual: replicas that are there.
        wanted: replicas that are wanted.
        asks: the orchestrator is asked for what is wanted.
    """
    result: dict[str, int] = {}
    fewer = "startup" if asks else "unasked"
    for cause, count in sorted(estimate.late_records.items()):
        named = cause
        if cause == QUEUED:
            named = fewer if wanted > actual else "placement" if placement.misfits else "forecast"
        result[named] = result.get(named, 0) + count
    return result
