"""The seconds of a load, each with what arrived in it, while a file is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadtrim_agent.common.partition import Partition

from .load import (
    RATE_MAX,
    SECONDS_MAX,
    TOPIC,
    Load,
    LoadFileError,
    Moment,
    WrongLoadError,
    digits,
    part_end,
    shares_even,
)
from .reading import PARTITIONS_DEFAULT, Reading

__all__ = ["Grid", "check_rate", "load_of"]


class Grid:
    """The seconds that are read, each with what arrived in it.

    Args:
        source: the load's, for messages.
        length: seconds of all that is there; what is begun counts.
        reading: which of them are read.

    Raises:
        LoadFileError: there are no such seconds, or more than are played at once.
    """

    def __init__(self, source: str, length: float, reading: Reading) -> None:
        self.source = source
        whole = max(1, math.ceil(length - 1e-9))
        try:
            self.begin, self.end = reading.begin, part_end(whole, reading.begin, reading.seconds)
        except WrongLoadError as error:
            raise LoadFileError(f"{source}: {error}") from None
        if self.end - self.begin > SECONDS_MAX:
            raise LoadFileError(
                f"{source} spans {self.end - self.begin} s, more than the {SECONDS_MAX} s (31 days) that are played at "
                "once; cut a part out with --begin and --seconds, or play it faster with --speed-up."
            )
        self.cells: list[dict[Partition | None, float]] = [{} for _ in range(self.begin, self.end)]
        self.moments: dict[int, list[tuple[float, Partition | None, float]]] = {}
        """Second -> (seconds since it began, partition, records)."""

    def add(self, at: float, partition: Partition | None, records: float) -> None:
        """Add so many records at one moment."""
        second = int(at + 1e-9)
        self._add(second, partition, records)
        if records > 0.0:
            self.moments.setdefault(second, []).append((max(0.0, at - second), partition, records))

    def spread(self, begin: float, length: float, partition: Partition | None, rate: float, step: float) -> None:
        """A rate that lasts, as a moment each ``step``, or for each record where these are rarer."""
        every = max(step, 1.0 / rate) if rate > 0.0 else length
        for place in range(math.ceil(length / every - 1e-9)):
            self.add(begin + place * every, partition, rate * min(every, length - place * every))

    def fill(self, begin: float, length: float, partition: Partition | None, rate: float) -> None:
        """A rate in each of the seconds that it lasts for."""
        end = begin + length
        for second in range(max(self.begin, int(begin + 1e-9)), min(self.end, math.ceil(end - 1e-9))):
            self._add(second, partition, rate * max(0.0, min(end, second + 1.0) - max(begin, second)))

    def _add(self, second: int, partition: Partition | None, records: float) -> None:
        if self.begin <= second < self.end:
            cell = self.cells[second - self.begin]
            cell[partition] = cell.get(partition, 0.0) + records


def load_of(
    grid: Grid,
    named: Sequence[Partition],
    reading: Reading,
    source: str,
    notes: Sequence[str],
    arrivals: str = "burst",
) -> Load:
    """Return the load of what was read.

    Args:
        grid: what arrived in each second.
        named: the partitions that the file names.
        reading: the options.
        source: the load's name.
        notes: what was done to make sense of it.
        arrivals: when records arrive within a second; see :class:`.load.Load`.

    Raises:
        LoadFileError: no load can be like that.
    """
    totals = tuple(sum(cell.values()) for cell in grid.cells)
    shares: tuple[tuple[float, ...], ...]
    if named and reading.partitions is None:
        partitions = tuple(named)
        even = shares_even(len(partitions))
        shares = tuple(
            tuple(cell.get(partition, 0.0) / total for partition in partitions) if total > 0 else even
            for cell, total in zip(grid.cells, totals, strict=True)
        )
        keys = "fixed"
    else:
        count = reading.partitions or PARTITIONS_DEFAULT
        partitions = tuple(Partition(TOPIC, index) for index in range(count))
        shares, keys = (shares_even(count),), "random"
    if reading.speed_up != 1.0:
        source += f", {reading.speed_up:g} times as fast"
    try:
        return Load(
            per_second=totals,
            partitions=partitions,
            shares=shares,
            arrivals=arrivals,
            moments=_moments(grid, keys, partitions) if arrivals == "recorded" else (),
            keys=keys,
            source=source,
            notes=tuple(notes),
            partitions_assumed=not named and reading.partitions is None,
        )
    except WrongLoadError as error:
        raise LoadFileError(f"{grid.source}: {error}") from None


def _moments(grid: Grid, keys: str, partitions: Sequence[Partition]) -> tuple[tuple[Moment, ...], ...]:
    """Return the moments of each second, in order of time: a row that lasts goes on beside others.

    What is dealt out falls on partitions by chance.
    """
    index = {partition: number for number, partition in enumerate(partitions)} if keys == "fixed" else {}
    return tuple(
        tuple(
            Moment(offset, records, None if partition is None else index.get(partition))
            for offset, partition, records in sorted(grid.moments.get(second, ()), key=lambda moment: moment[0])
        )
        for second in range(grid.begin, grid.end)
    )


def check_rate(place: str, rate: float) -> None:
    """Refuse a rate that is more than can be played.

    Raises:
        LoadFileError: it is; with the place.
    """
    if rate > RATE_MAX:
        raise LoadFileError(
            f"{place}: {digits(rate)} records/s are more than the {RATE_MAX:,.0f} that can be played, so it is "
            "probably in another unit; correct it."
        )
