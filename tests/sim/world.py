"""Everything together: a broker, a log, members, and the levers that scripts and chaos pull."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import LOADTRIM, GroupConfig

from .controllog import ControlLog
from .coordinator import Coordinator
from .data import DataPartition, Handed
from .foreign import ForeignMember
from .invariants import ALL, Invariant, Violation
from .member import SimMember
from .network import Network
from .options import SimOptions
from .scheduler import Scheduler
from .user import Slot

__all__ = ["GROUP", "World"]

GROUP = "payments-service"
TRACE_ENTRIES_MAX = 4_000
HEALED_SECONDS = 1.0
"""What I5 allows beyond the time-out."""
STEPS_PER_SECOND_MAX = 20_000
"""More than this, and something spins."""


class World:
    """One group. Deterministic: the same seed and the same calls give the same run.

    Args:
        seed: of everything random.
        options: see there.
        trace: keep a readable account of events and commands (slow).
    """

    def __init__(self, seed: int = 0, options: SimOptions | None = None, *, trace: bool = False) -> None:
        self.options = options or SimOptions()
        self.scheduler = Scheduler(seed)
        self.coordinator = Coordinator(self.scheduler)
        self.coordinator.on_commit = self._committed
        self.network = Network(self.scheduler, self.coordinator.serve)
        self.log = ControlLog(self.scheduler)
        self.topics: dict[str, int] = {}
        self.data: dict[Partition, DataPartition] = {}
        self.members: dict[str, SimMember] = {}
        self.foreign: dict[str, ForeignMember] = {}
        self.committed_most: dict[Partition, int] = {}
        self.committed_last: dict[Partition, int] = {}
        self.counts: Counter[str] = Counter()
        self.may_mix = False
        self.mixed_at = 0.0
        """When the group was last a mixed one: nothing but I2 holds then."""
        self.unnoticed_takeover = False
        """The same broker took over again, which nobody may have noticed: it may refuse who offers no ``loadtrim``."""
        self.calm = False
        """Nothing has gone wrong in this run, or all that went wrong is over: a lease does not run out."""
        self.trace: deque[str] | None = deque(maxlen=TRACE_ENTRIES_MAX) if trace else None
        self.cost_seconds: Callable[[], float] = lambda: 0.01
        self.listener_seconds: Callable[[], float] = lambda: 0.0
        self.lookup_seconds: Callable[[], float] = lambda: 0.003
        self.metadata_seconds: Callable[[], float] = lambda: 3.0
        self._invariants: list[Invariant] = [kind(self) for kind in ALL]
        self._on_step = [i for i in self._invariants if type(i).step is not Invariant.step]
        self._on_handed = [i for i in self._invariants if type(i).handed_out is not Invariant.handed_out]
        self._on_commit = [i for i in self._invariants if type(i).committed is not Invariant.committed]
        self._on_command = [i for i in self._invariants if type(i).commanded is not Invariant.commanded]
        for topic, count in self.options.load.topics:
            self.enlarge(topic, count)

    # -- levers --------------------------------------------------------------------------------------------------

    def config(self, topics: tuple[str, ...] | None = None, *, log_usable: bool = True) -> GroupConfig:
        group = self.options.group
        return GroupConfig(
            group=GROUP,
            topics=tuple(sorted(topics if topics is not None else self.topics)),
            session_timeout=group.session_timeout_seconds,
            rebalance_timeout=group.rebalance_timeout_seconds,
            heartbeat_interval=group.heartbeat_interval_seconds,
            drain_seconds=group.drain_seconds,
            auto_commit=group.auto_commit,
            inline_limit_bytes=group.inline_limit_bytes,
            log_usable=log_usable,
        )

    def join(self, topics: tuple[str, ...] | None = None, *, log_usable: bool = True) -> SimMember:
        """Start one more member."""
        name = f"p{len(self.members) + 1}"
        member = SimMember(self, name, self.config(topics, log_usable=log_usable))
        self.may_mix = self.may_mix or not log_usable
        self.members[name] = member
        member.start()
        return member

    def join_foreign(self, topics: tuple[str, ...] | None = None) -> ForeignMember:
        """Start a member without the agent."""
        name = f"f{len(self.foreign) + 1}"
        member = ForeignMember(self, name, tuple(sorted(topics if topics is not None else self.topics)))
        self.foreign[name] = member
        self.may_mix = True
        member.start()
        return member

    def enlarge(self, topic: str, count: int) -> None:
        for index in range(self.topics.get(topic, 0), count):
            partition = Partition(topic, index)
            self.data[partition] = DataPartition(partition)
        self.topics[topic] = count

    def produce(self, partition: Partition, count: int = 1) -> None:
        self.data[partition].end += count
        for member in self.members.values():
            slot = member.user.slots.get(partition)
            if slot is not None and slot.running:
                member.user.pump()

    def run(self, seconds: float) -> None:
        """Let time pass; invariants are looked at after every step."""
        until = self.scheduler.now + seconds
        most = self.scheduler.steps + STEPS_PER_SECOND_MAX * max(1.0, seconds)
        while self.scheduler.step(until):
            if self.may_mix:
                self._look_for_mixture()
            for invariant in self._on_step:
                invariant.step()
            if self.scheduler.steps > most:
                self.violated("progress", "the simulation does not get on: something spins")

    def run_until(self, condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Let time pass until ``condition()`` holds."""
        end = self.scheduler.now + seconds
        while not condition():
            if self.scheduler.now >= end:
                self.violated("progress", f"not within {seconds} s")
            self.run(0.01)

    def take_over(self, *, loads_seconds: float = 0.0, elsewhere: bool = True) -> None:
        """End a failover that is going on: another broker takes over, or the same again, and loads the group first."""
        if self.coordinator.up:
            return
        self.coordinator.take_over(loads_seconds=loads_seconds)
        if elsewhere:
            self.network.coordinators += 1
        else:
            self.unnoticed_takeover = True

    def heal(self) -> None:
        """The last fault is over: whoever sleeps wakes, somebody is there. Lets the time pass that I5 allows."""
        late = max(self.network.late_until, self.log.late_until)
        self.take_over()
        for member in self.alive:
            member.wake()
            late = max(late, member.reader.blocked_until)
        for foreign in self.foreign.values():
            if not foreign.gone:
                foreign.leave()
        if all(m.leave_deadline != float("inf") for m in self.alive):
            self.join()
        self.run(max(0.0, late - self.scheduler.now))
        self.run(self.options.group.rebalance_timeout_seconds + HEALED_SECONDS)

    def check_healed(self) -> None:
        """I5, and whatever else holds only when all is well."""
        for invariant in self._invariants:
            invariant.healed()

    # -- what members and invariants ask -------------------------------------------------------------------------

    @property
    def alive(self) -> list[SimMember]:
        return [m for m in self.members.values() if not m.gone]

    def owner(self, partition: Partition) -> SimMember | None:
        """The member that runs it."""
        for member in self.alive:
            slot = member.user.slots.get(partition)
            if slot is not None and slot.running:
                return member
        return None

    def handed_out(self, member: SimMember, slot: Slot, offset: int) -> None:
        if self.trace is not None:
            self.note(member.name, f"handed {slot.partition}:{offset} (acquisition {slot.acquisition_id})")
        for invariant in self._on_handed:
            invariant.handed_out(member, slot, offset)
        self.data[slot.partition].handed[offset] = Handed(member, self.scheduler.now)

    def handed_to_foreign(self, member: ForeignMember, partition: Partition, offset: int) -> None:
        self.data[partition].handed[offset] = Handed(member, self.scheduler.now)

    def commanded(self, member: SimMember, event: e.Event, commands: list[c.Command]) -> None:
        if self.trace is not None and (commands or not isinstance(event, e.TickEvent | e.LogPositionEvent)):
            self.note(member.name, repr(event))
            for command in commands:
                self.note(member.name, f"    {command!r}")
        for invariant in self._on_command:
            invariant.commanded(member, event, commands)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def note(self, who: str, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now:10.4f} {who:4} {text}")

    def violated(self, name: str, text: str) -> None:
        raise Violation(name, f"{text} (at {self.scheduler.now:.4f})")

    def _committed(self, member: str, partition: Partition, offset: int) -> None:
        if self.trace is not None:
            self.note("", f"committed {partition} at {offset} by {member}")
        for invariant in self._on_commit:
            invariant.committed(member, partition, offset)
        self.committed_last[partition] = offset
        self.committed_most[partition] = max(offset, self.committed_most.get(partition, 0))

    def mixed(self) -> bool:
        """Whether the group is a mixed one now."""
        if self.may_mix:
            self._look_for_mixture()
        return self.mixed_at >= self.scheduler.now

    def _look_for_mixture(self) -> None:
        ours = ("", LOADTRIM)
        if (
            self.coordinator.protocol not in ours
            or any(not f.gone for f in self.foreign.values())
            or any(m.machine.snapshot().protocol not in ours for m in self.alive)
        ):
            self.mixed_at = self.scheduler.now
