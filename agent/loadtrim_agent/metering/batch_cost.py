"""The cost of a record is that in a batch as large as a saturated member is given.

Theory of operation. Many programs take a batch and work on its records at once. It takes as long for five records as
for twenty. Shared out over five, each looks four times as dear as it is where there is much to do. With more members
batches become smaller, records look dearer, and still more members are asked for. So the time of a batch is taken to be
a part of its own and a part of each record. A record is charged what it costs in a full batch.

What is learnt of batches counts for those before as well: records that were charged when less was known would be
remembered for a minute as too dear. So each change of the charge is told (:meth:`BatchCost.revision`).

Source: least squares of time over records, with a prior that all the time is the records'. The form is that of batch
service in queueing theory (Bailey, 1954), and of Gunther's law of scalability without its last term.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["BatchCost"]

HALF_LIFE_BATCHES = 200.0
"""A batch counts half as much after so many others. Chosen."""
PRIOR_BATCHES = 5.0
"""Weight of the prior."""
PRIOR_SPREAD = 0.1
"""The prior counts as if sizes varied by this share of their mean. Both chosen: some ten batches outweigh it."""
FULL_SHARE = 0.9
"""Of the limit: a batch of as many is full. Chosen."""
REACH = 3.0
"""A batch is taken to become so many times as large as the largest seen lately, at most. Chosen."""
PROVISIONAL_TIMES = 3.0
"""Of the first batch's time: a second one that takes longer is not worked on at once. Chosen: of many records the
slowest counts, which takes about twice as long as one."""
REMEMBERED_SECONDS = 60.0
"""From the last batch on, or three times as long as one takes: a program that takes none any more has its records in
hand for what they cost. Chosen."""
STALL_TIMES = 5.0
"""Of what a batch takes: one that takes longer counts as that long, for it stalled. Chosen: the slowest of many
exponential times is within it but once in thousands of batches."""
FALLS_ERRORS = 2.0
"""Batches that take less time for more records, by so many standard errors, are of several kinds. Chosen."""
REVISED_SHARE = 0.02
"""Change of the charge from which on the past is charged anew. Chosen: what that takes is of all partitions."""


class _Charge(NamedTuple):
    """The time of a batch, and of how many records it is taken to be where there is much to do."""

    own: float
    """Part of the batch itself, seconds."""
    each: float
    """Part of each record, seconds."""
    full: float

    def of(self, records: float) -> float:
        """Return what a record costs in a full batch over what it costs in one of ``records``."""
        return (self.own / max(self.full, records) + self.each) / (self.own / records + self.each)


class BatchCost:
    """The time of batches of one consumer by their sizes. O(1) per batch; deterministic."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._records = self._seconds = 0.0
        """Weighted means."""
        self._spread = self._covariance = self._seconds_spread = 0.0
        """The sums of squared deviations of the records, of their products with the seconds', and of the seconds."""
        self._largest = 0.0
        self._done_at = 0.0
        self._revision = 1.0
        self.filled = True
        """The last batch was as good as full."""

    def add(self, records: int, seconds: float, limit: int, part: int | None = None, at: float = 0.0) -> None:
        """Take in a batch, or the part of it that is one partition's.

        Args:
            records: of the whole batch, at least 1.
            seconds: that it took.
            limit: most records that it could have.
            part: records of this part; None: all. The parts of a batch count as one batch together.
            at: when it was done, own clock.
        """
        if not 0.0 <= seconds < math.inf:
            return
        before = self._charge(limit) if self._seconds > 0.0 else None  # Of no time at all none has a share.
        if before is not None and self._weight >= PRIOR_BATCHES:
            seconds = min(seconds, STALL_TIMES * max(self._seconds, before.own + before.each * records))
        share = 1.0 if part is None else part / records
        kept = 0.5 ** (share / HALF_LIFE_BATCHES)
        weight = self._weight * kept + share
        more, longer = records - self._records, seconds - self._seconds
        self._records += more * share / weight
        self._seconds += longer * share / weight
        self._spread = self._spread * kept + share * more * (records - self._records)
        self._covariance = self._covariance * kept + share * more * (seconds - self._seconds)
        self._seconds_spread = self._seconds_spread * kept + share * longer * (seconds - self._seconds)
        self._weight = weight
        self._largest = max(self._largest * kept, float(records))
        self.filled, self._done_at = records >= FULL_SHARE * limit, at
        if self._seconds:
            after = self._charge(limit)
            self._revision *= after.of(self._records) / (before.of(self._records) if before is not None else 1.0)

    def own_seconds(self, now: float) -> float:
        """Return for how long a record is in hand beside what it costs: a batch takes so long, however few they are.

        Less its standard error. 0 until enough batches are known, and some time after the last of them. 0 as well where
        more records take less time, because batches are of several kinds: then no line tells what is a batch's own.

        Args:
            now: own clock.
        """
        remembered = max(REMEMBERED_SECONDS, PROVISIONAL_TIMES * self._seconds)
        if self._weight < PRIOR_BATCHES or now - self._done_at > remembered or not self._seconds:
            return 0.0
        charge, spread = self._charge(0), self._spread + self._prior()
        off = self._seconds_spread - 2.0 * charge.each * self._covariance + charge.each**2 * self._spread
        variance = max(0.0, off) / self._weight
        if self._covariance < -FALLS_ERRORS * math.sqrt(variance * spread):
            return 0.0
        return max(0.0, charge.own - math.sqrt(variance * (1.0 / self._weight + self._records**2 / spread)))

    def _prior(self) -> float:
        return PRIOR_BATCHES * (PRIOR_SPREAD * self._records) ** 2

    def is_provisional(self, now: float) -> bool:
        """Return whether what a record costs rests on one batch that had room.

        A program's first batch often is one record, and takes as long as a full one. All that has come meanwhile would
        be taken to cost as much. A second batch tells more, or that it takes long.

        Args:
            now: own clock.
        """
        waits = now - self._done_at < PROVISIONAL_TIMES * self._seconds
        return 0.0 < self._weight < 1.5 and not self.filled and waits

    def revision(self) -> float:
        """Return what is charged now over what was when this was last asked, for a batch of the mean size.

        1.0 while the two hardly differ.
        """
        if abs(self._revision - 1.0) < REVISED_SHARE:
            return 1.0
        revision, self._revision = self._revision, 1.0
        return revision

    def factor(self, records: int, limit: int) -> float:
        """Return what a record costs in a full batch over what it costs in one of ``records``, 0 .. 1.

        Args:
            records: of the batch, at least 1.
            limit: most records that a batch can have.
        """
        return self._charge(limit).of(records) if self._weight and self._seconds else 1.0

    def _charge(self, limit: int) -> _Charge:
        """Return what is charged where a batch can have so many records."""
        proportional = self._seconds / self._records
        prior = self._prior()
        each = (self._covariance + prior * proportional) / (self._spread + prior)
        each = min(max(0.0, each), proportional)
        own = self._seconds - each * self._records
        return _Charge(own, each, min(float(limit), REACH * self._largest))
