"""Errors are said by the agent's thread, and raised by calls of user code."""

from __future__ import annotations

from collections.abc import Collection

from loadtrim_agent.common.partition import Partition

__all__ = ["CallErrors"]


class CallErrors:
    """Errors that the user's next calls raise: one of each partition, and one of all. A later one takes its place.

    Both threads change what is here without a lock: each store is one step of the interpreter, and the user's thread
    forgets only what it has looked at just before.
    """

    __slots__ = ("for_good", "general", "of_partitions")

    def __init__(self) -> None:
        self.general: BaseException | None = None
        """The error of every partition."""
        self.of_partitions: dict[Partition, BaseException] = {}
        self.for_good = False
        """Agent: every call raises the error of all."""

    def put(self, error: BaseException, partition: Partition | None, *, for_good: bool) -> None:
        """Agent: have an error raised, unless every call raises one already."""
        if self.for_good:
            return
        if partition is not None:
            self.of_partitions[partition] = error
            return
        # In this order: the user raises what it finds, and forgets it unless that is for good.
        self.for_good = for_good
        self.general = error

    def concern(self, wanted: Collection[Partition]) -> bool:
        """Return whether a call for these partitions raises one; empty: for all."""
        return self.general is not None or any(not wanted or p in wanted for p in list(self.of_partitions))

    def take(self, wanted: Collection[Partition]) -> BaseException | None:
        """User: return what a call for these partitions raises; forget it, unless it is for good."""
        error = self.general
        if error is not None:
            if not self.for_good and self.general is error:
                self.general = None
            return error
        for partition in list(self.of_partitions):
            if not wanted or partition in wanted:
                error = self.of_partitions.pop(partition, None)
                if error is not None:
                    return error
        return None

    def forget(self, partition: Partition) -> None:
        """Forget a partition's error: the user has sought elsewhere in it, or it is not there any more."""
        self.of_partitions.pop(partition, None)
