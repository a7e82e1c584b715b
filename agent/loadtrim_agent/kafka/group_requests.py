"""Group requests: sends what the machine commands and turns the answers into its events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from msgspec import structs

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import Spawner
from loadtrim_agent.protocol.commands import (
    FetchCommittedCommand,
    FindCoordinatorCommand,
    SendCommitCommand,
    SendHeartbeatCommand,
    SendJoinCommand,
    SendLeaveCommand,
    SendSyncCommand,
)
from loadtrim_agent.protocol.events import (
    CommitAnsweredEvent,
    CommittedFetchedEvent,
    CoordinatorFoundEvent,
    HeartbeatAnsweredEvent,
    JoinAnsweredEvent,
    LeaveAnsweredEvent,
    SyncAnsweredEvent,
)
from loadtrim_agent.protocol.group_config import REFUSED_FOR_GOOD, RETRIABLE, Code, GroupConfig
from loadtrim_agent.wire.envelope import MALFORMED

from .connections import UNREACHABLE, Backoff, Channel, Coordinator
from .consumer_protocol import by_topic, decode_answer, decode_member, encode_answer, encode_subscription
from .ports import EventFeed
from .transactional import StableOffsetsRequest

__all__ = ["FetchedOffsets", "GroupRequests"]

log = logging.getLogger("loadtrim")

LEAVE_TIMEOUT_SECONDS = 3.0


class FetchedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an OffsetFetch."""

    code: int = 0
    """Of the request as a whole; 0: it was carried out."""
    offsets: dict[Partition, int] = {}
    """Committed offset; -1: there is none."""
    unstable: frozenset[Partition] = frozenset()
    """Partitions whose offset is part of an open transaction."""
    refused: dict[Partition, int] = {}
    """Partitions whose offset the broker refuses to tell, with the code of each."""


class GroupRequests:
    """The group's side of the shell. Every method returns at once; answers come as events.

    Args:
        config: the protocol's settings.
        coordinator: its client is started.
        events: takes the answers as events of the machine.
        tasks: owns the requests under way.
    """

    def __init__(
        self,
        config: GroupConfig,
        coordinator: Coordinator,
        events: EventFeed,
        tasks: Spawner,
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._events = events
        self._tasks = tasks
        self._looking = False
        self._unstable: frozenset[Partition] = frozenset()
        """Said to be waited for."""
        self.unanswered_commits: dict[Partition, float] = {}
        """Partition -> time at which a commit of it was given up without an answer; taken out by what repeats it."""
        self._unreadable = False
        """The leader's map could not be read at the last rebalance, which was told."""
        self._protocol = ""
        """Protocol of the JoinGroup answered last: how the SyncGroup's bytes are to be read."""

    def find_coordinator(self, command: FindCoordinatorCommand) -> None:
        if not self._looking:
            self._looking = True
            self._tasks.spawn(self._find_coordinator(), "find-coordinator")

    async def _find_coordinator(self) -> None:
        complained = False
        backoff = Backoff(self._config.retry_backoff)
        try:
            while True:
                try:
                    taken_over = await self._coordinator.find()
                    break
                except GroupAuthorizationFailedError as error:
                    raise GroupAuthorizationFailedError(
                        f"This principal may not use group {self._config.group}: allow it READ on the group."
                    ) from error
                except UNREACHABLE as error:
                    level = logging.DEBUG if complained else logging.WARNING
                    complained = True
                    log.log(
                        level,
                        "The coordinator of group %s cannot be reached (%r). What is owned goes on being consumed "
                        "while the lease lasts; trying again.",
                        self._config.group,
                        error,
                    )
                    await asyncio.sleep(backoff.failed())
        finally:
            self._looking = False
        self._events.feed(CoordinatorFoundEvent(now=boot_time(), taken_over=taken_over))

    def join(self, command: SendJoinCommand) -> None:
        if command.fresh:
            self._coordinator.cut(Channel.JOIN)
        self._tasks.spawn(self._join(command), f"join-{command.attempt}")

    async def _join(self, command: SendJoinCommand) -> None:
        metadata = encode_subscription(command.topics, command.owned, command.attempt)
        request = JoinGroupRequest(
            self._config.group,
            int(self._config.session_timeout * 1000),
            int(self._config.rebalance_timeout * 1000),
            command.member,
            None,
            "consumer",
            [(protocol, metadata) for protocol in command.protocols],
        )
        sent_at = boot_time()
        event = JoinAnsweredEvent(now=sent_at, sent_at=sent_at, attempt=command.attempt, code=Code.DISCONNECTED)
        try:
            # The channel is given a moment more than the protocol waits, so that the machine decides about time-outs.
            answer = await self._coordinator.ask(Channel.JOIN, request, timeout=self._config.rebalance_timeout + 5)
            members = () if answer.error_code else _members(answer.members)
            event = structs.replace(
                event,
                code=answer.error_code,
                member=answer.member_id,
                generation=answer.generation_id,
                protocol=answer.group_protocol or "",
                leader=answer.leader_id,
                members=members,
            )
            if answer.error_code == 0:
                self._protocol = event.protocol
        except UNREACHABLE as error:
            log.debug("JoinGroup %d was not answered: %r", command.attempt, error)
        self._events.feed(structs.replace(event, now=boot_time()))

    def sync(self, command: SendSyncCommand) -> None:
        self._tasks.spawn(self._sync(command, self._protocol), f"sync-{command.attempt}")

    async def _sync(self, command: SendSyncCommand, protocol: str) -> None:
        request = SyncGroupRequest(
            self._config.group,
            command.generation,
            command.member,
            None,
            [(member, encode_answer(answer, protocol)) for member, answer in sorted(command.answers.items())],
        )
        sent_at = boot_time()
        code, given = int(Code.DISCONNECTED), None
        try:
            answer = await self._coordinator.ask(Channel.JOIN, request, timeout=self._config.rebalance_timeout)
            code = answer.error_code
            if code == 0:
                given = decode_answer(answer.member_assignment, protocol)
                self._unreadable = False
        except UNREACHABLE as error:
            log.debug("SyncGroup of generation %d was not answered: %r", command.generation, error)
        except MALFORMED as error:
            log.log(
                logging.DEBUG if self._unreadable else logging.WARNING,
                "The leader's map of generation %d cannot be read: %s. Joining again until it can be; said once.",
                command.generation,
                error,
            )
            self._unreadable = True
        self._events.feed(
            SyncAnsweredEvent(
                now=boot_time(),
                sent_at=sent_at,
                attempt=command.attempt,
                generation=command.generation,
                code=code,
                answer=given,
            )
        )

    def heartbeat(self, command: SendHeartbeatCommand) -> None:
        self._tasks.spawn(self._heartbeat(command), "heartbeat")

    async def _heartbeat(self, command: SendHeartbeatCommand) -> None:
        request = HeartbeatRequest(self._config.group, command.generation, command.member)
        sent_at = boot_time()
        code = int(Code.DISCONNECTED)
        try:
            # Several tries must fit into one session.
            answer = await self._coordinator.ask(Channel.HEARTBEAT, request, timeout=self._config.session_timeout / 4)
            code = answer.error_code
        except UNREACHABLE as error:
            log.debug("A heartbeat was not answered: %r", error)
        self._events.feed(
            HeartbeatAnsweredEvent(
                now=boot_time(), sent_at=sent_at, member=command.member, generation=command.generation, code=code
            )
        )

    def commit(self, command: SendCommitCommand) -> None:
        self._tasks.spawn(self._commit(command), f"commit-{command.commit}")

    async def _commit(self, command: SendCommitCommand) -> None:
        offsets = command.offsets
        topics = by_topic(offsets, lambda partition: (partition.partition, *offsets[partition]))
        request = OffsetCommitRequest(self._config.group, command.generation, command.member, -1, topics)
        codes: dict[Partition, int] = {}
        try:
            answer = await self._coordinator.ask(Channel.COMMIT, request, timeout=self._config.session_timeout)
            codes = {Partition(t, p): code for t, partitions in answer.topics for p, code in partitions}
        except UNREACHABLE as error:
            log.debug("A commit was not answered: %r", error)
            codes = dict.fromkeys(command.offsets, int(Code.DISCONNECTED))
            self.unanswered_commits.update(dict.fromkeys(command.offsets, boot_time()))
        if log.isEnabledFor(logging.DEBUG):
            told = ", ".join(f"{p}={codes.get(p, '?')}" for p in sorted(command.offsets))
            log.debug("Commit answered to %s in generation %d: %s", command.member, command.generation, told)
        self._events.feed(
            CommitAnsweredEvent(
                now=boot_time(),
                commit=command.commit,
                member=command.member,
                generation=command.generation,
                codes=codes,
            )
        )

    def fetch_committed(self, command: FetchCommittedCommand) -> None:
        self._tasks.spawn(self._fetch_committed(command), f"committed-{command.fetch}")

    async def _fetch_committed(self, command: FetchCommittedCommand) -> None:
        fetched = await self.committed(command.partitions, stable=True)
        self._say_unstable(fetched.unstable)
        self._events.feed(
            CommittedFetchedEvent(
                now=boot_time(),
                fetch=command.fetch,
                code=fetched.code,
                offsets=fetched.offsets,
                unstable=fetched.unstable,
                refused=fetched.refused,
            )
        )

    def _say_unstable(self, unstable: frozenset[Partition]) -> None:
        if unstable - self._unstable:
            log.warning(
                "The committed offsets of %s are part of a transaction that is still open. They are waited for, so "
                "that nothing is done twice: until it is committed or aborted, at the latest by its producer's "
                "transaction_timeout_ms; a producer that starts with the same transactional_id ends it at once.",
                ", ".join(f"{topic}-{index}" for topic, index in sorted(unstable)),
            )
        self._unstable = unstable

    async def committed(self, partitions: Iterable[Partition], *, stable: bool) -> FetchedOffsets:
        """Ask for committed offsets.

        Args:
            partitions: which.
            stable: give no offset that an open transaction may still change.
        """
        kind = StableOffsetsRequest if stable else OffsetFetchRequest
        request = kind(self._config.group, by_topic(partitions, lambda partition: partition.partition))
        try:
            answer = await self._coordinator.ask(Channel.OFFSETS, request, timeout=self._config.session_timeout)
        except UNREACHABLE as error:
            log.debug("An offset fetch was not answered: %r", error)
            return FetchedOffsets(code=int(Code.DISCONNECTED))
        code = int(getattr(answer, "error_code", 0))
        offsets: dict[Partition, int] = {}
        refused: dict[Partition, int] = {}
        unstable: set[Partition] = set()
        for topic, entries, *_ in answer.topics:
            for entry in entries:
                index, offset, partition_code = _offset_entry(entry)
                partition = Partition(topic, index)
                if partition_code == Code.NONE:
                    offsets[partition] = offset
                elif partition_code == Code.UNSTABLE_OFFSET_COMMIT:
                    unstable.add(partition)
                elif partition_code in RETRIABLE | REFUSED_FOR_GOOD:
                    code = code or partition_code  # of the group: old brokers say it at each partition
                else:
                    refused[partition] = partition_code
        return FetchedOffsets(code=code, offsets=offsets, unstable=frozenset(unstable), refused=refused)

    async def connect(self) -> None:
        """Find the coordinator while the agent starts: connections cost more than anything else of a start.

        What fails here is tried again by the first request that needs it.
        """
        with contextlib.suppress(*UNREACHABLE):
            if await self._coordinator.find():
                self._events.feed(CoordinatorFoundEvent(now=boot_time(), taken_over=True))

    async def committed_or_none(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Committed offset per partition as far as it can be told now; negative where there is none."""
        return (await self.committed(partitions, stable=False)).offsets

    async def describe(self) -> tuple[str, str]:
        """(state of the group, assignment protocol in use) as the coordinator says; empty where it does not."""
        try:
            request = DescribeGroupsRequest([self._config.group])
            answer = await self._coordinator.ask(Channel.OFFSETS, request, timeout=self._config.session_timeout)
            _, _, state, _, protocol, *_ = answer.groups[0]
        except (*UNREACHABLE, LookupError, ValueError) as error:
            log.debug("Group %s could not be described: %r", self._config.group, error)
            return "", ""
        return state or "", protocol or ""

    def leave(self, command: SendLeaveCommand) -> None:
        self._tasks.spawn(self._leave(command), "leave")

    async def _leave(self, command: SendLeaveCommand) -> None:
        await self.leave_group(command.member)
        self._events.feed(LeaveAnsweredEvent(now=boot_time()))

    async def leave_group(self, member: str) -> bool:
        """Tell the coordinator that a member leaves. Returns whether it is no member, as far as the answer tells."""
        try:
            request = LeaveGroupRequest(self._config.group, member)
            answer = await self._coordinator.ask(Channel.HEARTBEAT, request, timeout=LEAVE_TIMEOUT_SECONDS)
        except UNREACHABLE as error:
            log.info("The group was left without an answer (%r): it notices by the session timeout.", error)
            return False
        return answer.error_code in (Code.NONE, Code.UNKNOWN_MEMBER_ID)


def _offset_entry(entry: tuple[Any, ...]) -> tuple[int, int, int]:
    """(partition number, offset, code) as the versions of OffsetFetch have it: 7 has a leader epoch and tags more."""
    index, offset, *_, code = entry[:5] if len(entry) > 5 else entry
    return index, offset, code


def _members(members: Iterable[Any]) -> tuple[Any, ...]:
    """(id, [instance id,] metadata) as the versions of JoinGroup have it."""
    return tuple(decode_member(member[0], member[-1]) for member in members)
