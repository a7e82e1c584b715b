"""Errors are said by the agent's thread, and raised by calls of user code."""

from __future__ import annotations

from collections.abc import Collection

from loadtrim_agent.common.partition import Partition

__all__ = ["CallErrors"]


class CallErrors:
    """The error that the user's next call raises; a later one takes its place, but for one that is for good."""

    __slots__ = ("for_good", "slot")

    def __init__(self) -> None:
        self.slot: tuple[BaseException, Partition | None] | None = None
        """Agent: the error, and whose it is (None: every one's). In one, for both threads write it."""
        self.for_good = False
        """Agent: every call raises it."""

    def put(self, error: BaseException, partition: Partition | None, *, for_good: bool) -> None:
        """Agent: have an error raised, unless every call raises one already."""
        if not self.for_good:
            # In this order: the user raises what it finds, and forgets it unless that is for good.
            self.for_good = for_good
            self.slot = (error, partition)

    def concern(self, wanted: Collection[Partition]) -> bool:
        """Return whether a call for these partitions raises it; empty: for all."""
        slot = self.slot
        return slot is not None and _concerns(slot[1], wanted)

    def take(self, wanted: Collection[Partition]) -> BaseException | None:
        """User: return what a call for these partitions raises; forget it, unless it is for good."""
        slot = self.slot
        if slot is None or not _concerns(slot[1], wanted):
            return None
        if not self.for_good and self.slot is slot:
            self.slot = None
        return slot[0]

    def forget(self, partition: Partition) -> None:
        """Forget a partition's error: the user has sought elsewhere in it, or it is not there any more."""
        slot = self.slot
        if slot is not None and slot[1] == partition:
            self.slot = None


def _concerns(partition: Partition | None, wanted: Collection[Partition]) -> bool:
    return not wanted or partition is None or partition in wanted
