"""One machine by hand: events in, commands out, for tests that read like transcripts."""

from __future__ import annotations

from typing import Any, TypeVar

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import LOADTRIM, Code, GroupConfig
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import AssignmentRecord, MemberEntry, ReleaseRecord

__all__ = ["GROUP", "ME", "OTHER", "Driver", "assignment_of", "release"]

GROUP = "payments-service"
ME, OTHER = "m1", "m2"
Kind = TypeVar("Kind", bound=c.Command)


def assignment_of(generation: int, leader: str = ME, attempt: int = 2, **owns: tuple[int, ...]) -> AssignmentRecord:
    """A map of topic ``orders``: ``m1=(0, 1), m2=()``. Attempt 2 for everybody: after the id was given."""
    members = {
        member: MemberEntry(attempt=attempt, topics=("orders",), owns=(("orders", indexes),) if indexes else ())
        for member, indexes in owns.items()
    }
    return AssignmentRecord(group=GROUP, member=leader, at=0.0, generation=generation, members=members)


def release(generation: int, index: int, version: int, source: str, target: str, offset: int = 7) -> ReleaseRecord:
    return ReleaseRecord(
        group=GROUP,
        member=source,
        at=0.0,
        generation=generation,
        topic="orders",
        partition=index,
        version=version,
        source=source,
        target=target,
        offset=offset,
    )


class Driver:
    """Feeds events at a time that only moves when told to, and keeps what was commanded last."""

    def __init__(self, **config: Any) -> None:
        settings: dict[str, Any] = {"group": GROUP, "topics": ("orders",), **config}
        self.machine = Machine(GroupConfig(**settings), wall_offset=1e9)
        self.now = 100.0
        self.out: list[c.Command] = []
        self._log_offset = 0

    # -- events --------------------------------------------------------------------------------------------------

    def feed(self, kind: type[e.Event], **fields: Any) -> list[c.Command]:
        self.out = self.machine.handle(kind(now=self.now, **fields))
        return self.out

    def after(self, seconds: float) -> list[c.Command]:
        """Time passes; whatever is due happens."""
        self.now += seconds
        return self.feed(e.TickEvent)

    def read(self, record: Record) -> list[c.Command]:
        """The log's next record."""
        self._log_offset += 1
        return self.feed(e.LogReadEvent, offset=self._log_offset - 1, record=record)

    def join_answered(self, **fields: Any) -> list[c.Command]:
        """The JoinGroup sent last is answered: well, for a member that does not lead."""
        answer: dict[str, Any] = {
            "sent_at": self.now,
            "attempt": self.machine.membership.rebalance.attempt,
            "code": Code.NONE,
            "member": ME,
            "generation": 1,
            "protocol": LOADTRIM,
            "leader": OTHER,
        }
        return self.feed(e.JoinAnsweredEvent, **{**answer, **fields})

    def sync_answered(self, code: int = Code.NONE, **answer: Any) -> list[c.Command]:
        membership = self.machine.membership
        return self.feed(
            e.SyncAnsweredEvent,
            sent_at=self.now,
            attempt=membership.rebalance.attempt,
            generation=membership.rebalance.generation,
            code=code,
            answer=e.GroupAnswer(**answer) if code == Code.NONE else None,
        )

    def heartbeat_answered(self, code: int, **fields: Any) -> list[c.Command]:
        membership = self.machine.membership
        answer = {"sent_at": self.now, "member": membership.member, "generation": membership.generation, **fields}
        return self.feed(e.HeartbeatAnsweredEvent, code=code, **answer)

    def commit_answered(self, code: int = Code.NONE) -> list[c.Command]:
        """The commit sent last is answered, with one code for all."""
        sent = self._last_commit
        return self.feed(
            e.CommitAnsweredEvent,
            commit=sent.commit,
            member=sent.member,
            generation=sent.generation,
            codes=dict.fromkeys(sent.offsets, int(code)),
        )

    # -- commands ------------------------------------------------------------------------------------------------

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Commands of this kind among the last ones."""
        found = [command for command in self.out if isinstance(command, kind)]
        if kind is c.SendCommitCommand and found:
            self._last_commit: Any = found[-1]
        return found

    def only(self, kind: type[Kind]) -> Kind:
        """The one command of this kind among the last ones."""
        (command,) = self.all(kind)
        return command

    def kinds(self) -> list[str]:
        """What was commanded, in order, without counts and the lease."""
        quiet = (c.CountCommand, c.LeaseCommand)
        return [type(x).__name__.removesuffix("Command") for x in self.out if not isinstance(x, quiet)]

    def counted(self) -> list[str]:
        return [command.what.label for command in self.all(c.CountCommand)]

    # -- ways in -------------------------------------------------------------------------------------------------

    def joining(self) -> Driver:
        """Started, with an id, its JoinGroup on the way."""
        self.feed(e.TopicsEvent, partitions={"orders": 4})
        self.feed(e.StartEvent)
        self.feed(e.CoordinatorFoundEvent)
        self.join_answered(code=Code.MEMBER_ID_REQUIRED)
        return self

    def entered(self, generation: int = 1, leader: str = OTHER, **owns: tuple[int, ...]) -> Driver:
        """In a generation with this map (by default: everything is mine), nothing opened yet."""
        self.joining()
        owns = owns or {ME: (0, 1), OTHER: ()}
        members: tuple[e.JoinedMember, ...] = ()
        if leader == ME:
            members = tuple(
                e.JoinedMember(
                    member=m, topics=("orders",), attempt=2, owned=tuple(Partition("orders", i) for i in indexes)
                )
                for m, indexes in owns.items()
            )
        self.join_answered(generation=generation, leader=leader, members=members)
        if self.all(c.ReadAssignmentCommand):
            self.feed(e.AssignmentFoundEvent, assignment=None)
        assignment = assignment_of(generation, leader, **owns)
        self.sync_answered(assignment=assignment)
        return self

    def into(self, generation: int, leader: str = OTHER, **owns: tuple[int, ...]) -> Driver:
        """The JoinGroup on its way is answered, and the map of this generation follows."""
        self.join_answered(generation=generation, leader=leader)
        self.sync_answered(
            assignment=assignment_of(generation, leader, self.machine.membership.rebalance.attempt, **owns)
        )
        return self

    def running(self, *indexes: int, offset: int = 5, **entered: Any) -> Driver:
        """As :meth:`entered`, and what is mine runs from ``offset`` on."""
        owns = entered.pop("owns", {ME: indexes or (0, 1), OTHER: ()})
        self.entered(**entered, **owns)
        self.open_all(offset)
        return self

    def open_all(self, offset: int = 5) -> None:
        for fetch in self.all(c.FetchCommittedCommand):
            self.feed(
                e.CommittedFetchedEvent, fetch=fetch.fetch, code=0, offsets=dict.fromkeys(fetch.partitions, offset)
            )
            for opening in self.all(c.OpenCommand):
                self.feed(
                    e.OpenedEvent, partition=opening.partition, acquisition_id=opening.acquisition_id, position=offset
                )

    def acquisition_of(self, partition: Partition) -> int:
        return self.machine.partitions.assigned[partition].acquisition_id

    def give(self, partition: Partition, target: str = OTHER) -> list[c.Command]:
        """It is to be given away, and nothing is done that could be committed ahead: it stops."""
        self.feed(e.MoveWantedEvent, partition=partition, target=target)
        if not self.all(c.GatherCommitsCommand):
            return self.out
        self.feed(e.CommitWantedEvent, offsets={})
        return self.idle_point(partition, done=None)

    def idle_point(self, partition: Partition, done: int | None, *, busy: bool = False) -> list[c.Command]:
        """The answer to an AwaitIdlePointCommand."""
        assert partition in [command.partition for command in self.all(c.AwaitIdlePointCommand)]
        return self.feed(
            e.IdlePointEvent, partition=partition, acquisition_id=self.acquisition_of(partition), done=done, busy=busy
        )

    def drained(self, partition: Partition, done: int | None) -> list[c.Command]:
        return self.feed(e.DrainedEvent, partition=partition, acquisition_id=self.acquisition_of(partition), done=done)
