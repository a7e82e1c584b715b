"""Members whose pod's container has ended lose their membership at once, where pods may be read.

Theory of operation. Each member writes ``load`` records, and names its pod in them. A pod's status may say that the run
has terminated in which a member wrote its records (:mod:`~loadtrim_agent.leader.scaling.kubernetes.pod`). Then
LeaveGroup is sent for that member's id. The id is never given again, so it ends the process that is gone, or nobody.
The log is told, and all join at once::

    pods are watched    by the leader and by the first other member: the status comes as it is written
    a member is silent  its pod is read, whether or not pods are watched
    who acts            the leader if it is heard of and has not ended, else the first member of which that is true

A member that was watched for a while need not be silent: what it said tells which run it is of. One that came lately
has to be. Neither a status that comes late nor a clock that is wrong ends one that lives.

While all are heard of nothing is asked, but for the two watches. What fails costs nothing but time: the coordinator
notices by the session timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.kafka.backoff import Backoff
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod import Pod, ended_before, has_ended
from loadtrim_agent.protocol.pace import load_seconds
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LeftRecord, LoadRecord

__all__ = ["EndedPods", "pod_of"]

log = logging.getLogger("loadtrim")

LOOK_SECONDS: Final = 0.25
"""Between two looks for silent members, and at a pod that has not ended. Chosen: an API server answers in milliseconds,
and one member asks it, until the session timeout."""
SILENT_LOADS: Final = 1.5
"""A member is silent after so many of the longest times between two ``load`` records. Chosen: a look costs one
request."""
KNOWN_SECONDS: Final = 5.0
"""A member that was heard of for less is ended only when it is silent. Chosen: a status that comes as late as this, or
a clock that is as wrong, is rare. Both together would have to be there to end a member that lives."""
AGAIN_SECONDS: Final = 1.0
AGAIN_SECONDS_MAX: Final = 60.0
"""Pause before a watch that has broken is begun again, doubled up to a bound. Chosen: meanwhile silence tells."""
TELL_SECONDS_MAX: Final = 2.0
"""The log is told of members that were ended for so long. It takes milliseconds. Where a broker is away it is tried for
40 s, and meanwhile others may end. Chosen."""
TROUBLES_MAX: Final = 100
"""A trouble is told again after so many others. Chosen: the text of one may name a pod."""


class _Loads(msgspec.Struct, frozen=True):
    """The words of a member about itself."""

    pod: str
    uid: str
    first_said_at: float
    said_at: float
    """By the member's clock, seconds since the epoch."""
    first_heard_at: float
    heard_at: float
    """By the boot clock of this machine."""


class _Pods(Protocol):
    @property
    def watches(self) -> bool: ...

    async def pod(self, name: str) -> Pod: ...

    async def watch(self, take: Callable[[str, Pod], None]) -> None: ...


class _Leaver(Protocol):
    async def leave_group(self, member: str) -> bool: ...


class _Log(Protocol):
    async def write(self, record: Record) -> bool: ...


class _Agent(Protocol):
    def snapshot(self) -> MachineSnapshot: ...

    @property
    def requests(self) -> _Leaver: ...

    @property
    def log(self) -> _Log | None: ...


class _Fence(Protocol):
    def holds(self) -> bool: ...


def pod_of(instance: str, uid: str) -> str:
    """Return what a member says of its pod; empty: it may not be ended by its pod's status."""
    return f"{instance}/{uid}" if uid else ""


class EndedPods:
    """One member's look at the pods of its group.

    Args:
        pods: of this pod's namespace.
        agent: whose member looks.
        fence: its lease; one that was frozen has read nothing for a while, and takes everybody for silent.
        clock: boot-time seconds.
    """

    def __init__(self, pods: _Pods, agent: _Agent, fence: _Fence, clock: Callable[[], float] = boot_time) -> None:
        self._pods = pods
        self._agent = agent
        self._fence = fence
        self._clock = clock
        self._heard: dict[str, _Loads] = {}
        """Member -> what it said. Invariant: after a look, of members of the group alone."""
        self._terminated: dict[str, Pod] = {}
        """Name -> pod of which a run has terminated, as the watch shows it."""
        self._news = asyncio.Event()
        self._watching: asyncio.Timeout | None = None
        """Ends the watch that is open; None: there is none."""
        self._told: set[str] = set()
        """The troubles that were told."""

    def note_load(self, record: LoadRecord) -> None:
        """Take in a sign of life."""
        name, _, uid = record.pod.partition("/")
        if not name or not uid:
            return
        now, before = self._clock(), self._heard.get(record.member)
        first = (before.first_said_at, before.first_heard_at) if before is not None else (record.at, now)
        self._heard[record.member] = _Loads(name, uid, min(first[0], record.at), record.at, first[1], now)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            self._news.clear()
            self._leave_watching()
            await self._look()

    async def _look(self) -> None:
        group = self._agent.snapshot()
        # Also in a rebalance: it waits for the one that is gone, as soon as any other member has come.
        if group.assignment is None or not self._fence.holds():
            return
        members = group.assignment.members
        self._heard = {member: heard for member, heard in self._heard.items() if member in members}
        ended, silent = self._ended(group.member), self._silent(group.member, len(members))
        if self._first(group, ended.keys() | silent.keys()) != group.member:
            return
        gone = [member for member, how in ended.items() if await self._end(member, how)]
        for member, heard in silent.items():
            if member not in ended and (how := await self._ended_by_now(heard)) and await self._end(member, how):
                gone.append(member)
        await self._tell_left(gone)

    @staticmethod
    def _first(group: MachineSnapshot, gone: Collection[str]) -> str:
        """Return the member that acts: the leader, or where that is gone the first of the others."""
        assert group.assignment is not None, "the caller has looked"
        alive = [member for member in group.assignment.members if member not in gone]
        return group.leader if group.leader in alive else min(alive, default="")

    def _ended(self, own: str) -> dict[str, str]:
        """Return how members have ended, as the watch shows it."""
        found, now = {}, self._clock()
        for member, heard in sorted(self._heard.items()):
            pod = self._terminated.get(heard.pod)
            if pod is None or member == own or now - heard.first_heard_at < KNOWN_SECONDS:
                continue
            if how := ended_before(pod, heard.uid, heard.first_said_at, heard.said_at):
                found[member] = how
        return found

    def _silent(self, own: str, members: int) -> dict[str, _Loads]:
        """Return the members that are silent."""
        limit, now = SILENT_LOADS * load_seconds(members), self._clock()
        return {
            member: heard
            for member, heard in sorted(self._heard.items())
            if member != own and now - heard.heard_at > limit
        }

    async def _ended_by_now(self, heard: _Loads) -> str:
        """Read the pod of a member that is silent, and return how it has ended; empty: it has not, or nobody knows."""
        try:
            return has_ended(await self._pods.pod(heard.pod), heard.uid, heard.said_at)
        except ApiError as error:
            self._tell(
                error,
                "get",
                "A pod that has fallen silent cannot be looked at",
                "if it has ended, its partitions wait for the session timeout",
            )
            return ""

    async def _end(self, member: str, how: str) -> bool:
        """End a member, and return whether the coordinator says so."""
        # Without an answer it is asked for again, with the next look.
        if not self._fence.holds() or not await self._agent.requests.leave_group(member):
            return False
        log.warning("%s has ended (%s): its partitions are taken over now.", self._heard[member].pod, how)
        del self._heard[member]
        return True

    async def _tell_left(self, gone: Sequence[str]) -> None:
        """Tell the log of members that were ended; else each member would hear of it by its next heartbeat."""
        group, control = self._agent.snapshot(), self._agent.log
        if control is None or not gone:
            return
        records = [
            LeftRecord(group=group.config.group, member=member, at=wall_time(), generation=group.generation)
            for member in gone
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_SECONDS_MAX):
                await asyncio.gather(*(control.write(record) for record in records))

    # -- the watch -----------------------------------------------------------------------------------------------

    async def keep_watch(self) -> None:
        """Watch for ever, at times when this member is one of the two that do."""
        backoff = Backoff(AGAIN_SECONDS, AGAIN_SECONDS_MAX)
        while self._pods.watches:
            pause, began = LOOK_SECONDS, self._clock()
            if self._is_watcher():
                try:
                    await self._watch()
                except ApiError as error:
                    self._tell(error, "watch", "Pods cannot be watched", "that one has ended is told by its silence")
                    if self._clock() - began > AGAIN_SECONDS_MAX:
                        backoff.succeeded()
                    pause = backoff.failed()
            await asyncio.sleep(pause)

    def _is_watcher(self) -> bool:
        """Return whether this is the leader, or the member that acts where the leader has ended."""
        group = self._agent.snapshot()
        if group.assignment is None or group.member not in group.assignment.members:
            return False
        return group.member in (group.leader, self._first(group, {group.leader}))

    async def _watch(self) -> None:
        """Watch until the API server ends it, or until others are to.

        Raises:
            ApiError: it was refused, or has broken.
        """
        self._terminated.clear()
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._pods.watch(self._take)
        except TimeoutError:
            log.debug("The pods are watched by others from now on")
        finally:
            self._watching = None
            self._terminated.clear()

    def _leave_watching(self) -> None:
        """End the watch if others are to."""
        if self._watching is not None and not self._watching.expired() and not self._is_watcher():
            self._watching.reschedule(0.0)

    def _take(self, kind: str, pod: Pod) -> None:
        if kind != "DELETED" and pod.has_terminated_run:
            self._terminated[pod.metadata.name] = pod
            self._news.set()
        else:
            self._terminated.pop(pod.metadata.name, None)

    def _tell(self, error: ApiError, verb: str, what: str, then: str) -> None:
        """Log a trouble once.

        Args:
            error: of the API server.
            verb: that was asked for.
            what: that cannot be done.
            then: what becomes of a pod that has ended.
        """
        said = f"{what} ({error.status} {error.message})" if error.status else f"{what} ({error.message})"
        if said in self._told:
            return
        if len(self._told) == TROUBLES_MAX:
            self._told.clear()
        self._told.add(said)
        rights = f" It takes a Role that permits {verb} on pods." if error.status == HTTPStatus.FORBIDDEN else ""
        log.warning("%s: %s.%s", said, then, rights)
