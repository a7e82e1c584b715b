"""This tells whether records fall to single partitions by chance, or are dealt out in turn.

By chance the number of records in a time varies by itself: its variance is its mean (Poisson). Records that a producer
deals out in turn vary by next to nothing, and members need less room for them. So the records of each partition are
counted over blocks of time, and compared with what its rate before the block let expect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["BlockSums", "Blocks", "chance_share"]

BLOCK_SECONDS = 20.0
"""Length of a block. Chosen."""
BLOCKS_MIN = 12.0
"""Fewer blocks of a group tell nothing. Chosen."""
CHANCE_SDS = 2.0
"""Standard errors by which the blocks may mislead. Chosen."""


class BlockSums(NamedTuple):
    """Sums over blocks. Old ones are forgotten."""

    blocks: float = 0.0
    """The number of them."""
    records: float = 0.0
    squares: float = 0.0
    """Squares of the records that a block was off what was expected."""


class Blocks:
    """The records of one partition.

    Args:
        memory_seconds: blocks count less by a factor of e after so long.
    """

    __slots__ = ("_memory_seconds", "_rate", "_records", "_seconds", "sums")

    def __init__(self, memory_seconds: float) -> None:
        self._memory_seconds = memory_seconds
        self._rate: float | None = None
        """Records/s when the block began; None: of the first one nothing was expected."""
        self._records = 0
        self._seconds = 0.0
        self.sums = BlockSums()

    def add(self, arrived: int, observed: float, rate: float) -> None:
        """Count records.

        Args:
            arrived: records.
            observed: seconds in which they came.
            rate: records/s as far as they are known by now.
        """
        self._records += arrived
        self._seconds += observed
        if self._seconds < BLOCK_SECONDS:
            return
        if self._rate is not None:
            keep = math.exp(-self._seconds / self._memory_seconds)
            off = self._records - self._rate * self._seconds
            before = self.sums
            self.sums = BlockSums(
                before.blocks * keep + 1.0, before.records * keep + self._records, before.squares * keep + off * off
            )
        self._rate, self._records, self._seconds = rate, 0, 0.0


def chance_share(partitions: Iterable[BlockSums]) -> float:
    """Return the variance of what comes in single partitions over that of chance, 0 .. 1: the mean of all partitions.

    Records come by chance until it is clear that they do not. Of n blocks with m records each, the ratio of one
    partition is known to ``sqrt((2 + 1 / m) / n)``. It may be twice as far above what was seen. A partition without
    records tells nothing.
    """
    sums = [each for each in partitions if each.records > 0.0]
    blocks = sum(each.blocks for each in sums)
    if blocks < BLOCKS_MIN:
        return 1.0
    share = sum(each.blocks * each.squares / each.records for each in sums) / blocks
    error = math.sqrt(sum(each.blocks * (2.0 + each.blocks / each.records) for each in sums)) / blocks
    return min(1.0, share * (1.0 + CHANCE_SDS * error))
