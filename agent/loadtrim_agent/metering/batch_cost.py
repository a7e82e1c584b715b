"""The cost of a record is that in a batch as large as a saturated member is given.

Theory of operation. Many programs take a batch and work on its records at once. It takes as long for five records as
for twenty. Shared out over five, each looks four times as dear as it is where there is much to do. With more members
batches become smaller, records look dearer, and still more members are asked for. So the time of a batch is taken to be
a part of its own and a part of each record. A record is charged what it costs in a full batch.

Source: least squares of time over records, with a prior that all the time is the records'. The form is that of batch
service in queueing theory (Bailey, 1954), and of Gunther's law of scalability without its last term.
"""

from __future__ import annotations

import math

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


class BatchCost:
    """The time of batches of one consumer by their sizes. O(1) per batch; deterministic."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._records = self._seconds = 0.0
        """Weighted means."""
        self._spread = self._covariance = 0.0
        """The sums of squared deviations of the records, and of their products with the seconds'."""
        self._largest = 0.0
        self.filled = True
        """The last batch was as good as full."""

    def add(self, records: int, seconds: float, limit: int, part: int | None = None) -> None:
        """Take in a batch, or the part of it that is one partition's.

        Args:
            records: of the whole batch, at least 1.
            seconds: that it took.
            limit: most records that it could have.
            part: records of this part; None: all. The parts of a batch count as one batch together.
        """
        if not 0.0 <= seconds < math.inf:
            return
        share = 1.0 if part is None else part / records
        kept = 0.5 ** (share / HALF_LIFE_BATCHES)
        weight = self._weight * kept + share
        more, longer = records - self._records, seconds - self._seconds
        self._records += more * share / weight
        self._seconds += longer * share / weight
        self._spread = self._spread * kept + share * more * (records - self._records)
        self._covariance = self._covariance * kept + share * more * (seconds - self._seconds)
        self._weight = weight
        self._largest = max(self._largest * kept, float(records))
        self.filled = records >= FULL_SHARE * limit

    def factor(self, records: int, limit: int) -> float:
        """Return what a record costs in a full batch over what it costs in one of ``records``, 0 .. 1.

        Args:
            records: of the batch, at least 1.
            limit: most records that a batch can have.
        """
        if not self._weight or not self._seconds:
            return 1.0
        proportional = self._seconds / self._records
        prior = PRIOR_BATCHES * (PRIOR_SPREAD * self._records) ** 2
        each = (self._covariance + prior * proportional) / (self._spread + prior)
        each = min(max(0.0, each), proportional)
        own = self._seconds - each * self._records
        full = max(float(records), min(float(limit), REACH * self._largest))
        return (own / full + each) / (own / records + each)
