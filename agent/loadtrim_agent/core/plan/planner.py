"""The leader's planner: one door in for what is heard, one decision out.

``observe -> estimate -> forecast -> decide -> place -> act``; the stages are in their own modules, one frozen value
between each (:mod:`.values`). The planner remembers what the next decision needs and writes it into every decision, so
that the next leader goes on where this one stopped. Nothing here does anything: plans are advice to owners, and the
shell asks the orchestrator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..records import DecisionRecord, MovePlan, RejectedPlan, ReportRecord
from .estimate import estimate
from .forecast import forecast
from .observe import History
from .packers import make_packer
from .packers.problem import Bin, Item, Limits, Problem, divide
from .packers.sticky import Sticky
from .policies import View, make_policy
from .values import (
    Estimate,
    Forecast,
    GroupState,
    NotReady,
    Outcome,
    Placement,
    PlanConfig,
    Reason,
    ScaleRequest,
    Sizing,
    Unit,
    units_of,
)
from .words import attribute, sentence

__all__ = ["Planner", "scale_request"]


@dataclass(frozen=True, slots=True)
class _Picture:
    """What was measured and what is expected."""

    estimate: Estimate
    forecast: Forecast


class Planner:
    """Deterministic state machine of one leader. Not thread-safe; needs no clock."""

    def __init__(self, config: PlanConfig) -> None:
        """
        Raises:
            UnknownNameError: no policy or packer has that name.
        """
        self._config = config
        self._policy = make_policy(config.policy)
        self._packer = make_packer(config.packer)
        self._sticky = Sticky()
        self._history = History(config)
        self._sequence = 0
        self._memory: dict[str, float] = {}
        self._victims: tuple[str, ...] = ()

    @property
    def history(self) -> History:
        return self._history

    def observe(self, report: ReportRecord, received_at: float) -> None:
        """Take in a member's report: live, or replayed from telemetry by a new leader (the last 5 minutes will do).

        Args:
            report: seen before (same member and sequence): ignored.
            received_at: seconds since the epoch by the leader's clock; for a replayed one the broker's time.
        """
        self._history.observe(report, received_at)

    def remember(self, decision: DecisionRecord) -> None:
        """Go on from a decision of an earlier leader: patience, cool-down, victims, sequence. An older one is ignored."""
        if (decision.generation, decision.sequence) < (-1, self._sequence):
            return
        if decision.sequence < self._sequence:
            return
        self._sequence = decision.sequence
        self._victims = decision.victims
        if decision.policy == self._config.policy and decision.state:
            self._memory = dict(decision.state)

    def decide(self, now: float, group: GroupState) -> DecisionRecord:
        """Everything in one plan: replicas, moves, victims, what was rejected, and why.

        Args:
            now: seconds since the epoch by the leader's clock, not before the last one.
            group: as it is at this moment.

        Returns:
            The decision, also where nothing changes or nothing can be said. ``victims`` are members; whom to name to
            the orchestrator, and when, says :func:`scale_request`.
        """
        self._sequence += 1
        # Taken every time, so that what a hold skips is not counted with a later decision.
        picture = self._look(now, group)
        units = [unit for unit in units_of(group) if not unit.leaving]
        refusal = self._refusal(picture, group, units)
        if isinstance(picture, NotReady):
            return self._hold(now, group, picture, None)
        sizing = self._size(now, group, picture, units)
        if refusal is not None and not (refusal.reason is Reason.BLIND and self._surely_up(sizing)):
            return self._hold(now, group, refusal, picture)
        if refusal is not None:
            sizing = replace(sizing, place=False, text=f"{sizing.text}; {refusal.text}, so the need may be larger yet")
        self._memory = dict(sizing.memory)
        placement = self._place(group, picture.estimate, sizing)
        self._victims = placement.victims
        return self._act(now, group, picture, sizing, placement, units)

    # -- stages

    def _look(self, now: float, group: GroupState) -> _Picture | NotReady:
        """Observe, estimate, forecast."""
        seen = estimate(self._history.observation(now, group), group, self._config)
        if isinstance(seen, NotReady):
            return seen
        horizon = seen.startup_seconds + self._config.decision_seconds + 1.0
        # The baselines' place: what the history expects at the horizon, scaled by today.
        return _Picture(seen, forecast(seen.series, horizon, baseline=None))

    def _refusal(self, picture: _Picture | NotReady, group: GroupState, units: list[Unit]) -> NotReady | None:
        """Why no plan may be made now, if so."""
        if group.brake is not None and group.brake.action == "hold":
            return NotReady(Reason.BRAKE, "held by the command line until resumed")
        if not units:
            return NotReady(Reason.NOBODY, "every member is leaving" if group.members else "the group has no member")
        if isinstance(picture, _Picture) and picture.estimate.stale:
            stale = picture.estimate.stale
            age = picture.estimate.members[stale[0]].age_seconds
            since = f"for {age:.1f} s" if age is not None else "yet"
            others = f" and {len(stale) - 1} others" if len(stale) > 1 else ""
            return NotReady(Reason.BLIND, f"no report from {stale[0]}{others} {since}")
        return picture if isinstance(picture, NotReady) else None

    def _surely_up(self, sizing: Sizing) -> bool:
        """More is needed by what is seen alone; what is not seen can only add to it."""
        return sizing.reason in (Reason.NEEDS_MORE, Reason.PLACEMENT) and sizing.replicas > self._wanted(0)

    def _wanted(self, otherwise: int) -> int:
        return round(self._memory.get("wanted", otherwise))

    def _size(self, now: float, group: GroupState, picture: _Picture, units: list[Unit]) -> Sizing:
        brake = group.brake
        if brake is not None and brake.action == "scale" and brake.replicas is not None:
            memory = self._memory | {"wanted": float(brake.replicas)}
            return Sizing(
                replicas=brake.replicas, reason=Reason.FIXED, text="fixed by the command line", memory=memory
            )
        return self._policy.decide(_view(now, group, picture, self._config, units, self._memory, self._victims))

    def _place(self, group: GroupState, seen: Estimate, sizing: Sizing) -> Placement:
        problem = Problem(
            items=_items(seen, sizing.load_factor, group),
            bins=_bins(group, seen),
            limits=_limits(seen, self._config),
            replicas=sizing.replicas if self._config.can_scale and self._config.mode == "active" else None,
            victims=self._victims,
            leader=group.leader,
            may_move=sizing.place,
            fill=sizing.fill,
            extra_lag_seconds=sizing.extra_lag_seconds,
        )
        packer = self._packer if self._config.mode == "active" else self._sticky
        return packer.pack(problem)

    # -- values out

    def _hold(self, now: float, group: GroupState, why: NotReady, picture: _Picture | None) -> DecisionRecord:
        actual = sum(1 for unit in units_of(group) if not unit.leaving)
        record = self._record(now, group, picture)
        # What was going on goes on: a hold neither names nor spares anybody new.
        self._victims = tuple(member for member in self._victims if member in group.members)
        wanted = self._wanted(actual)
        return _replace(
            record,
            outcome=Outcome.HOLD.value,
            reason_code=why.reason.value,
            reason=f"Hold at {wanted} replica{'s' if wanted != 1 else ''}: {why.text}.",
            replicas_actual=actual,
            replicas_wanted=wanted,
            victims=self._victims if why.reason is not Reason.BRAKE else (),
        )

    def _act(
        self,
        now: float,
        group: GroupState,
        picture: _Picture,
        sizing: Sizing,
        placement: Placement,
        units: list[Unit],
    ) -> DecisionRecord:
        moves = tuple(
            MovePlan(
                topic=move.partition.topic,
                partition=move.partition.partition,
                source=move.source,
                target=move.target,
                reason=move.reason,
            )
            for move in placement.moves
            if move.source is not None and move.source in group.members
        )
        before = group.replicas_requested if group.replicas_requested is not None else len(units)
        outcome = _outcome(sizing.replicas, before, bool(moves))
        return _replace(
            self._record(now, group, picture),
            outcome=outcome.value,
            reason_code=sizing.reason.value,
            reason=sentence(sizing, placement, len(moves), outcome, self._config),
            replicas_actual=len(units),
            replicas_wanted=sizing.replicas,
            moves=moves,
            victims=placement.victims,
            rejected=sizing.rejected,
            late=attribute(picture.estimate, placement, len(units), sizing.replicas),
        )

    def _record(self, now: float, group: GroupState, picture: _Picture | None) -> DecisionRecord:
        """What every decision says."""
        config = self._config
        record = DecisionRecord(
            group=config.group,
            member=group.leader,
            at=now,
            generation=group.generation,
            sequence=self._sequence,
            outcome=Outcome.HOLD.value,
            reason="",
            objective_seconds=config.objective_seconds,
            objective_share=config.objective_share,
            policy=config.policy,
            packer=config.packer,
            mode=config.mode,
            brake=group.brake if group.brake is not None and group.brake.action != "resume" else None,
            state=dict(sorted(self._memory.items())),
        )
        if picture is None:
            return record
        seen = picture.estimate
        return _replace(
            record,
            members={member: round(entry.utilization, 3) for member, entry in sorted(seen.members.items())},
            rate=round(seen.rate, 3),
            work=round(picture.forecast.level, 4),
            forecast=round(picture.forecast.ahead, 4),
            backlog=round(seen.backlog + seen.late, 4),
            startup_seconds=round(seen.startup_seconds, 3),
            handoff_seconds=round(seen.handoff_seconds, 4),
        )


def scale_request(decision: DecisionRecord, group: GroupState) -> ScaleRequest:
    """What to ask the orchestrator for now, from the last decision and the owners as they are.

    Victims that still own something are not named yet, and count as wanted until they are: asking for fewer before
    would let the orchestrator pick somebody who still works. An instance with several members is named when all of
    them are victims and own nothing.
    """
    owners = {owner for owner in group.owners.values() if owner is not None} | set(group.in_flight.values())
    named, draining = [], 0
    for unit in units_of(group):
        if all(member in decision.victims for member in unit.members):
            if owners.isdisjoint(unit.members):
                named.append(unit.instance)
            else:
                draining += 1
    return ScaleRequest(
        replicas=decision.replicas_wanted + draining, victims=tuple(sorted(named)), reason=decision.reason
    )


def _outcome(wanted: int, before: int, moves: bool) -> Outcome:
    if wanted != before:
        return Outcome.UP if wanted > before else Outcome.DOWN
    return Outcome.MOVE if moves else Outcome.NONE


def _replace(record: DecisionRecord, **changes: object) -> DecisionRecord:
    import msgspec

    return msgspec.structs.replace(record, **changes)


def _limits(seen: Estimate, config: PlanConfig) -> Limits:
    return Limits(
        objective_seconds=config.objective_seconds,
        overhead_seconds=seen.overhead_seconds,
        z=config.z,
        correlation=seen.correlation,
        handoff_seconds=seen.handoff_seconds,
    )


def _bins(group: GroupState, seen: Estimate) -> tuple[Bin, ...]:
    return tuple(
        Bin(
            member=member,
            unit=group.members[member].instance or member,
            capacity=seen.members[member].capacity,
            topics=group.members[member].topics,
            leaving=group.members[member].leaving,
        )
        for member in sorted(group.members)
    )


def _items(seen: Estimate, factor: float, group: GroupState) -> tuple[Item, ...]:
    """Partitions as the packers want them, at ``factor`` times the present load; unsized ones weigh nothing."""
    return tuple(
        Item(
            partition=partition,
            owner=entry.owner,
            work=entry.work * factor,
            mean=tuple(entry.standing + mean * factor for mean in entry.curve.mean),
            sd=tuple(sd * factor for sd in entry.curve.sd),
            queue=entry.lag * entry.cost,
            rate=entry.rate_last if entry.sized else 0.0,
            lag=entry.lag if entry.sized else 0,
            cost=entry.cost,
            serial=entry.serial,
            movable=partition not in group.in_flight,
        )
        for partition, entry in sorted(seen.partitions.items())
    )


def _view(
    now: float,
    group: GroupState,
    picture: _Picture,
    config: PlanConfig,
    units: list[Unit],
    memory: Mapping[str, float],
    victims: tuple[str, ...],
) -> View:
    seen = picture.estimate
    items = tuple(item for item in _items(seen, 1.0, group) if seen.partitions[item.partition].sized)
    per_unit = max(1, round(sum(len(unit.members) for unit in units) / len(units))) if units else 1
    # Those that are to go already come last, then the weakest: what n instances can do is what the n best can.
    staying = sorted(
        units,
        key=lambda unit: (
            any(member in victims for member in unit.members),
            -sum(seen.members[member].capacity for member in unit.members),
            unit.instance,
        ),
    )
    there = [[seen.members[member].capacity for member in unit.members] for unit in staying]
    typical = [seen.capacity_typical] * per_unit
    limits = _limits(seen, config)
    cache: dict[tuple[int, float], float] = {}

    def members_of(replicas: int) -> list[float]:
        added = [typical] * max(0, replicas - len(there))
        return [capacity for unit in (*there[:replicas], *added) for capacity in unit]

    def late(replicas: int, factor: float) -> float:
        key = (replicas, factor)
        if key not in cache:
            scaled = [_scaled(item, factor, seen.partitions[item.partition].standing) for item in items]
            cache[key] = divide(scaled, members_of(replicas), limits)
        return cache[key]

    partitions_max = max(1, -(-len(group.owners) // per_unit))
    configured = config.max_replicas if config.max_replicas is not None else partitions_max
    return View(
        now=now,
        config=config,
        estimate=seen,
        forecast=picture.forecast,
        items=items,
        replicas=max(1, len(units)),
        members_per_replica=per_unit,
        replicas_max=max(1, min(configured, partitions_max)),
        capacity=lambda replicas: sum(members_of(replicas)),
        late=late,
        memory=memory,
    )


def _scaled(item: Item, factor: float, standing: float) -> Item:
    return replace(
        item,
        work=item.work * factor,
        mean=tuple(standing + (mean - standing) * factor for mean in item.mean),
        sd=tuple(sd * factor for sd in item.sd),
    )


_ = RejectedPlan
