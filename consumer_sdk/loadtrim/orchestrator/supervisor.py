"""The decisions of the local orchestrator, without any process.

Theory of operation: what is wanted (a number of replicas, and the victims by name) is kept apart from what is
there (instances in a phase). Every event ends in one reconciliation:

- a victim that runs is ended, one that waits for its start is dropped; neither is replaced under its name;
- fewer instances than wanted: new ones under new names (a name is never used twice, so that a late request cannot
  hit a successor); one that ended by itself comes back under its own name, after a pause that doubles;
- more than wanted and nobody named: those that do not run yet are dropped. Those that run may own partitions, so
  they are left alone until a plan names them; only a surplus that nobody names for ``surplus_seconds`` (an instance
  that never joined the group: its leader cannot know it) is ended, first those that are in no group, then those that
  started last.

A plan older than the newest of its group by (generation, sequence) is refused. After ``forget_seconds`` without a
plan of that group any plan counts again, because a group that Kafka has forgotten begins at generation 1.

Times are seconds on whatever clock the shell uses, as long as it never goes back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from loadtrim_agent.common.errors import InvariantError

__all__ = [
    "Command",
    "DropCommand",
    "Event",
    "ExitedEvent",
    "Instance",
    "KillAllEvent",
    "KillCommand",
    "Phase",
    "PlanEvent",
    "PlanOutcome",
    "PlanSequence",
    "ScaleEvent",
    "StartCommand",
    "StopEvent",
    "Supervisor",
    "SupervisorConfig",
    "TerminateCommand",
    "TickEvent",
    "WaitCommand",
    "WantedState",
]

INSTANCES_MAX = 256
"""More processes than this on one machine are a mistake in somebody's arithmetic."""


class PlanSequence(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The place of a plan among those of its group. Ordered by generation, then sequence."""

    generation: int
    sequence: int


class WantedState(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a leader's ``PUT``: the wanted state of a group. Sent again until the group is as wanted."""

    group: str
    replicas: int
    """Wanted, >= 1: a group of nobody has no leader, and would never come back."""
    victims: tuple[str, ...] = ()
    """Instances that own nothing any more and are to be ended."""
    staying: tuple[str, ...] = ()
    """Instances that are in the group and are not to be ended; empty: the leader does not tell."""
    plan: PlanSequence
    reason: str = ""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas is {self.replicas}, must be at least 1")


SETTLE_SECONDS = 10.0
"""An instance that has run for so long works. Chosen."""


class PlanOutcome(enum.Enum):
    """The answer to a plan."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """The newest plan of its group, sent again."""
    STALE = "stale"
    """A newer plan of its group was accepted before."""


class Phase(enum.Enum):
    """The life of an instance. There is a process from RUNNING on."""

    WAITING = "waiting"
    """Asked for; started when it is due (start-up delay, pause after a crash)."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Asked to end; killed when that takes too long."""
    KILLED = "killed"
    ENDED = "ended"


# The phases that may follow each phase.
TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.WAITING: frozenset({Phase.RUNNING, Phase.ENDED}),
    Phase.RUNNING: frozenset({Phase.WAITING, Phase.STOPPING, Phase.KILLED}),
    Phase.STOPPING: frozenset({Phase.KILLED, Phase.ENDED}),
    Phase.KILLED: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance, as the supervisor sees it."""

    name: str
    number: int
    """1 for the first, never used twice."""
    phase: Phase
    asked_at: float
    """When it was asked for; after a crash, when it ended."""
    due_at: float | None = None
    """WAITING: when it is to be started. STOPPING: when it is killed."""
    started_at: float | None = None
    failures: int = 0
    """The number of starts in a row that ended by themselves before ``settle_seconds``."""

    def become(self, phase: Phase, due_at: float | None = None) -> Instance:
        """The instance in its next phase.

        Raises:
            InvariantError: the table does not allow it.
        """
        if phase not in TRANSITIONS[self.phase]:
            raise InvariantError(f"instance {self.name}: {self.phase.name} -> {phase.name}")
        return replace(self, phase=phase, due_at=due_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """The settings of the supervisor. Durations in seconds."""

    name: str
    """Instances are called ``name-1``, ``name-2``, ..."""
    replicas: int = 1
    """Wanted until the first plan."""
    replicas_min: int = 1
    """The least until the first plan, and by hand."""
    replicas_max: int = INSTANCES_MAX
    startup_delay_seconds: float = 0.0
    """Waited before every start but the first ones: stands in for machines that take a while to come."""
    stop_seconds: float = 25.0
    """From the request to end until it is killed."""
    surplus_seconds: float = 30.0
    backoff_seconds: float = 0.5
    backoff_seconds_max: float = 30.0
    settle_seconds: float = SETTLE_SECONDS
    """An instance that ran this long starts again after the first pause."""
    forget_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.replicas_min <= self.replicas_max <= INSTANCES_MAX:
            raise ValueError(
                f"bounds of replicas are {self.replicas_min} to {self.replicas_max}; "
                f"allowed: 1 <= least <= most <= {INSTANCES_MAX}"
            )


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """A plan came in. Refused silently when it is stale: ask :meth:`Supervisor.judge` before."""

    now: float
    request: WantedState


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """The owner of the orchestrator wants this many, until the next plan. The newest ones go."""

    now: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ExitedEvent:
    """A process ended, or could not be started."""

    now: float
    name: str


@dataclass(frozen=True, slots=True)
class TickEvent:
    """:attr:`Supervisor.next_due` has come."""

    now: float


@dataclass(frozen=True, slots=True)
class StopEvent:
    """End everything in order; nothing is started any more."""

    now: float


@dataclass(frozen=True, slots=True)
class KillAllEvent:
    """End everything at once."""

    now: float


Event = PlanEvent | ScaleEvent | ExitedEvent | TickEvent | StopEvent | KillAllEvent


@dataclass(frozen=True, slots=True)
class _InstanceCommand:
    """Something to do about one instance, and the reason."""

    name: str
    reason: str


class StartCommand(_InstanceCommand):
    """Start a process under this name."""


class DropCommand(_InstanceCommand):
    """Nothing to do but to tell: the instance is not started after all."""


class TerminateCommand(_InstanceCommand):
    """Ask the process to end (SIGTERM)."""


class KillCommand(_InstanceCommand):
    """End the process and all that it started (SIGKILL)."""


@dataclass(frozen=True, slots=True)
class WaitCommand:
    """Nothing to do but to tell: the instance will be started in so many seconds."""

    name: str
    seconds: float
    reason: str


Command = StartCommand | WaitCommand | DropCommand | TerminateCommand | KillCommand


@dataclass(slots=True)
class _Accepted:
    """The newest plan of one group."""

    request: WantedState
    at: float


@dataclass(slots=True)
class Supervisor:
    """The state machine: ``handle(event) -> commands`` is its only door."""

    config: SupervisorConfig
    _instances: dict[str, Instance] = field(default_factory=dict)
    """The instances that have not ended, by name, oldest first."""
    _plans: dict[str, _Accepted] = field(default_factory=dict)
    """Of the groups whose plans count at present."""
    _order: dict[str, _Accepted] = field(default_factory=dict)
    """Of all groups: what a plan is judged by."""
    _by_hand: int = 0
    _next_number: int = 1
    _surplus_since: float | None = None
    _stopping: bool = False
    _begun: bool = False
    _came_up: bool = False
    """An instance has run for ``settle_seconds``: the command works, and what ends it passes."""
    _commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_hand = self._bounded(self.config.replicas)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances that have not ended, oldest first."""
        return tuple(self._instances.values())

    @property
    def plans(self) -> Mapping[str, WantedState]:
        """The newest plan of every group that has sent one."""
        return {group: accepted.request for group, accepted in self._plans.items()}

    @property
    def wanted(self) -> int:
        """The number of instances that there are to be: the most that a group wants, up to the maximum.

        The group's leader keeps the minimum, and goes below it where that is forced. An instance that is started to
        keep it here joins the group and is the leader's next victim, for ever.
        """
        if self._stopping:
            return 0
        if not self._plans:
            return self._by_hand
        return min(max(accepted.request.replicas for accepted in self._plans.values()), self.config.replicas_max)

    @property
    def finished(self) -> bool:
        """Asked to stop, and nothing is left."""
        return self._stopping and not self._instances

    @property
    def next_due(self) -> float | None:
        """When a :class:`TickEvent` is due, None: not before another event."""
        times = [instance.due_at for instance in self._instances.values() if instance.due_at is not None]
        if self._surplus_since is not None:
            times.append(self._surplus_since + self.config.surplus_seconds)
        return min(times, default=None)

    def failing(self, failures: int) -> bool:
        """Return whether nothing runs or ever did, and every instance ended right after its start so many times."""
        instances = self._instances.values()
        if self._came_up or not instances:
            return False
        return all(each.phase is Phase.WAITING and each.failures >= failures for each in instances)

    def judge(self, request: WantedState, now: float) -> PlanOutcome:
        """Return what a plan would be taken for; change nothing."""
        newest = self._order.get(request.group)
        if newest is None or now - newest.at >= self.config.forget_seconds:
            return PlanOutcome.ACCEPTED
        if request.plan < newest.request.plan:
            return PlanOutcome.STALE
        return PlanOutcome.REPEATED if request == newest.request else PlanOutcome.ACCEPTED

    def handle(self, event: Event) -> list[Command]:
        """Take in one event. Returns what is to be done, in this order; victims before what replaces them."""
        self._commands = []
        match event:
            case PlanEvent(now, request):
                self._take_plan(now, request)
            case ScaleEvent(now, replicas):
                self._plans.clear()
                self._by_hand = self._bounded(replicas)
                self._surplus_since = now - self.config.surplus_seconds
            case ExitedEvent(now, name):
                self._exited(now, name)
            case TickEvent(now):
                self._start_and_kill_due(now)
            case StopEvent(now):
                self._stopping = True
            case KillAllEvent(now):
                self._stopping = True
                for instance in self.instances:
                    self._kill(instance, "asked to end at once")
        self._reconcile(now)
        return self._commands

    def _bounded(self, replicas: int) -> int:
        return min(max(replicas, self.config.replicas_min), self.config.replicas_max)

    def _take_plan(self, now: float, request: WantedState) -> None:
        if self.judge(request, now) is PlanOutcome.STALE:
            return
        before = self._plans.get(request.group)
        if before is None or (before.request.replicas, before.request.victims) != (request.replicas, request.victims):
            self._surplus_since = None
        self._order[request.group] = self._plans[request.group] = _Accepted(request, now)

    def _exited(self, now: float, name: str) -> None:
        instance, config = self._instances[name], self.config
        settled = instance.started_at is not None and now - instance.started_at >= config.settle_seconds
        self._came_up |= settled
        if instance.phase is not Phase.RUNNING or self._stopping:
            del self._instances[name]
            return
        failures = 1 if settled else instance.failures + 1
        # The exponent is bounded so that a loop of crashes that lasts for days does not overflow a float.
        pause = min(config.backoff_seconds * 2.0 ** min(failures - 1, 30), config.backoff_seconds_max)
        pause += config.startup_delay_seconds
        waiting = replace(instance, asked_at=now, started_at=None, failures=failures)
        self._instances[name] = waiting.become(Phase.WAITING, now + pause)
        self._commands.append(WaitCommand(name, pause, "it ended by itself"))

    def _start_and_kill_due(self, now: float) -> None:
        for instance in self.instances:
            if instance.due_at is None or now < instance.due_at:
                continue
            if instance.phase is Phase.WAITING:
                self._start(instance, now, "due")
            else:
                self._kill(instance, f"did not end within {self.config.stop_seconds:g} s")

    def _reconcile(self, now: float) -> None:
        if self._stopping:
            for instance in self.instances:
                self._end(instance, now, "everything ends")
        else:
            self._end_victims(now)
        kept = self._kept()
        for _ in range(self.wanted - len(kept)):
            self._add(now)
        self._begun = True
        self._shed(now, kept, len(kept) - self.wanted)

    def _kept(self) -> list[Instance]:
        return [each for each in self.instances if each.phase in (Phase.WAITING, Phase.RUNNING)]

    def _end_victims(self, now: float) -> None:
        """End what all groups name, and of what only some of them name as many as are too much.

        An instance may have consumers of several groups. One that replaces it would join them all.
        """
        by_all = set.intersection(*self._named()) if self._plans else set()
        by_some = self._victims() - by_all
        for instance in [each for each in self._kept() if each.name in by_all]:
            self._end(instance, now, "named by the plan")
        surplus = len(self._kept()) - self.wanted
        for instance in [each for each in self._kept() if each.name in by_some][: max(surplus, 0)]:
            self._end(instance, now, "named by the plan of one group, and more than the others want")

    def _named(self) -> list[set[str]]:
        return [set(accepted.request.victims) for accepted in self._plans.values()]

    def _victims(self) -> set[str]:
        return set().union(*self._named())

    def _shed(self, now: float, kept: list[Instance], surplus: int) -> None:
        """End what is too much: first what does not run yet, then what is in no group, of these the newest first."""
        members = {name for accepted in self._plans.values() for name in accepted.request.staying}
        order = sorted(
            kept,
            key=lambda each: (
                each.started_at is not None,
                each.name in members,
                -(each.started_at or 0.0),
                -each.number,
            ),
        )
        waiting = [each for each in order if each.phase is Phase.WAITING]
        for instance in waiting[: max(surplus, 0)]:
            self._end(instance, now, "not wanted any more")
        if surplus <= len(waiting):
            self._surplus_since = None
            return
        if self._surplus_since is None:
            self._surplus_since = now
        if now >= self._surplus_since + self.config.surplus_seconds:
            for instance in order[len(waiting) : surplus]:
                self._end(instance, now, "more than wanted, and no plan names one")
            self._surplus_since = None

    def _add(self, now: float) -> None:
        # A plan may name instances of an earlier run: nobody new is given such a name.
        victims = self._victims()
        while (name := f"{self.config.name}-{self._next_number}") in victims:
            self._next_number += 1
        number = self._next_number
        self._next_number += 1
        instance = Instance(name, number, Phase.WAITING, asked_at=now)
        delay = self.config.startup_delay_seconds if self._begun else 0.0
        if delay > 0:
            self._instances[name] = replace(instance, due_at=now + delay)
            self._commands.append(WaitCommand(name, delay, "start-up delay"))
        else:
            self._start(instance, now, "wanted")

    def _start(self, instance: Instance, now: float, reason: str) -> None:
        started = replace(instance.become(Phase.RUNNING), started_at=now)
        self._instances[instance.name] = started
        self._commands.append(StartCommand(instance.name, reason))

    def _end(self, instance: Instance, now: float, reason: str) -> None:
        if instance.phase is Phase.WAITING:
            del self._instances[instance.name]
            self._commands.append(DropCommand(instance.name, reason))
        elif instance.phase is Phase.RUNNING:
            stopping = instance.become(Phase.STOPPING, now + self.config.stop_seconds)
            self._instances[instance.name] = stopping
            self._commands.append(TerminateCommand(instance.name, reason))

    def _kill(self, instance: Instance, reason: str) -> None:
        if instance.phase in (Phase.RUNNING, Phase.STOPPING):
            self._instances[instance.name] = instance.become(Phase.KILLED)
            self._commands.append(KillCommand(instance.name, reason))
