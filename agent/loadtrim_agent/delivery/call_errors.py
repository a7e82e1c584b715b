"""Errors are said by the agent's thread, and raised by calls of user code."""

from __future__ import annotations

from collections.abc import Collection

from loadtrim_agent.common.partition import Partition

__all__ = ["CallErrors"]


class CallErrors:
    """The error that the user's next call raises; a later one takes its place, but for one that is for good."""

    __slots__ = ("error", "for_good", "partition")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """Agent: raised by the user's next call."""
        self.partition: Partition | None = None
        """Agent: whose error that is; None: every one's."""
        self.for_good = False
        """Agent: every call raises it."""

    def put(self, error: BaseException, partition: Partition | None, *, for_good: bool) -> None:
        """Agent: have an error raised, unless every call raises one already."""
        if not self.for_good:
            # In this order: the user raises what it finds, and forgets it unless that is for good.
            self.for_good = for_good
            self.partition = partition
            self.error = error

    def concern(self, wanted: Collection[Partition]) -> bool:
        """Return whether a call for these partitions raises it; empty: for all."""
        partition = self.partition
        return self.error is not None and (not wanted or partition is None or partition in wanted)

    def take(self, wanted: Collection[Partition]) -> BaseException | None:
        """User: return what a call for these partitions raises; forget it, unless it is for good."""
        error = self.error
        if error is None or not self.concern(wanted):
            return None
        if not self.for_good:
            self.error = None
        return error

    def forget(self, partition: Partition) -> None:
        """Forget a partition's error: the user has sought elsewhere in it, or it is not there any more."""
        if self.partition == partition:
            self.error = self.partition = None
