"""Members whose pod's container has ended lose their membership at once, where pods may be read.

Theory of operation. Each member writes ``load`` records, and names its pod in them. One member of the group reads the
pod of each member that has fallen silent: the leader if it is heard of, else the first one by its id. The pod's status
may say that the run has terminated in which that member wrote its last record
(:mod:`~loadtrim_agent.leader.scaling.kubernetes.pod`). Then LeaveGroup is sent for that member's id. The id is never
given again, so it ends the process that is gone, or nobody.

While all are heard of, nothing is asked. What fails costs nothing but time: the coordinator notices by the session
timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod import Pod, has_ended
from loadtrim_agent.protocol.pace import load_seconds
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.ownership_records import LoadRecord

__all__ = ["EndedPods", "pod_of"]

log = logging.getLogger("loadtrim")

LOOK_SECONDS: Final = 0.25
"""Between two looks for silent members, and at a pod that has not ended. Chosen: an API server answers in milliseconds,
and one member asks it, until the session timeout."""
SILENT_LOADS: Final = 1.5
"""A member is silent after so many of the longest times between two ``load`` records. Chosen: a look costs one
request."""
TROUBLES_MAX: Final = 100
"""A trouble is told again after so many others. Chosen: the text of one may name a pod."""
FORBIDDEN: Final = 403


class _LastLoad(msgspec.Struct, frozen=True):
    pod: str
    uid: str
    said_at: float
    """By the member's clock, seconds since the epoch."""
    heard_at: float
    """By the boot clock of this machine."""


class _Pods(Protocol):
    async def pod(self, name: str) -> Pod: ...


class _Leaver(Protocol):
    async def leave_group(self, member: str) -> bool: ...


class _Agent(Protocol):
    def snapshot(self) -> MachineSnapshot: ...

    @property
    def requests(self) -> _Leaver: ...


class _Fence(Protocol):
    def holds(self) -> bool: ...


def pod_of(instance: str, uid: str) -> str:
    """Return what a member says of its pod; empty: it may not be ended by its pod's status."""
    return f"{instance}/{uid}" if uid else ""


class EndedPods:
    """One member's look at the pods of those that have fallen silent.

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
        self._heard: dict[str, _LastLoad] = {}
        """Member -> what it said last. Invariant: after a look, of members of the group alone."""
        self._told: set[str] = set()
        """The troubles that were told."""

    def note_load(self, record: LoadRecord) -> None:
        """Take in a sign of life."""
        name, _, uid = record.pod.partition("/")
        if name and uid:
            self._heard[record.member] = _LastLoad(name, uid, record.at, self._clock())

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if silent := self._silent():
                await self._look(silent)

    def _silent(self) -> dict[str, _LastLoad]:
        """Return the members that are silent, if it is this one that looks after them."""
        group = self._agent.snapshot()
        # Also in a rebalance: it waits for the one that is gone, as soon as any other member has come.
        if group.assignment is None or not self._fence.holds():
            return {}
        members, now = group.assignment.members, self._clock()
        self._heard = {member: heard for member, heard in self._heard.items() if member in members}
        limit = SILENT_LOADS * load_seconds(len(members))
        silent = {
            member: heard
            for member, heard in sorted(self._heard.items())
            if member != group.member and now - heard.heard_at > limit
        }
        alive = [member for member in members if member not in silent]
        first = group.leader if group.leader in alive else min(alive, default="")
        return silent if first == group.member else {}

    async def _look(self, silent: dict[str, _LastLoad]) -> None:
        for member, heard in silent.items():
            try:
                how = has_ended(await self._pods.pod(heard.pod), heard.uid, heard.said_at)
            except ApiError as error:
                self._tell(error)
                continue
            # Without an answer it is asked for again, with the next look.
            if how and self._fence.holds() and await self._agent.requests.leave_group(member):
                log.warning("%s has ended (%s): its partitions are taken over now.", heard.pod, how)
                del self._heard[member]

    def _tell(self, error: ApiError) -> None:
        """Log a trouble once."""
        said = f"{error.status} {error.message}" if error.status else error.message
        if said in self._told:
            return
        if len(self._told) == TROUBLES_MAX:
            self._told.clear()
        self._told.add(said)
        log.warning(
            "A pod that has fallen silent cannot be looked at (%s): if it has ended, its partitions wait for the "
            "session timeout.%s",
            said,
            " LOADTRIM_KUBERNETES_POD_UID takes a Role that permits get on pods." if error.status == FORBIDDEN else "",
        )
