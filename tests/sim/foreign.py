"""A member without the agent: a plain eager consumer, as aiokafka's is. It makes the group a mixed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.assignment import assign_standard
from loadtrim_agent.protocol.events import JoinedMember
from loadtrim_agent.protocol.group_config import Code

from .coordinator import (
    CommitRequest,
    FetchRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)

if TYPE_CHECKING:
    from .world import World

__all__ = ["ForeignMember"]

PROTOCOLS = ("roundrobin",)
"""What aiokafka offers by default."""
WORK_SECONDS = 0.1
AGAIN_SECONDS = 0.1


class ForeignMember:
    """Joins, reads what it is given, commits, puts everything down for each rebalance."""

    def __init__(self, world: World, name: str, topics: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.gone = False
        self.member = ""
        self._generation = -1
        self._positions: dict[Partition, int] = {}
        self._joining = False
        self._leaving = False
        self._timeout = world.options.group.session_timeout_seconds
        connect = world.network.connect
        self._group, self._heartbeats, self._offsets = connect(name), connect(name), connect(name)

    def start(self) -> None:
        self._join()
        self._beat()
        self._work()

    def leave(self) -> None:
        self._leaving = True
        self._commit(self._left)

    def excused_since(self, time: float) -> bool:
        return True

    def _join(self) -> None:
        if self.gone or self._leaving:
            return
        self._joining = True
        self._positions = {}
        self._find()
        metadata = JoinedMember(member="", topics=self.topics)
        request = JoinRequest(self.member, PROTOCOLS, metadata, self._timeout, 2 * self._timeout)
        self._group.ask(request, self._joined, timeout_seconds=2 * self._timeout)

    def _find(self) -> None:
        for connection in (self._group, self._heartbeats, self._offsets):
            connection.find()

    def _joined(self, reply: JoinReply | int) -> None:
        if self.gone:
            return
        if isinstance(reply, int) or reply.code not in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            if reply == Code.UNKNOWN_MEMBER_ID or getattr(reply, "code", 0) == Code.UNKNOWN_MEMBER_ID:
                self.member = ""
            self.world.scheduler.after(AGAIN_SECONDS, self._join)
            return
        self.member = reply.member
        if reply.code == Code.MEMBER_ID_REQUIRED:
            self._join()
            return
        self._generation = reply.generation
        answers = {}
        if reply.leader == reply.member:
            # A foreign leader knows nothing of claims: it deals everything out anew.
            plain = [JoinedMember(member=m.member, topics=m.topics) for m in reply.members]
            answers = assign_standard(reply.protocol, plain, self.world.topics)
        request = SyncRequest(self.member, self._generation, answers)
        self._group.ask(request, self._synced, timeout_seconds=2 * self._timeout)

    def _synced(self, reply: object) -> None:
        answer = getattr(reply, "answer", None)
        if self.gone:
            return
        if answer is None:
            self._join()
            return
        self._joining = False
        self._offsets.ask(FetchRequest(answer.partitions), self._start, timeout_seconds=self._timeout)

    def _start(self, reply: dict[Partition, int] | int) -> None:
        if isinstance(reply, dict) and not self._joining:
            for partition, offset in reply.items():
                data = self.world.data[partition]
                position = offset if offset >= 0 else (data.end if self.world.options.group.reset_latest else 0)
                if offset >= 0 or not self.world.options.group.reset_latest:
                    data.start(position)  # what a plain consumer skips that dies before its first commit is its own
                self._positions[partition] = position

    def _beat(self) -> None:
        if self.gone:
            return
        self.world.scheduler.after(1.0, self._beat)
        if self.member and not self._joining:
            request = HeartbeatRequest(self.member, self._generation)
            self._heartbeats.ask(request, self._beaten, timeout_seconds=self._timeout / 4)

    def _beaten(self, code: int) -> None:
        if self._joining or self._leaving:
            return
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member, self._positions = "", {}
            self._join()
        elif code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            self._joining = True
            self._commit(self._join)
        elif code == Code.NOT_COORDINATOR:
            self._find()

    def _work(self) -> None:
        """Do what is there, at once."""
        if self.gone:
            return
        self.world.scheduler.after(WORK_SECONDS, self._work)
        if self._joining or self._leaving:
            return
        for partition in list(self._positions):
            data = self.world.data[partition]
            if self._positions[partition] < data.end:
                self.world.handed_to_foreign(self, partition, self._positions[partition])
                data.mark_done(self._positions[partition])
                self._positions[partition] += 1

    def _commit(self, then: object) -> None:
        assert callable(then)
        if not self._positions:
            then()
            return
        request = CommitRequest(self.member, self._generation, dict(self._positions))
        self._offsets.ask(request, lambda reply: then(), timeout_seconds=1.0)

    def _left(self) -> None:
        self._positions = {}
        self._heartbeats.ask(LeaveRequest(self.member), lambda code: self._end(), timeout_seconds=1.0)

    def _end(self) -> None:
        self.gone = True
