"""Replicas that somebody else has written: seen, told, and after some times left alone.

Another leader of the group is nobody else, and neither is a write of ours whose answer was lost: they have the group's
name. Another group's is a name of its own. Two groups would correct each other for ever, so the one that sees the
other's number holds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from ..port import ScaleRequest
from .manager import field_manager, group_of_manager, quoted
from .target import Target
from .workload import Workload

__all__ = ["FOREIGN_MAX", "FOREIGN_SECONDS", "ForeignChanges", "other_group", "other_group_of"]

log = logging.getLogger("loadtrim.scaling")

FOREIGN_MAX: Final = 3
FOREIGN_SECONDS: Final = 600.0
"""After so many foreign changes within this time nothing is written for as long again. Chosen: an autoscaler of
Kubernetes writes every 15 s and Argo CD every three minutes, a person seldom more than twice in an incident."""


class ForeignChanges:
    """Changes of the replicas by other writers than loadtrim, since its own.

    Args:
        respect: a foreign number stands until the leader wants another one than it did then.
        leased: the group holds the workload by a Lease, so that no other group does, whoever wrote last.
        clock: seconds.
    """

    def __init__(self, *, respect: bool, leased: bool, clock: Callable[[], float]) -> None:
        self._respect = respect
        self._leased = leased
        self._clock = clock
        self._written: int | None = None
        """Replicas that a leader has written, or this one found as it wanted them; None: it knows of none."""
        self._stands: tuple[int, int] | None = None
        """A foreign number that is respected, and the number that was wanted in the end when it came."""
        self._seen: deque[float] = deque(maxlen=FOREIGN_MAX)
        self._until = 0.0

    def wrote(self, replicas: int) -> None:
        """The workload has these replicas by the leader's will."""
        self._written, self._stands = replicas, None

    def found(self, wanted: ScaleRequest) -> None:
        """The workload has as many as are wanted now.

        A foreign number that stands goes on to: victims that drain are wanted too, and make up the same number. So it
        is no number of the leader's will either, unless as many are wanted in the end.
        """
        replicas = wanted.replicas
        if replicas == wanted.settled_replicas:
            self._written = replicas
        if self._stands is not None and self._stands[0] != replicas:
            self._stands = None

    def refuses(self, target: Target, workload: Workload, wanted: ScaleRequest) -> str:
        """Return why the replicas are left as they are, in words; empty: they may be written."""
        now, found = self._clock(), workload.replicas
        if not self._leased and (other := other_group(workload, wanted)):
            return (
                f"Two groups scale {target}: {quoted(other)} set its {found} replicas, {quoted(wanted.group)} wants "
                f"{wanted.replicas} and holds. Give each a workload of its own, or LOADTRIM_SCALER=none to one. If the "
                f"former is gone: kubectl scale {target} --replicas={wanted.replicas}"
            )
        if field_manager(wanted.group) in workload.writers:
            self.wrote(found)
        elif self._written is not None and found != self._written:
            self._notice(target, workload, now)
            self._stands = (found, wanted.settled_replicas) if self._respect else None
        if now < self._until:
            return (
                f"{target} is left at {found}: its replicas were changed by another writer {FOREIGN_MAX} times within "
                f"{FOREIGN_SECONDS:g} s. Let one of the two scale it; until then loadtrim only plans"
            )
        if self._stands == (found, wanted.settled_replicas):
            return (
                f"{target} is left at the {found} that somebody else set, until another number than "
                f"{wanted.settled_replicas} is wanted (LOADTRIM_KUBERNETES_FOREIGN=respect)"
            )
        return ""

    def _notice(self, target: Target, workload: Workload, now: float) -> None:
        writer = workload.writer or "somebody else"
        log.warning("%s: %s changed the replicas from %s to %d.", target, writer, self._written, workload.replicas)
        self._written = workload.replicas
        self._seen.append(now)
        if len(self._seen) == FOREIGN_MAX and now - self._seen[0] <= FOREIGN_SECONDS:
            self._until = now + FOREIGN_SECONDS
            self._seen.clear()
            log.error(
                "%s: another writer (%s) keeps changing the replicas. For %g s nothing is scaled, as in shadow mode; "
                "take away the other autoscaler, or set LOADTRIM_SCALER=none.",
                target,
                writer,
                FOREIGN_SECONDS,
            )


def other_group(workload: Workload, wanted: ScaleRequest) -> str:
    """Return the other group of loadtrim that wrote the replicas last; empty: none did."""
    return other_group_of(workload, wanted.group)


def other_group_of(workload: Workload, group: str) -> str:
    """Return the group that wrote the replicas last where it is another one than this; empty: none did."""
    # A tool that applies the same number is a writer as well, and takes it from no group.
    writer = next(filter(group_of_manager, workload.writers), "")
    return "" if writer == field_manager(group) else group_of_manager(writer)
