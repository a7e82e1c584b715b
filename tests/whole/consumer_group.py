"""A group whose partitions the broker assigns (KIP-848), as ``GroupMetadataManager`` of Kafka 4.1 behaves.

Members of the consumer protocol heartbeat. Beside them there may be classic members, which join and sync as ever and
are answered without a leader. Who comes or goes raises the group's epoch; the next JoinGroup or heartbeat makes a
target for it. Each member then gets there in steps of its own: it puts down what it must, and is given what others
have put down.

Not modelled: static members, subscriptions that differ, racks, requests of one member that cross each other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.consumer_protocol import by_topic, decode_member
from loadtrim_agent.protocol.group_config import Code
from sim.coordinator import JoinReply, JoinRequest, SyncReply, SyncRequest
from sim.scheduler import Scheduler, Timer

__all__ = ["ConsumerGroup", "HeartbeatAnswer", "encode_assignment"]

FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH = 110, 113
SESSION_SECONDS = 6.0
"""``group.consumer.session.timeout.ms``; like that of the simulated classic members."""
REBALANCE_SECONDS = 12.0
"""Time that a member of the consumer protocol has to put partitions down."""


class _State(enum.Enum):
    STABLE = "stable"
    UNREVOKED = "it must put partitions down"
    UNRELEASED = "others have not put down yet what it is to get"


@dataclass(slots=True)
class _Member:
    name: str
    topics: tuple[str, ...] = ()
    asked: JoinRequest | None = None
    """A classic member's last JoinGroup; None: it speaks the consumer protocol."""
    epoch: int = 0
    before: int = 0
    """Its epoch before: an answer may have been lost."""
    state: _State = _State.STABLE
    assigned: frozenset[Partition] = frozenset()
    revoking: frozenset[Partition] = frozenset()
    timers: dict[str, Timer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What a member of the consumer protocol is told."""

    code: int
    epoch: int = -1
    assigned: frozenset[Partition] = frozenset()


class ConsumerGroup:
    """One group.

    Args:
        scheduler: virtual time.
        counts: topic -> partitions, as they are at any time.
        epoch: of the group that it was before, and of its assignment.
    """

    def __init__(self, scheduler: Scheduler, counts: Mapping[str, int], epoch: int = 0) -> None:
        self._scheduler = scheduler
        self._counts = counts
        self.members: dict[str, _Member] = {}
        self.epoch = epoch
        self._target_epoch = epoch
        self.target: dict[str, frozenset[Partition]] = {}
        self._known: list[Partition] = []
        """Partitions that the newest target was made for."""
        self.on_late: Callable[[str], None] = self.remove
        """Is told of a member that did not do in time what it must do."""

    def take_in(self, asked: JoinRequest, assigned: frozenset[Partition]) -> None:
        """A member of the classic group that this was before keeps what it has."""
        member = _Member(asked.member, decode_member("", asked.metadata[0][1]).topics, asked, self.epoch, self.epoch)
        member.assigned = self.target[asked.member] = assigned
        self.members[asked.member] = member
        self._expect(member, "session", asked.session_timeout_seconds)

    def remove(self, name: str) -> None:
        """A member is out: the next request of another one makes a new target."""
        member = self.members.pop(name, None)
        if member is not None:
            self._forget_timers(member)
            self.target.pop(name, None)
            self.epoch += 1

    def stop(self) -> None:
        """The broker is gone, or the group is a classic one again: nobody is late any more."""
        for member in self.members.values():
            self._forget_timers(member)

    def load(self) -> None:
        """Another broker has read the group: sessions begin anew, and who is to join or sync has no limit."""
        for member in self.members.values():
            self._expect(member, "session", SESSION_SECONDS)
            if member.state is _State.UNREVOKED:
                self._expect(member, "rebalance", REBALANCE_SECONDS)

    # -- members of the consumer protocol ------------------------------------------------------------------------

    def heartbeat(
        self, name: str, epoch: int, owned: Collection[Partition], topics: tuple[str, ...]
    ) -> HeartbeatAnswer:
        """Take a heartbeat; epoch 0: the member joins."""
        member = self.members.get(name)
        if member is None and epoch:
            return HeartbeatAnswer(Code.UNKNOWN_MEMBER_ID)
        if member is not None and epoch != member.epoch and (epoch != member.before or set(owned) - member.assigned):
            return HeartbeatAnswer(FENCED_MEMBER_EPOCH)
        new = member is None
        member = member or self.members.setdefault(name, _Member(name, topics))
        self._make_target(new)
        self._reconcile(member, owned)
        self._expect(member, "session", SESSION_SECONDS)
        return HeartbeatAnswer(Code.NONE, member.epoch, member.assigned)

    # -- classic members -----------------------------------------------------------------------------------------

    def supports(self, request: JoinRequest) -> bool:
        """Return whether a classic member offers a protocol that all the others offer."""
        offered = [m.asked.protocols for m in self.members.values() if m.asked is not None]
        return any(all(name in protocols for protocols in offered) for name in request.protocols)

    def join(self, request: JoinRequest) -> JoinReply:
        """Take a JoinGroup: it is answered at once. Whoever comes with an id is known by it from then on."""
        said = decode_member(request.member, request.metadata[0][1])
        new = request.member not in self.members
        member = self.members.setdefault(request.member, _Member(request.member))
        member.asked, member.topics = request, said.topics
        self._make_target(new)
        self._reconcile(member, said.owned)
        self._call_off(member, "join")
        self._expect(member, "session", request.session_timeout_seconds)
        self._expect(member, "sync", request.rebalance_timeout_seconds)
        return JoinReply(Code.NONE, request.member, member.epoch, request.protocols[0])

    def sync(self, request: SyncRequest) -> SyncReply:
        """Take a SyncGroup: the answer is what the member has now."""
        code = self.refusal(request.member, request.generation)
        if code:
            return SyncReply(code)
        member = self.members[request.member]
        assert member.asked is not None
        if self.epoch > member.epoch and member.state is not _State.UNREVOKED:
            self._expect_join(member)
            return SyncReply(Code.REBALANCE_IN_PROGRESS)
        self._call_off(member, "sync")
        self._expect(member, "session", member.asked.session_timeout_seconds)
        return SyncReply(Code.NONE, encode_assignment(member.assigned))

    def classic_heartbeat(self, name: str, generation: int) -> int:
        """Take a Heartbeat: a member that is to put something down, or can be given more, is to join again."""
        code = self.refusal(name, generation)
        if code:
            return code
        member = self.members[name]
        assert member.asked is not None
        self._expect(member, "session", member.asked.session_timeout_seconds)
        waits = member.state is _State.UNRELEASED and self._held() & (self.target[name] - member.assigned)
        if member.epoch == self.epoch and (member.state is _State.STABLE or waits):
            return Code.NONE
        self._expect_join(member)
        return Code.REBALANCE_IN_PROGRESS

    def refusal(self, name: str, epoch: int) -> int:
        """Return the code for what a member sends with its epoch or generation; 0: it is taken."""
        member = self.members.get(name)
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return Code.NONE
        return STALE_MEMBER_EPOCH if member.asked is None else Code.ILLEGAL_GENERATION

    # -- assignment ----------------------------------------------------------------------------------------------

    def _make_target(self, new: bool) -> None:
        topics = sorted({topic for member in self.members.values() for topic in member.topics})
        partitions = [Partition(topic, index) for topic in topics for index in range(self._counts.get(topic, 0))]
        if new or partitions != self._known:
            self.epoch += 1
            self._known = partitions
        if self.epoch > self._target_epoch:
            self.target = _uniform(self.members, self.target, partitions)
            self._target_epoch = self.epoch

    def _held(self) -> set[Partition]:
        return {p for member in self.members.values() for p in member.assigned | member.revoking}

    def _reconcile(self, member: _Member, owned: Collection[Partition]) -> None:
        """One step of a member towards the target; ``owned`` is what it says that it has."""
        epoch = member.epoch
        if member.state is _State.STABLE and epoch == self._target_epoch:
            return
        if member.state is _State.UNREVOKED:
            if member.revoking & set(owned):
                return
            epoch += 1
        target = self.target.get(member.name, frozenset())
        kept = member.assigned & target
        revoking = member.assigned - kept
        free = (target - kept) - self._held()
        member.before = member.epoch
        if revoking & set(owned):
            member.state, member.epoch, member.assigned, member.revoking = _State.UNREVOKED, epoch, kept, revoking
        else:
            member.state = _State.UNRELEASED if target - kept - free else _State.STABLE
            member.epoch, member.assigned, member.revoking = self._target_epoch, kept | free, frozenset()
        if member.asked is None and member.state is _State.UNREVOKED:
            self._expect(member, "rebalance", REBALANCE_SECONDS)
        else:
            self._call_off(member, "rebalance")

    # -- time ----------------------------------------------------------------------------------------------------

    def _expect(self, member: _Member, what: str, seconds: float) -> None:
        """Have the member out after a time, unless it does what it must, or says again that it will."""
        self._call_off(member, what)
        member.timers[what] = self._scheduler.after(seconds, self._late, member.name)

    def _expect_join(self, member: _Member) -> None:
        if "join" not in member.timers and member.asked is not None:
            self._expect(member, "join", member.asked.rebalance_timeout_seconds)

    def _call_off(self, member: _Member, what: str) -> None:
        timer = member.timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _forget_timers(self, member: _Member) -> None:
        for what in list(member.timers):
            self._call_off(member, what)

    def _late(self, name: str) -> None:
        self.on_late(name)


def _uniform(
    members: Iterable[str], before: Mapping[str, frozenset[Partition]], partitions: list[Partition]
) -> dict[str, frozenset[Partition]]:
    """Deal out evenly, and leave with each member what it has as far as that is even."""
    names = list(members)
    least, more = divmod(len(partitions), len(names))
    given = frozenset[Partition]().union(*before.values())
    free = [p for p in partitions if p not in given]
    quotas = {name: least + (at < more) for at, name in enumerate(names)}
    target: dict[str, list[Partition]] = {}
    for name, quota in quotas.items():
        has = sorted(before.get(name, ()))
        target[name] = has[:quota]
        free += has[quota:]
    for name, quota in quotas.items():
        room = quota - len(target[name])
        target[name] += free[:room]
        free = free[room:]
    return {name: frozenset(has) for name, has in target.items()}


def encode_assignment(partitions: Iterable[Partition]) -> bytes:
    """Return the consumer embedded protocol's bytes of an assignment, which has no user data."""
    topics = by_topic(partitions, lambda partition: partition.partition)
    return bytes(ConsumerProtocolMemberAssignment(1, topics, None).encode())
