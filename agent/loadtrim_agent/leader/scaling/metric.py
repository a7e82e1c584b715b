"""The scaler ``metric``: the leader publishes a number, and an autoscaler of the platform makes it so.

Theory of operation. ``/replicas`` and ``loadtrim_replicas{state="requested"}`` of the leader show the number. An
autoscaler reads it when it likes, seconds to a minute later, and changes the workload by rights of its own. So it must
be right to act on it at any time until another one is shown::

    more is wanted                                  shown at once
    fewer is wanted                                 the wanted number, and one for each pod that may still be ready
    a rollout is under way                          the wanted number, whatever is there: the controllers end the others
    this member does not lead the request's         nothing is shown, and an autoscaler that reads nothing
    generation, its lease has run out, or the group   leaves the workload as it is
    is held by hand

A Deployment's controllers take pods that are not ready first. Nobody here may read a pod, so the victim says it of
itself: its readiness probe was answered 503 until the controllers know (:class:`Readiness`). A StatefulSet's controller
takes the highest number.

The number is the leader's alone. An adapter that adds up what members show would else ask for several times as many,
and each member's copy could be an old one.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec

from .port import Answer, ScaleOutcome, ScaleRequest, one_line

__all__ = ["Leadership", "MetricScaler", "Ordinals", "Readiness"]

READINESS_SECONDS: Final = 10.0
"""A request waits this long for victims to be not ready. Chosen: as the scaler of Kubernetes; the reconciler asks again
after it."""
LOOK_SECONDS: Final = 0.25
"""Between two looks in that time. Chosen: a report comes once a second."""


class Leadership(Protocol):
    """The generation that this member may speak for."""

    def generation(self) -> int | None:
        """Return the generation that the member leads with a lease that holds; None: it leads none. From any thread."""


class Readiness(Protocol):
    """The instances' readiness, as they report it."""

    def is_unready(self, instance: str) -> bool:
        """Return whether its readiness probe is answered 503, so that the controllers know that it is to go."""


class Ordinals(Protocol):
    """The numbers of a StatefulSet's pods, of which the highest go first."""

    def ordinal(self, pod: str) -> int | None:
        """Return a pod's number; None: it is none of its pods."""


class _Published(msgspec.Struct, frozen=True):
    generation: int
    replicas: int


class MetricScaler:
    """Publishes the replicas that the group may be brought to.

    Args:
        leadership: of this member.
        readiness: of the instances.
        ordinals: of the StatefulSet's pods; None: pods go by their readiness.
    """

    name = "metric"
    scales = True
    withdrawable = True
    per_generation = True
    """The number of an older leadership is shown no more, for another leader may have published since."""

    def __init__(self, leadership: Leadership, readiness: Readiness, ordinals: Ordinals | None = None) -> None:
        self._leadership = leadership
        self._readiness = readiness
        self._ordinals = ordinals
        self._published: _Published | None = None
        """Written by the agent's thread, read by any."""
        self._read = False
        """Flag that is set by the first read of a number."""
        self._closing = asyncio.Event()

    def published(self) -> int | None:
        """Return the number for an autoscaler to read; None: this member has none to tell. From any thread."""
        published = self._published
        if published is None or published.generation != self._leadership.generation():
            return None
        self._read = True
        return published.replicas

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """Publish the wanted number, or as few as no ready pod would go for; wait a while for the rest of the way."""
        ends = asyncio.get_running_loop().time() + READINESS_SECONDS
        while True:
            if self._closing.is_set():
                return ScaleOutcome(Answer.FAILED, "the scaler is closed")
            if self._leadership.generation() != wanted.generation:
                return ScaleOutcome(
                    Answer.FAILED, "this member does not lead that generation now: nothing is published"
                )
            least, why = (0, "") if wanted.rollout else self._least(wanted)
            replicas = max(wanted.replicas, least)
            self._published = _Published(wanted.generation, replicas)
            if replicas == wanted.replicas:
                unread = "" if self._read else ", and nobody has read the number from this member yet"
                return ScaleOutcome(Answer.ACCEPTED, f"{replicas} replicas are published{unread}")
            if asyncio.get_running_loop().time() >= ends:
                return ScaleOutcome(Answer.FAILED, one_line(f"{replicas} replicas are published: {why}"))
            await self._pause()

    def withdraw(self) -> None:
        """Publish nothing until the next request: an autoscaler that reads nothing leaves the workload as it is."""
        self._published = None

    async def close(self) -> None:
        """Publish nothing any more. Closing twice is fine."""
        self._published = None
        self._closing.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._closing.wait()
        except TimeoutError:
            pass

    def _least(self, wanted: ScaleRequest) -> tuple[int, str]:
        """Return the fewest replicas that no pod goes for which may work, and why it is no fewer."""
        if self._ordinals is not None:
            return _least_numbered(wanted, self._ordinals)
        ready = [victim for victim in wanted.victims if not self._readiness.is_unready(victim)]
        least = len(wanted.staying) + wanted.unknown + len(ready)
        if not ready:
            return least, f"{least} instances of the group work"
        return least, (
            f"{', '.join(ready)} is drained, and its readiness probe was not answered 503 three times yet, so a ready "
            "pod would go in its place. It has to ask /readyz (LOADTRIM_HTTP), best each second"
        )


def _least_numbered(wanted: ScaleRequest, ordinals: Ordinals) -> tuple[int, str]:
    """Return one more than the highest number that may work: these and all below stay."""
    pods = (*wanted.staying, *wanted.victims)
    numbers = {pod: number for pod in pods if (number := ordinals.ordinal(pod)) is not None}
    all_stay = max(len(pods) + wanted.unknown, 1 + max(numbers.values(), default=-1))
    if wanted.unknown:
        return all_stay, f"members that have not told their pod yet: {wanted.unknown}; it might be one that goes"
    if strangers := [pod for pod in pods if pod not in numbers]:
        return all_stay, (
            f"{', '.join(strangers)} is none of the StatefulSet's pods, so nothing tells which may go: "
            "LOADTRIM_INSTANCE has to be the pod's name"
        )
    highest = max((numbers[pod] for pod in wanted.staying), default=-1)
    return highest + 1, f"the pod of number {highest} would go first and is not drained"
