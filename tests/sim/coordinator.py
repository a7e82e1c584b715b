"""Kafka's classic group coordinator, as ``GroupMetadataManager`` of Kafka 4.1 behaves, for one group.

Not modelled: static members, group size limits, authorization, ``group.initial.rebalance.delay.ms`` (0).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.events import GroupAnswer, JoinedMember
from loadtrim_agent.protocol.group_config import Code

from .scheduler import Scheduler

__all__ = [
    "CommitRequest",
    "Coordinator",
    "FetchRequest",
    "GroupState",
    "HeartbeatRequest",
    "JoinReply",
    "JoinRequest",
    "LeaveRequest",
    "SyncReply",
    "SyncRequest",
    "by_nobody",
]


class GroupState(enum.Enum):
    """The states of a classic group, by the names under which Kafka describes them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    member: str
    protocols: tuple[str, ...]
    metadata: Any
    """What the member says of itself; equal metadata stands for equal bytes."""
    session_timeout_seconds: float
    rebalance_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class JoinReply:
    code: int
    member: str = ""
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member: str
    generation: int
    answers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SyncReply:
    code: int
    answer: Any = None


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class CommitRequest:
    member: str
    generation: int
    offsets: dict[Partition, int]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    member: str


Reply = Callable[[Any], None]


@dataclass(slots=True)
class _Member:
    member: str
    protocols: tuple[str, ...]
    metadata: Any
    session_timeout: float
    rebalance_timeout: float
    session_ends: float = float("inf")
    watched: bool = False
    """A timer looks at :attr:`session_ends`."""
    join_reply: Reply | None = None
    sync_reply: Reply | None = None


@dataclass(slots=True)
class _Stored:
    """What survives a failover: the group as it was when it was last stable, or empty."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, JoinRequest] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)


WHILE_LOADING: dict[type, Code] = {
    HeartbeatRequest: Code.NONE,
    SyncRequest: Code.REBALANCE_IN_PROGRESS,
}
"""Answers of a coordinator that loads its groups, as in Kafka's own of 3.x and 4.x: a heartbeat is answered blindly."""


class Coordinator:
    """One group. Requests come through :meth:`serve`; answers go through the ``reply`` given with each."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.up = True
        self._loads_until = 0.0
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, _Member] = {}
        self.offsets: dict[Partition, int] = {}
        self.leaders: dict[int, str] = {}
        """Generation -> leader that its members were told of, for the invariants."""
        self.refuses_sync: Callable[[], bool] = lambda: False
        self.successor: Callable[[list[str]], str] = lambda members: members[0]
        """Picks the leader behind one that is gone. Kafka takes the first of a map by hashes: any."""
        self.on_commit: Callable[[str, Partition, int], None] = lambda member, partition, offset: None
        self.on_stable: Callable[[], None] = lambda: None
        self.name_member: Callable[[str, Any, str], Any] = _named
        """(member, its metadata, the protocol in use) -> what the leader is told of it."""
        self._pending: set[str] = set()
        """Given an id (MEMBER_ID_REQUIRED) and not come back with it: the barrier waits for them."""
        self._answers: dict[str, Any] = {}
        self._stored = _Stored()
        self._names = 0
        self._barrier = 0
        """Counts barriers, so that timers of earlier ones do nothing."""
        self._handlers: dict[type, Callable[[Any, Reply], None]] = {
            JoinRequest: self._join,
            SyncRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            CommitRequest: self._commit,
            FetchRequest: self._fetch,
            LeaveRequest: self._leave,
        }

    @property
    def loads(self) -> bool:
        """The broker that took over still reads what was stored of the group."""
        return self._scheduler.now < self._loads_until

    def serve(self, request: Any, reply: Reply) -> None:
        if not self.up:
            reply(refused(request, Code.NOT_COORDINATOR))
            return
        if self.loads:
            reply(refused(request, WHILE_LOADING.get(type(request), Code.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        self._handlers[type(request)](request, reply)

    # -- JoinGroup -----------------------------------------------------------------------------------------------

    def _join(self, request: JoinRequest, reply: Reply) -> None:
        others = [m for m in self.members.values() if m.member != request.member]
        if others and not set(request.protocols).intersection(*(m.protocols for m in others)):
            reply(JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.member:
            member = self.new_name()
            self._pending.add(member)
            self._scheduler.after(request.session_timeout_seconds, self._give_up_pending, member)
            reply(JoinReply(Code.MEMBER_ID_REQUIRED, member=member))
        elif request.member in self._pending:
            self._pending.discard(request.member)
            self._add(request, reply)
        elif request.member not in self.members:
            reply(JoinReply(Code.UNKNOWN_MEMBER_ID))
        else:
            self._rejoin(self.members[request.member], request, reply)

    def new_name(self) -> str:
        """Return an id that no member has had."""
        self._names += 1
        return f"m{self._names:03d}"

    def _add(self, request: JoinRequest, reply: Reply) -> None:
        member = _member(request)
        self.members[request.member] = member
        if not self.leader:
            self.leader = request.member
        member.join_reply = reply  # its session starts when this is answered
        self._prepare()
        self._complete_if_all_joined()

    def _rejoin(self, member: _Member, request: JoinRequest, reply: Reply) -> None:
        unchanged = member.metadata == request.metadata and member.protocols == request.protocols
        if self.state is GroupState.COMPLETING and unchanged:
            reply(self._join_reply(member))
            return
        if self.state is GroupState.STABLE and unchanged and member.member != self.leader:
            reply(self._join_reply(member))
            return
        member.metadata, member.protocols = request.metadata, request.protocols
        member.join_reply = reply
        self._prepare()
        self._complete_if_all_joined()

    def _prepare(self) -> None:
        if self.state is GroupState.PREPARING:
            return
        if self.state is GroupState.COMPLETING:
            self._answers = {}
            self._answer_syncs(SyncReply(Code.REBALANCE_IN_PROGRESS))
        self.state = GroupState.PREPARING
        self._barrier += 1
        longest = max(m.rebalance_timeout for m in self.members.values())
        self._scheduler.after(longest, self._barrier_over, self._barrier)

    def _barrier_over(self, barrier: int) -> None:
        if barrier == self._barrier and self.state is GroupState.PREPARING:
            self._complete()

    def _complete_if_all_joined(self) -> None:
        if (
            self.state is GroupState.PREPARING
            and not self._pending
            and all(m.join_reply is not None for m in self.members.values())
        ):
            self._complete()

    def _complete(self) -> None:
        for name in [m.member for m in self.members.values() if m.join_reply is None]:
            del self.members[name]
        self._barrier += 1
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        if self.leader not in self.members:
            self.leader = self.successor(list(self.members))
        self.protocol = self._vote()
        self.state = GroupState.COMPLETING
        self.leaders[self.generation] = self.leader
        for member in list(self.members.values()):
            reply, member.join_reply = member.join_reply, None
            self._renew(member)
            if reply is not None:
                reply(self._join_reply(member))
        longest = max(m.rebalance_timeout for m in self.members.values())
        self._scheduler.after(longest, self._sync_over, self._barrier)

    def _vote(self) -> str:
        shared = set.intersection(*(set(m.protocols) for m in self.members.values()))
        votes = [next(p for p in m.protocols if p in shared) for m in self.members.values()]
        return max(sorted(set(votes)), key=votes.count)

    def _join_reply(self, member: _Member) -> JoinReply:
        leads = member.member == self.leader
        return JoinReply(
            Code.NONE,
            member=member.member,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(self.name_member(m.member, m.metadata, self.protocol) for m in self.members.values())
            if leads
            else (),
        )

    # -- SyncGroup -----------------------------------------------------------------------------------------------

    def _sync(self, request: SyncRequest, reply: Reply) -> None:
        code = self._check(request.member, request.generation)
        if code:
            reply(SyncReply(code))
            return
        member = self.members[request.member]
        if self.state is GroupState.PREPARING:
            reply(SyncReply(Code.REBALANCE_IN_PROGRESS))
        elif self.state is GroupState.STABLE:
            # Kafka 3.9 renews the session here, 4.0 and later do not.
            reply(SyncReply(Code.NONE, self._answers.get(request.member, GroupAnswer())))
        else:
            member.sync_reply = reply
            if request.member == self.leader:
                self._store(request.answers)

    def _store(self, answers: Mapping[str, Any]) -> None:
        if self.refuses_sync():
            self._answer_syncs(SyncReply(Code.COORDINATOR_NOT_AVAILABLE))
            self._prepare()
            return
        self._answers = dict(answers)
        self.state = GroupState.STABLE
        self._keep()
        for member in list(self.members.values()):
            reply, member.sync_reply = member.sync_reply, None
            if reply is not None:
                self._renew(member)
                reply(SyncReply(Code.NONE, answers.get(member.member, GroupAnswer())))
        self.on_stable()

    def _answer_syncs(self, reply: SyncReply) -> None:
        for member in list(self.members.values()):
            waiting, member.sync_reply = member.sync_reply, None
            if waiting is not None:
                self._renew(member)
                waiting(reply)

    def _sync_over(self, barrier: int) -> None:
        if barrier == self._barrier and self.state is GroupState.COMPLETING:
            for name in [m.member for m in self.members.values() if m.sync_reply is None]:
                self._remove(name)

    # -- heartbeats, leaving, expiry -----------------------------------------------------------------------------

    def _heartbeat(self, request: HeartbeatRequest, reply: Reply) -> None:
        code = self._check(request.member, request.generation)
        if code:
            reply(code)
            return
        self._renew(self.members[request.member])
        reply(Code.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else Code.NONE)

    def _leave(self, request: LeaveRequest, reply: Reply) -> None:
        self._pending.discard(request.member)
        known = request.member in self.members
        if known:
            self._remove(request.member)
        else:
            self._complete_if_all_joined()
        reply(Code.NONE if known else Code.UNKNOWN_MEMBER_ID)

    def remove_by_administrator(self, member: str) -> None:
        if member in self.members:
            self._remove(member)

    def _remove(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is None:
            return
        if self.leader == name:
            self.leader = self.successor(list(self.members)) if self.members else ""
        if member.join_reply is not None:
            member.join_reply(JoinReply(Code.UNKNOWN_MEMBER_ID))
        if member.sync_reply is not None:
            member.sync_reply(SyncReply(Code.UNKNOWN_MEMBER_ID))
        if not self.members:
            self._barrier += 1
            self.generation += 1
            self._become_empty()
            return
        self._prepare()
        self._complete_if_all_joined()

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.leader = self.protocol = ""
        self._answers = {}
        self._keep()

    def _give_up_pending(self, member: str) -> None:
        if member in self._pending:
            self._pending.discard(member)
            self._complete_if_all_joined()

    def _renew(self, member: _Member) -> None:
        member.session_ends = self._scheduler.now + member.session_timeout
        if not member.watched:
            member.watched = True
            self._scheduler.at(member.session_ends, self._session_over, member)

    def _session_over(self, member: _Member) -> None:
        if self.members.get(member.member) is not member:
            return
        if member.join_reply is not None or member.sync_reply is not None:
            # Whoever waits in a barrier is taken for alive; its session starts again when it is answered.
            member.watched = False
        elif self._scheduler.now < member.session_ends:
            self._scheduler.at(member.session_ends, self._session_over, member)
        else:
            self._remove(member.member)

    # -- offsets -------------------------------------------------------------------------------------------------

    def _commit(self, request: CommitRequest, reply: Reply) -> None:
        unfenced = by_nobody(request.member, request.generation) and not self.members
        code = 0 if unfenced else self.refusal(request.member, request.generation)
        if not code:
            if request.member in self.members:
                self._renew(self.members[request.member])
            for partition, offset in request.offsets.items():
                self.commit_offset(request.member, partition, offset)
        reply(dict.fromkeys(request.offsets, int(code)))

    def refusal(self, member: str, generation: int, *, transactional: bool = False) -> int:
        """Return the code for a member's offsets; 0: they are taken.

        Offsets in a transaction are taken while the leader assigns, too, and without a member and a generation always.
        """
        if transactional and by_nobody(member, generation):
            return Code.NONE
        code = self._check(member, generation)
        completing = self.state is GroupState.COMPLETING and not transactional
        return Code.REBALANCE_IN_PROGRESS if not code and completing else code

    def commit_offset(self, member: str, partition: Partition, offset: int) -> None:
        """Keep an offset."""
        self.offsets[partition] = offset
        self.on_commit(member, partition, offset)

    def _fetch(self, request: FetchRequest, reply: Reply) -> None:
        reply({p: self.offsets.get(p, -1) for p in request.partitions})

    # -- failover ------------------------------------------------------------------------------------------------

    def fail(self, *, silent: bool) -> None:
        """The broker that coordinates is gone. ``silent``: parked requests are never answered."""
        self.up = False
        self._barrier += 1
        for member in self.members.values():
            for reply, answer in (
                (member.join_reply, JoinReply(Code.NOT_COORDINATOR)),
                (member.sync_reply, SyncReply(Code.NOT_COORDINATOR)),
            ):
                if reply is not None and not silent:
                    reply(answer)
        self.members = {}
        self._pending = set()

    def take_over(self, *, loads_seconds: float = 0.0) -> None:
        """Another broker loads what was stored: memory of a barrier that was going on is lost. Sessions begin then.

        Of each member the protocol in use was stored, and none of the others that it offered.
        """
        stored = self._stored
        self.up = True
        self.generation = stored.generation
        self.protocol = stored.protocol
        self.leader = stored.leader
        self._answers = dict(stored.answers)
        known = {"protocols": (stored.protocol,)}
        self.members = {name: _member(replace(request, **known)) for name, request in stored.members.items()}
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self._loads_until = self._scheduler.now + loads_seconds
        if loads_seconds:
            self._scheduler.after(loads_seconds, self._begin_sessions, list(self.members.values()))
        else:
            self._begin_sessions(list(self.members.values()))

    def _begin_sessions(self, loaded: list[_Member]) -> None:
        for member in loaded:
            if self.members.get(member.member) is member:
                self._renew(member)

    def _keep(self) -> None:
        members = {asked.member: asked for asked in self.joined()}
        self._stored = _Stored(self.generation, self.protocol, self.leader, members, dict(self._answers))

    # -- for a model of groups that are not always classic ones --------------------------------------------------

    def joined(self) -> list[JoinRequest]:
        """Return what each member joined with last."""
        return [
            JoinRequest(m.member, m.protocols, m.metadata, m.session_timeout, m.rebalance_timeout)
            for m in self.members.values()
        ]

    def answer_of(self, member: str) -> Any:
        """Return the assignment of a member that the broker has, which may be of the generation before; None: none."""
        return self._answers.get(member)

    def interrupt(self) -> None:
        """Tell whoever waits in a barrier to join again."""
        for member in list(self.members.values()):
            reply, member.join_reply = member.join_reply, None
            if reply is not None:
                self._renew(member)
                reply(JoinReply(Code.REBALANCE_IN_PROGRESS, member=member.member))
        self._answer_syncs(SyncReply(Code.REBALANCE_IN_PROGRESS))

    def abandon(self) -> None:
        """The group is not a classic one any more."""
        self._barrier += 1
        self.members = {}
        self._pending = set()
        self._become_empty()

    def become(self, generation: int, joined: list[JoinRequest], answers: dict[str, Any]) -> None:
        """It is a classic group again, of these members, which are to rebalance."""
        self.abandon()
        self.generation = generation
        self.members = {asked.member: _member(asked) for asked in joined}
        if joined:
            self.leader, self.protocol = joined[0].member, self._vote()
            self._answers = answers
            self.state = GroupState.STABLE
        self._keep()
        for member in list(self.members.values()):
            self._renew(member)
        if joined:
            self._prepare()

    def _check(self, member: str, generation: int) -> int:
        if member not in self.members or self.state is GroupState.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return Code.NONE


def _member(request: JoinRequest) -> _Member:
    return _Member(
        request.member,
        request.protocols,
        request.metadata,
        request.session_timeout_seconds,
        request.rebalance_timeout_seconds,
    )


def by_nobody(member: str, generation: int) -> bool:
    """Return whether offsets carry neither a member nor a generation: nothing fences them."""
    return not member and generation < 0


def _named(member: str, said: JoinedMember, protocol: str) -> JoinedMember:
    return JoinedMember(member=member, topics=said.topics, owned=said.owned, attempt=said.attempt)


def refused(request: Any, code: int) -> Any:
    """Return the answer that says nothing but this code."""
    match request:
        case JoinRequest():
            return JoinReply(code)
        case SyncRequest():
            return SyncReply(code)
        case CommitRequest():
            return dict.fromkeys(request.offsets, int(code))
        case _:
            return int(code)
