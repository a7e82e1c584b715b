"""One run: a load, a group and its leader, second by second in virtual time.

What is real: :class:`~loadtrim_agent.planning.planner.Planner`, a
:class:`~loadtrim_agent.metering.meter.Meter` per member, its reports and when they are heard, the rhythm of reports
and decisions. What is a model: records that arrive and wait, a member's work on the oldest head first
(:mod:`.worker`), how partitions change hands (:mod:`.handoff`), and an orchestrator that starts and stops what it is
asked to. Membership is taken for granted: leaders do not change and nobody crashes.

What is counted ends with the load: replicas, scalings, moves and rebalances. What is played beyond it (the drain)
decides which of the records that arrived were in time, and nothing else. The group is held for it at the size that was
wanted then: a replica that was asked for still comes, no other does, and partitions go on moving.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from loadtrim_agent.common.checks import is_count, within
from loadtrim_agent.common.local_week import LocalWeek
from loadtrim_agent.metering.readings import GATHER_SECONDS, REPORTS_SPREAD
from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.published.rate_sources import RateSourceName, rate_source_of
from loadtrim_agent.planning.registry import make_planner, make_policy
from loadtrim_agent.planning.sizing.policy import Future, UnmeasuredError
from loadtrim_agent.planning.slicing import SlicingOff
from loadtrim_agent.planning.values import DECISION_PHASE, GroupState, MemberState, PlanConfig
from loadtrim_agent.wire.baseline_records import BaselineRecord, Baselines
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord, MovePlan
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

from ..loads.load import Load, WrongLoadError, digits
from .arrivals import Arrivals
from .foresight import Foresight
from .handoff import make_handoff
from .outcome import Outcome
from .protocols import INTERVAL_SECONDS_MIN, PROTOCOLS, Protocol
from .slices import Slicer
from .work import Costs, Machines
from .world import EPOCH, Member, World

__all__ = ["Options", "Simulation", "drain_seconds", "simulate"]

REPORT_SECONDS = 0.01
"""From a report's making until the leader has heard it."""
JOIN_SECONDS = 0.05
"""A replica that is ready needs this long to join."""
BEGINS_AT_MAX = 1e11
"""The year 5138: what is above is milliseconds."""
DRAIN_SECONDS = 60.0
"""Time given after the load's end to finish what waits, at least."""
COSTS_DEFAULT = Costs(mean_seconds=0.005)
MACHINES_DEFAULT = Machines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of the simulated group.

    Raises:
        WrongLoadError: no member, a start-up time that is no time, or what else nobody could play.
    """

    seed: int = 1
    costs: Costs = COSTS_DEFAULT
    machines: Machines = MACHINES_DEFAULT
    startup_seconds: float = 1.0
    """From the request for a replica until it is ready."""
    startup_unseen_seconds: float = 0.0
    """Of it, what passes before the process begins: a scaler's interval, a machine, an image. Members tell the rest."""
    replicas: int = 1
    """At the start, each with its even part of the partitions."""
    protocol: Protocol = PROTOCOLS["loadtrim"]
    slicing: bool = False
    """Do members pass work on inside the objective, on their own initiative?"""
    last_report: bool = True
    """Does a member that leaves tell what it measured since its last report?"""
    gather_seconds: float = GATHER_SECONDS
    """The time after which a member's meter is told what was done; more than the agent's 0.2 s makes runs cheaper."""
    phase_seconds: float | None = None
    """The time from the beginning of a report interval to that of a second of the load, 0 .. 1; None: by the seed. A
    policy that samples sees bursts ``report_seconds - phase_seconds`` after they came."""
    reports_spread: float = REPORTS_SPREAD
    """Share of the report interval within which the members report one after the other. 0: all at once, as a scaler
    outside the group sees it that asks the broker for everybody's lag."""
    begins_at: float | None = None
    """When the first second of the load was, seconds since the epoch: what baselines go by. Its fraction does not
    count. None: some moment in 2023."""
    baselines: tuple[BaselineRecord, ...] = ()
    """The load that the history expects, as the leader reads it from the baseline topic. Of a topic's records the last
    counts (``group`` is not looked at; :func:`..loads.baselines.read_baselines` reads a file of them). The same load
    with and
    without them is a back-test of what they are worth::

        options = Options(startup_seconds=60.0, begins_at=monday, baselines=learnt_until_monday)
        with_them = simulate(load, config, options)
        without = simulate(load, config, replace(options, baselines=()))

    Only the policy ``objective`` looks ahead by them. ``to`` of a record is when the leader thinks that learning ended:
    more than 8 days before ``begins_at`` and it is ignored as stale. Each decision's ``baseline`` says what became of
    it."""
    replicas_at: tuple[tuple[float, int], ...] = ()
    """(seconds of the load, replicas from then on), in order of time: somebody else scales, as with ``loadtrim scale``.
    Empty: the policy does."""

    def __post_init__(self) -> None:
        if not within(self.gather_seconds, INTERVAL_SECONDS_MIN):
            raise WrongLoadError(
                f"Members gather every {digits(self.gather_seconds)} s, so that a run would never end; give a finite "
                f"number of at least {INTERVAL_SECONDS_MIN:g}."
            )
        if self.phase_seconds is not None and not 0.0 <= self.phase_seconds <= 1.0:
            raise WrongLoadError(f"The phase is {self.phase_seconds} s; give 0 to 1, or none to have it drawn.")
        if not 0.0 <= self.reports_spread < DECISION_PHASE:
            raise WrongLoadError(
                f"Members report within {self.reports_spread} of the interval, so the leader would decide before all "
                f"of them are heard; give 0 to below {DECISION_PHASE}."
            )
        if not is_count(self.replicas):
            raise WrongLoadError(
                f"{self.replicas} replicas are to be there at the start; with no member there is no leader and nothing "
                "is ever done, and half a member there is not. Give a whole number of at least 1."
            )
        if not all(within(at, -math.inf) and is_count(replicas) for at, replicas in self.replicas_at):
            raise WrongLoadError(
                f"replicas_at is {self.replicas_at}, and so many replicas cannot be there, or at no such time; give "
                "finite seconds, each with a whole number of at least 1."
            )
        if list(self.replicas_at) != sorted(self.replicas_at, key=lambda entry: entry[0]):
            raise WrongLoadError(f"replicas_at is not in order of time ({self.replicas_at}); sort it.")
        if not within(self.startup_seconds, 0.0):
            raise WrongLoadError(
                f"The start-up time is {digits(self.startup_seconds)} s, so it is not known when replicas come; give a "
                "finite number of 0 or more."
            )
        if not 0.0 <= self.startup_unseen_seconds <= self.startup_seconds:
            raise WrongLoadError(
                f"Of a start-up of {digits(self.startup_seconds)} s, {digits(self.startup_unseen_seconds)} s are to "
                "pass before the process begins; give 0 to the whole of it."
            )
        if self.begins_at is None and self.baselines:
            raise WrongLoadError(
                "Baselines speak of times of the week, and it was not said when the load began; give --begins-at."
            )
        if self.begins_at is not None and not 0.0 <= self.begins_at <= BEGINS_AT_MAX:
            raise WrongLoadError(f"The load begins at {self.begins_at}; give seconds since the epoch, or a date.")
        if self.slicing and self.protocol.rebalances:
            raise WrongLoadError(
                f"Members cannot pass work on with the protocol {self.protocol.name!r}, where every move is a "
                "rebalance of the group; leave --slicing out, or take the protocol loadtrim."
            )


def _check_config(config: PlanConfig) -> None:
    """Of what a group can be set to, what cannot be played."""
    if (monitor := rate_source_of(config.monitor)) is not RateSourceName.REPORTS:
        raise WrongLoadError(
            f"The monitor {monitor.value!r} asks a broker, and there is none in a simulation, so the group would hold "
            f"whatever comes; leave monitor at {RateSourceName.REPORTS.value!r}, or measure a real group with "
            f"LOADTRIM_MONITOR={monitor.value}."
        )


def _check_replicas(load: Load, config: PlanConfig, options: Options) -> None:
    """A replica without a partition never has anything to do."""
    partitions = len(load.partitions)
    if config.min_replicas > partitions:
        raise WrongLoadError(
            f"min_replicas (--min) is {config.min_replicas}, more than there are partitions ({partitions}), so "
            f"replicas would never have anything to do; give --min of 1 to {partitions}."
        )
    most, why = partitions, "there are partitions"
    if config.max_replicas is not None and config.max_replicas < partitions:
        most, why = config.max_replicas, f"max_replicas (--max) {config.max_replicas}"
    if options.replicas > most:
        raise WrongLoadError(
            f"replicas (--replicas) is {options.replicas}, more than {why} ({most} at most), so the group would "
            f"begin with what it may never have; give --replicas of 1 to {most}, or raise the limit."
        )
    # A schedule by hand is not held to --max, as with `loadtrim scale`.
    if (asked := max((replicas for _, replicas in options.replicas_at), default=0)) > partitions:
        raise WrongLoadError(
            f"replicas_at asks for {asked} replicas, more than there are partitions ({partitions}), so some would "
            f"never have anything to do; give 1 to {partitions}."
        )


def drain_seconds(objective_seconds: float) -> float:
    """Time given after the load's end to finish what waits: what is not done then is late."""
    return max(DRAIN_SECONDS, objective_seconds)


class Simulation:
    """One run. Build it, :meth:`run` it once.

    Args:
        load: what arrives.
        config: of the planner.
        options: of the group.
        progress: told each second of the load as it begins.

    Raises:
        WrongLoadError: more replicas than partitions or than the group may have, a monitor that asks a broker, an
            interval that no run would get on with.
        UnknownNameError: no policy, packer or monitor has that name.
    """

    def __init__(
        self, load: Load, config: PlanConfig, options: Options, progress: Callable[[int], None] | None = None
    ) -> None:
        _check_config(config)
        _check_replicas(load, config, options)
        self._load = load
        self._config = config
        self._options = options
        drawn = Random(f"phase:{options.seed}").random()
        self._origin = EPOCH if options.begins_at is None else math.floor(options.begins_at) - 1.0
        begin = self._origin + 1.0 + (drawn if options.phase_seconds is None else options.phase_seconds)
        self.world = World(load.partitions, config, options.costs, options.machines, options.seed, begin)
        self._end = begin + load.seconds
        self._planner = make_planner(config, _future_of(load, config, options, begin))
        self._handoff = make_handoff(self.world, options.protocol, self)
        self._slicer = Slicer(self.world, self._handoff, self._victims, self._end) if options.slicing else None
        self._arrivals = Arrivals(load, self.world, options.seed, progress)
        self._baselines = Baselines.of(options.baselines, LocalWeek().slots)
        self._last: DecisionRecord | None = None
        self._starting: list[float] = []
        """The times at which replicas that are not ready yet were asked for."""
        self._held: int | None = None
        """Replicas from the load's end on; None: it goes on."""

    def run(self) -> Outcome:
        """Play the load to its end, and then until nothing waits: for at most a minute, or the objective if longer."""
        world, agenda = self.world, self.world.agenda
        for _ in range(self._options.replicas):
            # They took as long to start as others will: the leader goes by what it has seen.
            self._join(world.now - self._options.startup_seconds - JOIN_SECONDS)
        members = world.present()
        if self._options.protocol.barrier:
            # They were told their partitions together, and heartbeats begin anew then.
            for member in members:
                member.heartbeat_phase = members[0].heartbeat_phase
        for queue in world.queues:
            world.acquire(members[queue.index % len(members)], queue.index, None)
        agenda.at(world.begin, self._second, 0)
        agenda.at(self._beat(self._config.decision_seconds, DECISION_PHASE), self._tick)
        until = self._end + drain_seconds(self._config.sla_seconds)
        while agenda.now <= until and not self._over():
            agenda.step()
        for member in world.present():
            world.gather(member)
        world.count_left()
        return world.tally.outcome(
            seconds=self._load.seconds,
            partitions=self._load.partitions,
            waited=world.waited(),
            objective_seconds=self._config.sla_seconds,
            cost_seconds=self._options.costs.mean_seconds,
        )

    def _over(self) -> bool:
        """Is everything done? Looked at after the load only."""
        now = self.world.now
        return now > self._end + 1.0 and self.world.tally.not_done == 0

    def _victims(self) -> Collection[str]:
        return self._last.victims if self._last else ()

    # -- the load

    def _second(self, second: int) -> None:
        """Everything that arrives in a second is put into its queue when the second begins."""
        world = self.world
        if second:
            self._note()
        if second == self._load.seconds:
            self._close()
        world.agenda.at(world.begin + second + 1.0, self._second, second + 1)
        self._arrivals.begin(second)

    def _note(self) -> None:
        """Note how the second that ends was."""
        present, tally = self.world.active(), self.world.tally
        tally.replicas.append(len(present))
        if self._held is None:
            tally.replicas_max = max(tally.replicas_max, len(present) + len(self._starting))
        tally.capacity.append(sum(member.speed for member in present) * self._options.machines.concurrency)
        tally.replicas_wanted.append(self._last.replicas_wanted if self._last else len(present))
        tally.waiting.append(tally.not_done)

    def _close(self) -> None:
        """The load has ended: nothing costs or scales from here on."""
        present = self.world.active()
        for requested_at in (*(member.requested_at for member in present), *self._starting):
            self._pay(requested_at)
        self._held = self._last.replicas_wanted if self._last else len(present)
        self._planner.bound(self._held)

    def _pay(self, requested_at: float) -> None:
        """A replica that was asked for then is paid for until now."""
        if self._held is None:
            self.world.tally.replica_seconds += self.world.now - max(requested_at, self.world.begin)

    # -- the leader

    def _gather(self, member: Member) -> None:
        if not member.left:
            self.world.gather(member)
            self.world.agenda.at(self.world.now + self._options.gather_seconds, self._gather, member)

    def _report(self, member: Member) -> None:
        if not member.left:
            self._tell(member)
            self.world.agenda.at(self._due(member), self._report, member)

    def _due(self, member: Member) -> float:
        """Return when it reports next: where in the interval says the instance's name, as in the agent."""
        place = zlib.crc32(member.name.encode()) / (1 << 32)
        return self._beat(self._config.report_seconds, place * self._options.reports_spread)

    def _tell(self, member: Member) -> None:
        off = SlicingOff.NOTHING if self._options.slicing else SlicingOff.SETTING
        for part in self.world.report(member, off.value):
            self.world.agenda.at(self.world.now + REPORT_SECONDS, self._hear, part)

    def _hear(self, report: ReportRecord) -> None:
        self._planner.observe(report, self.world.now)

    def _group(self) -> GroupState:
        world = self.world
        present = [member for member in world.present() if not member.parked]
        return GroupState(
            generation=world.generation,
            leader=min(member.name for member in present if not member.leaving or len(present) == 1),
            members={
                member.name: MemberState(
                    instance=member.name, topics=world.topics, leaving=member.leaving, joined_at=member.joined_at
                )
                for member in present
            },
            owners={queue.partition: world.owners[queue.index] for queue in world.queues},
            in_flight={world.queues[index].partition: name for index, name in sorted(world.targets.items())},
            replicas_requested=None if self._last is None else self._last.replicas_wanted,
            expected=self._baselines.curves(world.now),
            manual_override=self._manual_override(),
        )

    def _manual_override(self) -> ManualOverrideRecord | None:
        """Return what somebody else wants now, where somebody else scales."""
        now = self.world.now - self.world.begin
        wanted = next((count for at, count in reversed(self._options.replicas_at) if at <= now), None)
        if wanted is None:
            return None
        return ManualOverrideRecord(
            group=self._config.group, member="schedule", at=self.world.now, action="scale", replicas=wanted
        )

    def _beat(self, every: float, phase: float) -> float:
        """The next moment that lies ``phase`` intervals behind a multiple of ``every``."""
        count = int((self.world.now - self._origin) / every - phase + 1e-6) + 1
        return self._origin + (count + phase) * every

    def _tick(self) -> None:
        self.world.agenda.at(self._beat(self._config.decision_seconds, DECISION_PHASE), self._tick)
        self._decide()

    def _decide(self) -> None:
        decision = self._think()
        self._handoff.advise(decision.moves)
        self.scale()

    def _think(self) -> DecisionRecord:
        decision = self._planner.decide(self.world.now, self._group())
        self._last = decision
        if self._held is None:
            self.world.tally.decisions.append((self.world.now - self.world.begin, decision))
        return decision

    def plan_moves(self) -> Sequence[MovePlan]:
        """Return what the leader wants now: a rebalance asks for it."""
        return self._think().moves

    # -- the orchestrator

    def scale(self) -> None:
        """Stop the replicas that the plan names, and start what is missing."""
        if self._held is not None or self._last is None:
            return
        if not self._config.can_scale or self._config.mode != "active":
            return
        request = scale_request(self._last, self._group(), self._config)
        if not request.ask:
            return
        replicas, victims = request.replicas, request.victims
        if self._options.protocol.rebalances:
            # No member is drained: one that is to go, goes.
            replicas, victims = self._last.replicas_wanted, self._last.victims
        for name in victims:
            self._leave(self.world.members[name])
        missing = replicas - len(self.world.active()) - len(self._starting)
        for _ in range(missing):
            self._starting.append(self.world.now)
            ready = self.world.now + self._options.startup_seconds + JOIN_SECONDS
            self.world.agenda.at(ready, self._ready, self.world.now)

    def _leave(self, member: Member) -> None:
        if member.left or member.leaving:
            return
        if self._options.last_report:
            self._tell(member)
        self._pay(member.requested_at)
        self._handoff.leave(member)

    def _ready(self, requested_at: float) -> None:
        self._starting.remove(requested_at)
        assert self._last is not None
        if len(self.world.active()) >= self._last.replicas_wanted:
            self._pay(requested_at)
            return
        member = self._join(requested_at)
        self.world.generation += 1
        self._handoff.joined(member)
        if not self._options.protocol.rebalances:
            self.world.agenda.at(self.world.now + 0.03, self._decide)

    def _join(self, requested_at: float) -> Member:
        world = self.world
        member = world.join(requested_at, self._options.startup_unseen_seconds)
        world.agenda.at(self._due(member), self._report, member)
        world.agenda.at(world.now + self._options.gather_seconds * world.random.random(), self._gather, member)
        return member


def _future_of(load: Load, config: PlanConfig, options: Options, begin: float) -> Future | None:
    """Return what will arrive, for a policy that has to know it; the same records that are played."""
    try:
        make_policy(config.policy)
    except UnmeasuredError:
        seconds = list(load.batches(Random(f"load:{options.seed}")))
        rows = []
        for batches in seconds:
            row = [0.0] * len(load.partitions)
            for batch in batches:
                for index, count in batch.counts:
                    row[index] += count
            rows.append(tuple(row))
        cost = options.costs.mean_seconds / (median(options.machines.speeds) * options.machines.concurrency)
        objective = config.sla_seconds - options.machines.fetch_seconds
        foresight = Foresight(load, seconds, cost, objective, config.max_replicas or len(load.partitions))
        return Future(begins_at=begin, partitions=load.partitions, records=tuple(rows), needed=foresight.needed)
    return None


def simulate(
    load: Load, config: PlanConfig, options: Options, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Play one load through one policy, once.

    Args:
        load: what arrives.
        config: of the planner: policy, packer, objective.
        options: of the group.
        progress: told each second of the load as it begins.

    Cost: about 1 us per record and 2.5 to 3.5 ms per second of the load, most of it the real planner's and meters'.
    """
    return Simulation(load, config, options, progress).run()
