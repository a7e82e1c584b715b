"""The coordinator of one group: a classic one (``sim.coordinator``), or one whose partitions the broker assigns.

A member of the consumer protocol (KIP-848) makes the first into the second, and the last one to go makes it the first
again, as Kafka 4.1 does with its default ``group.consumer.migration.policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from io import BytesIO
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.group_config import Code
from sim.coordinator import (
    CommitRequest,
    Coordinator,
    FetchRequest,
    GroupState,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
    by_nobody,
)

from .consumer_group import ConsumerGroup, HeartbeatAnswer, encode_assignment
from .kernel import Kernel

__all__ = ["GROUP_ID_NOT_FOUND", "GroupModel"]

GROUP_ID_NOT_FOUND = 69


class GroupModel(Coordinator):
    """The coordinator of one group, with metadata as bytes.

    Args:
        kernel: virtual time.
        counts: topic -> partitions, as they are at any time.
    """

    def __init__(self, kernel: Kernel, counts: Mapping[str, int]) -> None:
        super().__init__(kernel.scheduler)
        self._counts = counts
        self.name_member = lambda member, metadata, protocol: (member, dict(metadata)[protocol])
        self.assigning: ConsumerGroup | None = None
        """The group as it is while the broker assigns; None: it is a classic one."""
        self.converts_back = True
        """``group.consumer.migration.policy`` is ``bidirectional``; else it is ``upgrade``."""

    def serve(self, request: Any, reply: Callable[[Any], None]) -> None:
        """Answer a classic member."""
        group = self.assigning
        if group is not None and not group.members and isinstance(request, JoinRequest):
            self._begin_anew()
            group = None
        if not self.up or self.loads or group is None or isinstance(request, FetchRequest):
            super().serve(request, reply)
        else:
            reply(self._answer(group, request))

    def _answer(self, group: ConsumerGroup, request: Any) -> Any:
        match request:
            case JoinRequest():
                return self._join_assigned(group, request)
            case SyncRequest():
                return group.sync(request)
            case HeartbeatRequest():
                return group.classic_heartbeat(request.member, request.generation)
            case LeaveRequest():
                known = request.member in group.members
                group.remove(request.member)
                return Code.NONE if known else Code.UNKNOWN_MEMBER_ID
            case CommitRequest():
                return self.commit(request.member, request.generation, request.offsets)
        raise AssertionError(request)

    def _join_assigned(self, group: ConsumerGroup, request: JoinRequest) -> JoinReply:
        if not group.supports(request):
            return JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL)
        if request.member:
            return group.join(request)
        return JoinReply(Code.MEMBER_ID_REQUIRED, member=self.new_name())

    # -- members of the consumer protocol ------------------------------------------------------------------------

    def heartbeat(
        self, name: str, epoch: int, owned: Collection[Partition], topics: tuple[str, ...]
    ) -> HeartbeatAnswer:
        """Answer a member of the consumer protocol; epoch 0: it joins."""
        if not self.up:
            return HeartbeatAnswer(Code.NOT_COORDINATOR)
        if self.assigning is None:
            code = GROUP_ID_NOT_FOUND if epoch else self._convert()
            if code:
                return HeartbeatAnswer(code)
        assert self.assigning is not None
        return self.assigning.heartbeat(name, epoch, owned, topics)

    def leave(self, name: str) -> None:
        """A member of the consumer protocol leaves, or is late with something."""
        group = self.assigning
        if group is None or not self.up or name not in group.members:
            return
        rest = [member for member in group.members.values() if member.name != name]
        classic = [member.asked for member in rest if member.asked is not None]
        if self.converts_back and group.members[name].asked is None and rest and len(classic) == len(rest):
            group.stop()
            self.assigning = None
            self.become(group.epoch, classic, {m.name: encode_assignment(group.target[m.name]) for m in rest})
        else:
            group.remove(name)

    def commit(self, member: str, epoch: int, offsets: dict[Partition, int]) -> dict[Partition, int]:
        """Keep offsets where the broker assigns, if the epoch is the member's."""
        unfenced = epoch < 0 and self.assigning is not None and not self.assigning.members
        code = 0 if unfenced else self.refusal(member, epoch)
        for partition, offset in offsets.items() if not code else ():
            self.commit_offset(member, partition, offset)
        return dict.fromkeys(offsets, int(code))

    # -- the one kind of group and the other ---------------------------------------------------------------------

    def _convert(self) -> int:
        """Let the broker assign from now on, or return the code of why not."""
        joined = self.joined()
        if self.state is not GroupState.EMPTY:
            # Also where the member is refused in the end: whoever waits is told to join again.
            self.interrupt()
            if any(self.protocol not in asked.protocols for asked in joined):
                return Code.UNKNOWN_SERVER_ERROR  # it has not assigned yet, or somebody is about to change its protocol
            if any(_has_user_data(self.answer_of(asked.member)) for asked in joined):
                return GROUP_ID_NOT_FOUND  # an assignor of its own: what it says to members would be lost
        group = ConsumerGroup(self._scheduler, self._counts, self.generation if joined else 0)
        for asked in joined:
            group.take_in(asked, _partitions(self.answer_of(asked.member)))
        group.on_late = self.leave
        self.abandon()
        self.assigning = group
        return Code.NONE

    def _begin_anew(self) -> None:
        """An empty group of the one kind is forgotten when a member of the other kind comes, with its generation."""
        self.assigning = None
        self.become(0, [], {})

    # -- what the simulation does to it --------------------------------------------------------------------------

    def refusal(self, member: str, generation: int, *, transactional: bool = False) -> int:
        """Return the code for a member's offsets; 0: they are taken."""
        if self.assigning is None:
            return super().refusal(member, generation, transactional=transactional)
        if transactional and by_nobody(member, generation):
            return Code.NONE
        return self.assigning.refusal(member, generation)

    def remove_by_administrator(self, member: str) -> None:
        """Have an administrator remove a classic member."""
        if self.assigning is None:
            super().remove_by_administrator(member)
        elif self.up:
            self.assigning.remove(member)

    def fail(self, *, silent: bool) -> None:
        """The broker that coordinates is gone. Groups that the broker assigns are stored at each change."""
        super().fail(silent=silent)
        if self.assigning is not None:
            self.assigning.stop()

    def take_over(self, *, loads_seconds: float = 0.0) -> None:
        """Another broker coordinates."""
        super().take_over(loads_seconds=loads_seconds)
        if self.assigning is not None:
            self.assigning.load()


def _read(answer: Any) -> ConsumerProtocolMemberAssignment | None:
    return ConsumerProtocolMemberAssignment.decode(BytesIO(answer)) if isinstance(answer, bytes) and answer else None


def _has_user_data(answer: Any) -> bool:
    read = _read(answer)
    return read is not None and bool(read.user_data)


def _partitions(answer: Any) -> frozenset[Partition]:
    read = _read(answer)
    return frozenset(Partition(at.topic, at.partition) for at in read.partitions()) if read is not None else frozenset()
