"""The leader's planner: one door in for what is heard, one decision out.

``observe -> estimate -> forecast -> decide -> place -> act``; the stages are in their own modules, one frozen value
between each (:mod:`.values`). The planner remembers what the next decision needs and writes it into every decision, so
that the next leader goes on where this one stopped. Nothing here does anything: plans are advice to owners, and the
shell asks the orchestrator.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import MovePlan
from loadtrim_agent.wire.telemetry_records import BaselineUse, DecisionRecord, ReportRecord

from .advice import Advice
from .baseline import UNUSABLE, Comparison, Expectation, Ignored, look_ahead, startup_seconds
from .estimate import estimate_of
from .explain import attribute, blind, explain, replicas_text, with_silent
from .forecast import forecast
from .inputs import DecisionInput, problem_of, unmeasured, view_of
from .no_fewer import no_fewer_unknown
from .observation import History
from .placement.problem import Packer, Problem
from .placement.sticky import Sticky
from .pods import are_of_two_templates, place_in_line
from .policy_state import PolicyState, read_state, written_state
from .rate_source import REPORTS, RateHistory, with_rates
from .settling import Settling, answer_seconds
from .sizing.policy import Future, Policy
from .sliced_group import left_to_plan
from .startups import Startups
from .values import (
    Estimate,
    Forecast,
    GroupState,
    NotReady,
    Outcome,
    Placement,
    PlanConfig,
    Reason,
    ReplicaTarget,
    Sizing,
    Unit,
    units_of,
)

__all__ = ["Planner", "replicas_bounded", "scale_request"]

SEQUENCE_MAX = 2**53
"""A decision with a higher sequence was not made by a leader: at one a second it took 300 million years. Chosen: whole
numbers up to it are exact in every reader of JSON, and none that follow leave the range of the records."""

UNREADABLE = "What an earlier leader's policy remembered could not be read, so the policy starts anew."
"""Follows the reason of the first decision after that."""


class _Measured(msgspec.Struct, frozen=True):
    """What was measured and what is expected."""

    estimate: Estimate
    forecast: Forecast
    baseline: BaselineUse | None


class _Seen(msgspec.Struct, frozen=True):
    """The leader sees these of the group itself, beside what the members tell."""

    rates: RateHistory
    startups: Startups = msgspec.field(default_factory=Startups)
    settling: Settling = msgspec.field(default_factory=Settling)

    def corrected(self, now: float, estimate: Estimate, group: GroupState, config: PlanConfig) -> Estimate:
        """Return the estimate with what is known better here than by the members."""
        startup = self.startups.seconds(estimate.startup_seconds, config)
        estimate = structs.replace(estimate, startup_seconds=startup)
        if group.rates is not None:
            estimate = with_rates(estimate, group.rates, self.rates)
        settling = self.settling.seconds(now, group, estimate.restoring_seconds, config.sla_seconds)
        return structs.replace(estimate, settling_seconds=settling) if settling else estimate


class Planner:
    """Deterministic state machine of one leader. Not thread-safe; needs no clock."""

    def __init__(self, config: PlanConfig, policy: Policy, packer: Packer, future: Future | None = None) -> None:
        """
        Args:
            config: what planning is set to; its ``parameters`` are those of the policy.
            policy: decides how many replicas, and when.
            packer: decides which member owns which partition.
            future: what will arrive, where that is known: a simulator may tell, a running group cannot.
        """
        self._config = config
        self._future = future
        self._policy = policy
        self._packer = packer
        self._counts = Sticky()
        self._history = History(config)
        self._seen = _Seen(RateHistory(config.monitor, config.decision_seconds))
        self._advice = Advice()
        self._sequence = 0
        self._state: PolicyState = policy.state()
        self._unreadable = False
        self._victims: tuple[str, ...] = ()
        self._compared = Comparison()
        self._unmeasured_since: float | None = None
        """Time of the first decision without a known load; None: there was none."""

    @property
    def history(self) -> History:
        """What the members told, for those who want to look."""
        return self._history

    def bound(self, replicas: int) -> None:
        """Have exactly so many from now on. Unlike with a brake, the policy is still asked who is placed, and how.

        For a simulator after its load has ended; ``replicas``: 1 or more.
        """
        self._config = structs.replace(self._config, min_replicas=replicas, max_replicas=replicas)

    def observe(self, report: ReportRecord, received_at: float, logged_at: float | None = None) -> None:
        """Take in a member's report: live, or replayed from telemetry by a new leader (the last 5 minutes will do).

        Args:
            report: one that was seen before (same member and sequence) is ignored.
            received_at: seconds since the epoch by the leader's clock; for a replayed one the broker's time.
            logged_at: the same by the clock that the report's slots follow, the broker's; None: ``received_at``.
        """
        self._history.observe(report, received_at, logged_at)

    def remember(self, decision: DecisionRecord) -> None:
        """Go on from a decision of an earlier leader: patience, cool-down, victims, sequence.

        Feed them in the order of the log. One that is older than what is known is ignored, as is one with a sequence
        that no leader reaches.
        """
        if not self._sequence <= decision.sequence <= SEQUENCE_MAX:
            return
        self._sequence = decision.sequence
        self._victims = decision.victims
        self._seen.rates.remember(decision)
        self._seen.startups.remember(decision.startup_seconds)
        if decision.baseline is not None and decision.baseline.reason_code != Ignored.MISSING:
            self._compared = Comparison.of(decision.baseline, decision.at)
        if decision.policy == self._config.policy:
            state = read_state(self._policy.state, decision.state)
            self._state, self._unreadable = state or self._policy.state(), state is None
        else:
            # Another policy's state says nothing to this one but what every policy remembers.
            self._state = structs.replace(self._policy.state(), wanted=_wanted_of(decision))
        if decision.scales != self._config.asks:
            # What nobody was asked for is no number that stands.
            self._state = structs.replace(self._state, wanted=None)

    def decide(self, now: float, group: GroupState) -> DecisionRecord:
        """Everything in one plan: replicas, moves, victims, what was rejected, and why.

        Args:
            now: seconds since the epoch by the leader's clock, not before the last one.
            group: as it is at this moment.

        Returns:
            The decision, also where nothing changes or nothing can be said. ``victims`` are members; whom to name to
            the orchestrator, and when, says :func:`scale_request`.
        """
        decision = self._decide(now, group)
        if self._unreadable:
            self._unreadable = False
            decision = _with(decision, reason=f"{decision.reason} {UNREADABLE}")
        return decision

    # -- stages

    def _decide(self, now: float, group: GroupState) -> DecisionRecord:
        self._sequence += 1
        units = [unit for unit in units_of(group) if not unit.leaving]
        measured = self._look(now, group)
        if isinstance(measured, NotReady):
            refusal = self._refusal(None, group, units)
            return self._hold(now, group, refusal, None) if refusal else self._level(now, group, measured)
        refusal = self._refusal(measured.estimate, group, units)
        if refusal is not None and refusal.reason is not Reason.BLIND:
            return self._hold(now, group, refusal, measured)
        inputs = DecisionInput.of(measured.estimate, group, self._config, measured.forecast.level)
        sizing = self._size(now, group, measured, inputs)
        if refusal is not None:
            # What is seen alone asks for more, and what is not seen can only add to it.
            if not self._asks_for_more(sizing):
                return self._hold(now, group, refusal, measured)
            sizing = structs.replace(sizing, place=False, text=f"{sizing.text}; {refusal.text}, so it may be more yet")
        before = self._wanted_before(group, len(units))
        most = replicas_bounded(before, group, self._config)  # another leader may have had other bounds
        sizing = no_fewer_unknown(sizing, most, measured.estimate, group)
        rollout = _is_rollout(group, self._config)
        if rollout:
            sizing = self._in_rollout(sizing, group, len(units))
        self._state = sizing.state
        resting = self._advice.resting(now, group)
        problem = problem_of(group, measured.estimate, inputs, sizing, self._config, resting)
        placement = self._place(problem, None if rollout else max(sizing.replicas, group.replicas_standing or 0))
        self._victims = placement.victims
        return self._act(now, group, measured, sizing, placement, before)

    def _wanted_before(self, group: GroupState, there: int) -> int:
        """Return the replicas that were wanted, else requested; where neither is known, those that are there."""
        return self._state.wanted if self._state.wanted is not None else (group.replicas_requested or there)

    def _in_rollout(self, sizing: Sizing, group: GroupState, there: int) -> Sizing:
        """Keep the replicas that were wanted, unless more are: until it is done the controllers end pods by template.

        What was wanted may be unknown. Then only more than there are, with the rollout's surplus, is wanted.
        """
        known = self._state.wanted if self._state.wanted is not None else group.replicas_requested
        known = known if known is None else _kept(known, group, self._config)
        base = known if known is not None else there
        # A policy that leaves the number alone sees the surplus, and one of a new template counts when it is done.
        more = sizing.replicas > base and (sizing.reason is not Reason.FIXED or self._fixed(group) is not None)
        if more or (sizing.replicas == known and sizing.reason not in (Reason.STABILIZING, Reason.RETURNING)):
            return structs.replace(sizing, text=f"{sizing.text}; a rollout is under way, so no pod is chosen to go")
        return structs.replace(
            sizing,
            replicas=base,
            reason=Reason.ROLLOUT,
            text=f"{sizing.text}; a rollout is under way, so it stays at {base} until that is done",
            rejected=(),
            state=structs.replace(self._state.interrupted(), wanted=known),
        )

    def _look(self, now: float, group: GroupState) -> _Measured | NotReady:
        """Observe, estimate, forecast."""
        self._seen.startups.look(now, group)
        observation = self._history.observation(now, group)
        estimate = estimate_of(observation, group, self._config)
        if isinstance(estimate, NotReady):
            return with_silent(estimate, observation, group)
        estimate = self._seen.corrected(now, estimate, group, self._config)
        expectation = self._expectation(now, estimate, group)
        horizon = answer_seconds(estimate.startup_seconds, estimate.restoring_seconds, self._config)
        within = self._config.sla_seconds
        ahead = forecast(estimate.series, horizon, expectation, estimate.opening, within, estimate.grain)
        return _Measured(estimate, ahead, expectation.use)

    def _expectation(self, now: float, estimate: Estimate, group: GroupState) -> Expectation:
        """Return what the history expects. Nothing rests on it: what breaks here leaves the plan to the trend."""
        startup = startup_seconds(estimate, group.startup_expected_seconds)
        try:
            expectation, self._compared = look_ahead(
                now, estimate, group.expected, self._compared, startup, self._config
            )
        except (ArithmeticError, LookupError, TypeError, ValueError):
            self._compared = Comparison()
            return UNUSABLE
        return expectation

    def _refusal(self, estimate: Estimate | None, group: GroupState, units: Sequence[Unit]) -> NotReady | None:
        """Why no plan may be made now, if so."""
        if group.manual_override is not None and group.manual_override.action == "hold":
            return NotReady(Reason.MANUAL_OVERRIDE, "held by the command line until resumed")
        if not units and group.unknown:
            return NotReady(Reason.NOT_READY, "no member has told its instance yet")
        if not units:
            return NotReady(Reason.NOBODY, "every member is leaving" if group.members else "the group has no member")
        if estimate is not None and estimate.stale:
            ages = {member: estimate.members[member].age_seconds for member in estimate.stale}
            return NotReady(Reason.BLIND, blind(ages, estimate.left_out, group))
        if estimate is not None and group.rates is None and self._config.monitor != REPORTS:
            return NotReady(Reason.BLIND, f"the monitor {self._config.monitor} does not tell what arrives")
        return None

    def _asks_for_more(self, sizing: Sizing) -> bool:
        return sizing.reason in (Reason.NEEDS_MORE, Reason.PLACEMENT) and sizing.replicas > (self._state.wanted or 0)

    def _size(self, now: float, group: GroupState, measured: _Measured, inputs: DecisionInput) -> Sizing:
        if fixed := self._fixed(group):
            replicas, text = fixed
            state = structs.replace(self._state, wanted=replicas)
            return Sizing(replicas=replicas, reason=Reason.FIXED, text=text, state=state)
        estimate, ahead = measured.estimate, measured.forecast
        view = view_of(now, group, estimate, inputs, ahead, self._config, self._packer, self._future)
        return self._policy.decide(view, self._state)

    def _fixed(self, group: GroupState) -> tuple[int, str] | None:
        """Return the replicas that the command line fixed, within the bounds, and how to say so; None: it did not."""
        manual_override = group.manual_override
        if manual_override is None or manual_override.action != "scale" or manual_override.replicas is None:
            return None
        replicas = replicas_bounded(manual_override.replicas, group, self._config)
        text = "fixed by the command line until resumed"
        if replicas < manual_override.replicas:
            text += f"; {manual_override.replicas} were asked for, {_upper_bound(replicas, self._config)}"
        elif replicas > manual_override.replicas:
            text += f"; {manual_override.replicas} were asked for, LOADTRIM_MIN_REPLICAS is {replicas}"
        return replicas, text

    def _asked(self, now: float, group: GroupState) -> tuple[int, str] | None:
        """Return the replicas that are asked for though no load is known, and why; None: nothing is asked for.

        The least number of the settings is asked for after the time of a start. Until then the orchestrator may be
        starting more, which a request for fewer would end. So is the most, as long as more are there.
        """
        if fixed := self._fixed(group):
            return fixed
        if self._unmeasured_since is None:
            self._unmeasured_since = now
        actual = sum(1 for unit in units_of(group) if not unit.leaving)
        bounded = replicas_bounded(actual, group, self._config)
        if now - self._unmeasured_since < self._config.startup_seconds:
            return None
        if self._config.max_replicas is not None and bounded < actual:
            return bounded, f"{bounded} are the most that the settings allow (LOADTRIM_MAX_REPLICAS)"
        if self._state.wanted is None and bounded > actual:
            return bounded, f"{bounded} are the fewest that the settings allow (LOADTRIM_MIN_REPLICAS)"
        return None

    def _place(self, problem: Problem, staying: int | None, *, by_number: bool = False) -> Placement:
        """Place the partitions; ``staying``: how many instances may stay. None: all."""
        active = self._config.mode == "active"
        problem = structs.replace(
            problem, replicas=staying if active and self._config.can_scale else None, victims=self._victims
        )
        return (self._packer if active and not by_number else self._counts).pack(problem)

    # -- values out

    def _hold(self, now: float, group: GroupState, why: NotReady, measured: _Measured | None) -> DecisionRecord:
        actual = sum(1 for unit in units_of(group) if not unit.leaving)
        # What drains goes on draining, but nobody new is picked.
        self._victims = tuple(member for member in self._victims if member in group.members)
        # Time that was not seen is no quiet time: the stabilization window begins anew (I7, blind means hold).
        self._state = self._state.interrupted()
        wanted = actual if self._state.wanted is None else replicas_bounded(self._state.wanted, group, self._config)
        return _with(
            self._record(now, group, measured),
            outcome=Outcome.HOLD.value,
            reason_code=why.reason.value,
            reason=f"Hold at {replicas_text(wanted, actual)}: {why.text}.",
            replicas_actual=actual,
            replicas_wanted=wanted,
            victims=self._victims if why.reason is not Reason.MANUAL_OVERRIDE else (),
        )

    def _level(self, now: float, group: GroupState, why: NotReady) -> DecisionRecord:
        """No load is known yet: members get their share of the partitions by number.

        Replicas are those that the command line or the settings ask for. Where these are fewer than there are, the
        others drain; else nobody new is picked, and what drains is given nothing.
        """
        units = [unit for unit in units_of(group) if not unit.leaving]
        before = self._wanted_before(group, len(units))
        rollout = _is_rollout(group, self._config)
        asked = None if rollout else self._asked(now, group)
        staying = max(1, sum(1 for unit in units if not set(self._victims).issuperset(unit.members)))
        if asked is not None:
            staying, text = asked
            self._state = structs.replace(self._state, wanted=staying)
            why = structs.replace(why, text=f"{why.text}; {text}")
        resting = self._advice.resting(now, group)
        pods = {"numbered": self._config.numbered, "templated": self._config.templated}
        problem = structs.replace(unmeasured(group, resting), **pods)
        may_stay = max(staying, group.replicas_standing or 0)
        placement = self._place(problem, None if rollout else may_stay, by_number=True)
        self._victims = placement.victims
        moves = _advice_of(placement, group)
        self._advised(moves, group)
        if moves:
            why = structs.replace(why, text=f"{why.text}; until then partitions are spread by number")
        held = _with(self._hold(now, group, why, None), moves=moves)
        if asked is None or not placement.victims:
            return held
        return _with(
            held,
            outcome=_outcome(staying, before, bool(moves)).value,
            reason=f"{replicas_text(staying, len(units))}: {why.text}.",
        )

    def _advised(self, moves: Sequence[MovePlan], group: GroupState) -> None:
        self._advice.advised(moves, group.generation)
        self._history.advised(Partition(move.topic, move.partition) for move in moves)

    def _act(
        self,
        now: float,
        group: GroupState,
        measured: _Measured,
        sizing: Sizing,
        placement: Placement,
        before: int,
    ) -> DecisionRecord:
        silent = frozenset(member for member, estimate in measured.estimate.members.items() if estimate.silent)
        moves = _advice_of(placement, group, silent)
        if measured.estimate.slicing:
            moves = left_to_plan(moves, placement.victims, group, measured.estimate.partitions)
        self._advised(moves, group)
        actual = sum(1 for unit in units_of(group) if not unit.leaving)
        outcome = _outcome(sizing.replicas, before, bool(moves))
        return _with(
            self._record(now, group, measured),
            outcome=outcome.value,
            reason_code=sizing.reason.value,
            reason=explain(sizing, placement, moves, group, self._config, measured.baseline, measured.estimate),
            replicas_actual=actual,
            replicas_wanted=sizing.replicas,
            moves=moves,
            victims=placement.victims,
            members_opened=placement.opened,
            members_bound=placement.bound,
            rejected=sizing.rejected,
            late=attribute(measured.estimate, placement, actual, sizing.replicas, asks=self._config.asks),
        )

    def _record(self, now: float, group: GroupState, measured: _Measured | None) -> DecisionRecord:
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
            objective_seconds=config.sla_seconds,
            objective_share=config.sla_share,
            policy=config.policy,
            packer=config.packer,
            monitor=config.monitor,
            mode=config.mode,
            scales=config.asks,
            replicas_max=config.max_replicas,
            partition_count=len(group.owners),
            manual_override=group.manual_override
            if group.manual_override is not None and group.manual_override.action != "resume"
            else None,
            state=written_state(self._state),
        )
        if measured is None:
            return record
        estimate = measured.estimate
        return _with(
            record,
            members={member: round(entry.utilization, 3) for member, entry in sorted(estimate.members.items())},
            # As steady as the level: what came in the last seconds is by chance none where records are few.
            rate=round(measured.forecast.arriving / estimate.cost if estimate.cost > 0.0 else estimate.rate, 3),
            work=round(measured.forecast.arriving, 4),
            forecast=round(measured.forecast.ahead, 4),
            baseline=measured.baseline,
            backlog=round(estimate.backlog + estimate.late, 4),
            startup_seconds=round(estimate.startup_seconds, 3),
            handoff_seconds=round(estimate.handoff_seconds, 4),
            untold=dict(estimate.untold),
            slicing=estimate.slicing,
            unsliced=dict(estimate.unsliced),
        )


def _is_rollout(group: GroupState, config: PlanConfig) -> bool:
    return are_of_two_templates((instance or "" for instance in group.instances.values()), config.templated)


def _kept(wanted: int, group: GroupState, config: PlanConfig) -> int:
    """Return as many as were wanted, in a rollout: above what the settings allow only as many as are there."""
    return min(wanted, max(replicas_bounded(wanted, group, config), len(units_of(group))))


def replicas_bounded(replicas: int, group: GroupState, config: PlanConfig) -> int:
    """Return the number within the bounds of the settings; without a maximum, within what partitions there are for.

    Whatever a number rests on (load, the command line, the memory of an earlier leader), it passes here. Only what the
    command line forces is not bounded.
    """
    if (manual_override := group.manual_override) is not None and manual_override.forced:
        return max(1, replicas)
    most = config.max_replicas if config.max_replicas is not None else len(group.owners) or replicas
    return max(1, min(max(replicas, min(config.min_replicas, most)), most))


def _upper_bound(replicas: int, config: PlanConfig) -> str:
    if config.max_replicas is not None:
        return f"LOADTRIM_MAX_REPLICAS is {config.max_replicas}"
    return f"and there {'are' if replicas > 1 else 'is'} {replicas} partition{'s' if replicas > 1 else ''}"


def scale_request(decision: DecisionRecord, group: GroupState, config: PlanConfig) -> ReplicaTarget:
    """What to ask the orchestrator for now, from the last decision and the owners as they are.

    Victims that still own something are not named yet, and count as wanted until they are: asking for fewer before
    would let the orchestrator pick somebody who still works. An instance with several members is named when all of
    them are victims and own nothing. A decision that holds never asks for fewer than there are (I7); one that holds
    because nothing is known yet asks for nothing at all (``ask`` is False). Members that are there, and victims that
    drain, are the only ones that are asked for above the bounds (:func:`replicas_bounded`). Of a StatefulSet no victim
    is named while one of a higher number drains, which would go in its place.

    A group that is held by hand asks for nothing, and withdraws what it has asked for: what is done by hand then is
    not undone. So does one in which every member is leaving: somebody stops it.

    A member whose instance is not known may be an instance of its own, or a member of a victim. Then no victim is
    named, and only more than there can be is asked for. In a rollout what is wanted is asked for, whatever is there:
    the surplus is the controllers', and asking for it would make it last. A decision that holds asks for nothing then.
    """
    if decision.outcome == Outcome.HOLD.value and decision.reason_code in _WITHDRAWN:
        replicas = max(1, decision.replicas_actual)
        return ReplicaTarget(replicas=replicas, victims=(), reason=decision.reason, ask=False, withdrawn=True)
    if _is_rollout(group, config):
        known = _wanted_of(decision)
        return ReplicaTarget(
            replicas=max(1, _kept(known or 1, group, config)),
            victims=(),
            reason=decision.reason,
            ask=known is not None and decision.outcome != Outcome.HOLD.value,
            rollout=True,
        )
    wanted = replicas_bounded(decision.replicas_wanted, group, config)
    if unknown := group.unknown:
        there = len(units_of(group)) + len(unknown)
        ask = wanted > there and (decision.outcome != Outcome.HOLD.value or _wanted_of(decision) is not None)
        return ReplicaTarget(replicas=wanted, victims=(), reason=decision.reason, ask=ask)
    if decision.outcome == Outcome.HOLD.value:
        return ReplicaTarget(
            replicas=max(wanted, decision.replicas_actual),
            victims=(),
            reason=decision.reason,
            ask=_wanted_of(decision) is not None,
        )
    owners = {owner for owner in group.owners.values() if owner is not None} | set(group.in_flight.values())
    going = [unit for unit in units_of(group) if all(member in decision.victims for member in unit.members)]
    drains = {unit.instance for unit in going if not owners.isdisjoint(unit.members)}
    if config.numbered and drains:
        first = max(place_in_line(instance, config.numbered) for instance in drains)
        drains |= {unit.instance for unit in going if place_in_line(unit.instance, config.numbered) < first}
    named = tuple(unit.instance for unit in going if unit.instance not in drains)
    replicas = wanted + len(going) - len(named)
    return ReplicaTarget(replicas=replicas, settled=wanted, victims=named, reason=decision.reason)


_WITHDRAWN = frozenset({Reason.MANUAL_OVERRIDE.value, Reason.NOBODY.value})
"""Reasons to hold that leave the number of replicas to others."""


def _wanted_of(decision: DecisionRecord) -> int | None:
    """Return how many replicas its policy wanted; None: it had not decided yet, or that cannot be read."""
    state = read_state(PolicyState, decision.state)
    return None if state is None else state.wanted


def _advice_of(placement: Placement, group: GroupState, silent: frozenset[str] = frozenset()) -> tuple[MovePlan, ...]:
    """Moves between members that are there. Not every packer looks at who reports."""
    return tuple(
        MovePlan(
            topic=move.partition.topic,
            partition=move.partition.partition,
            source=move.source,
            target=move.target,
            reason=move.reason,
        )
        for move in placement.moves
        if move.source is not None and move.source in group.members and move.target not in silent
    )


def _outcome(wanted: int, before: int, moves: bool) -> Outcome:
    if wanted != before:
        return Outcome.UP if wanted > before else Outcome.DOWN
    return Outcome.MOVE if moves else Outcome.NONE


def _with(record: DecisionRecord, **changes: object) -> DecisionRecord:
    return structs.replace(record, **changes)
