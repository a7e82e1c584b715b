"""Loads from tables: what rows mean together, as steps, gaps, moments and differences of a counter.

What one row or one column means is :mod:`.tables`' part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from loadtrim_agent.common.partition import Partition

from .amounts import Quantity
from .grid import Grid, check_rate, load_of
from .load import Load, LoadFileError, ReadAs, counted
from .reading import Reading, check_applies
from .tables import Row, Rows

__all__ = ["load_of_rows"]

REGULAR_SHARE = 0.5
"""Of the distances between rows, more than this alike: the file has a regular step."""
STEPS_TOLERANCE = 0.01
"""Of a step: a distance is so many whole steps if it is off by no more."""


class _Pace:
    """The time that each row stands for.

    A row says what arrived from its time until the next one's. Where most rows are the same step apart, a distance of
    several whole steps is a gap instead: rows are missing there, and count as no load. The last row lasts as long as
    the one before it, or one step where that is regular.

    Args:
        times: of rows, in order, each once.
    """

    def __init__(self, times: Sequence[float]) -> None:
        distances = [round(later - earlier, 6) for earlier, later in pairwise(times)]
        usual, count = min(Counter(distances).items(), key=lambda each: (-each[1], each[0]), default=(1.0, 1))
        self.regular = not distances or count > REGULAR_SHARE * len(distances)
        self.step = usual if self.regular else median(distances)
        """The usual distance, seconds."""
        steps = [self._steps(distance) if self.regular else 0 for distance in distances]
        self.missing = sum(number - 1 for number in steps if number)
        """Steps without a row."""
        lasting = [self.step if number else distance for number, distance in zip(steps, distances, strict=True)]
        lasting.append(self.step if self.regular else lasting[-1])
        self.lasting = dict(zip(times, lasting, strict=True))
        """Time of a row -> seconds until what it says ends."""
        self.odd = [distance for number, distance in zip(steps, distances, strict=True) if not number]
        """Distances that are no whole steps."""

    def _steps(self, distance: float) -> int:
        """Return how many whole steps a distance is; 0: it is none."""
        number = round(distance / self.step)
        return number if abs(distance - number * self.step) <= STEPS_TOLERANCE * self.step else 0

    def notes(self, lasting: bool) -> list[str]:
        """Return the notes on gaps, and on rows at odd times where rows last; else each counts at its time alone."""
        notes = []
        if self.missing:
            total = self.missing + len(self.lasting)
            notes.append(f"{self.missing} of {total} steps of {self.step:g} s are missing and count as no load")
        if self.odd and lasting:
            steps = f"no steps of {self.step:g} s" if self.regular else "no regular steps"
            shortest, longest = min(self.odd), max(self.odd)
            after = f"{longest:g} s" if shortest == longest else f"{shortest:g} to {longest:g} s"
            notes.append(
                f"{len(self.odd)} rows are followed by the next one after {after}, which are {steps}: what they say is "
                "spread until then"
            )
        return notes


def load_of_rows(told: Rows, reading: Reading) -> Load:
    """Return the load that the rows of a table tell.

    Raises:
        LoadFileError: they make no load, or it is not known which.
        WrongLoadError: an option does not apply to a table of this kind.
    """
    path, rows, notes = told.table.path, told.rows, [*told.notes]
    needless = ("capacity", "interval") if told.told_in_bytes else ("capacity", "interval", "record_bytes")
    check_applies(str(path), f"a table that tells {'bytes' if told.told_in_bytes else 'records'}", reading, *needless)
    if any(later.at < earlier.at for earlier, later in pairwise(row for row in rows if row.series == rows[0].series)):
        notes.append("rows were not in the order of time and were put into it")
    rows = sorted(rows, key=lambda row: row.at)
    named = sorted({row.partition for row in rows if row.partition is not None})
    pace = _Pace(sorted({row.at for row in rows}))
    quantity, why = (told.quantity, told.why) if told.quantity is not None else _guessed(told, pace)
    if again := len(rows) - len({(row.at, row.partition, row.series) for row in rows}):
        where = "time and partition" if named else "time"
        notes.append(f"{counted(again, 'row was', 'rows were')} added to an earlier one of the same {where}")
    if quantity == Quantity.COUNTER:
        portions, restarts = _differences(path, rows)
        if restarts:
            notes.append(f"the counter began anew {counted(restarts, 'time', 'times')}, and was counted from 0 then")
    else:
        portions = [_Portion(row, row.amount, pace.lasting[row.at]) for row in rows]
    per_second = quantity != Quantity.COUNT
    # Rows less than a second apart have the times they came at. Rates at odd times cannot: they last.
    moments = pace.step < min(1.0, reading.speed_up) and (pace.regular or not per_second)
    notes += pace.notes(lasting=per_second or not moments) if quantity != Quantity.COUNTER else []
    grid = _filled(told, portions, per_second, pace.step if moments else None, reading)
    # Within a second nothing is known where rows last, and independent sources arrive as Poisson does.
    load = load_of(grid, named, reading, path.name, notes, "recorded" if moments else "poisson")
    begin, end = (rows[0].at, rows[-1].at) if told.dated else (None, None)
    read_as = ReadAs(
        rows=len(rows),
        step_seconds=pace.step,
        regular=pace.regular,
        column=told.column,
        quantity=quantity,
        why=why,
        begins_at=begin,
        ends_at=end,
    )
    return replace(load, read_as=read_as)


@dataclass(frozen=True, slots=True)
class _Portion:
    """The load that a row stands for."""

    row: Row
    amount: float
    """Records, or records/s."""
    lasting: float
    """Seconds."""


def _filled(
    told: Rows, portions: Sequence[_Portion], per_second: bool, moment_seconds: float | None, reading: Reading
) -> Grid:
    """Return the seconds with what arrived in them.

    Args:
        told: where the portions come from.
        portions: in order of time.
        per_second: are the amounts rates?
        moment_seconds: the distance of rows that have the times they came at; None: rows last.
        reading: which seconds are read.
    """
    first, moments = portions[0].row.at, moment_seconds is not None
    end = max(portion.row.at + (0.0 if moments else portion.lasting) for portion in portions)
    span = (end - first) / reading.speed_up
    grid = Grid(str(told.table.path), int(span + 1e-9) + 1 if moments else span, reading)
    for portion in portions:
        row, lasting = portion.row, portion.lasting / reading.speed_up
        at = (row.at - first) / reading.speed_up
        # A rate is kept when the time runs faster: a recorded day then is as heavy as it was, and shorter.
        if moments and not per_second:
            records = portion.amount / reading.speed_up
            check_rate(told.table.place(row.number), records)
            grid.add(at, row.partition, records)
            continue
        rate = portion.amount if per_second else portion.amount / portion.lasting
        check_rate(told.table.place(row.number), rate)
        if moment_seconds is not None:
            grid.spread(at, lasting, row.partition, rate, moment_seconds / reading.speed_up)
        else:
            grid.fill(at, lasting, row.partition, rate)
    return grid


def _guessed(told: Rows, pace: _Pace) -> tuple[Quantity, str]:
    """Return what amounts count whose column does not tell it, and what tells it.

    Up to a second apart a row's records are those of its moment. Further apart they may be rates too, as monitors
    export them: these have fractions. Whole numbers may be either, and nobody is to go by the wrong ones.
    """
    if len(told.rows) == 1:
        return Quantity.COUNT, "which in a second makes no difference"
    if pace.step <= 1.0:
        return Quantity.COUNT, "for its rows are no more than a second apart"
    if any(row.amount != int(row.amount) for row in told.rows):
        return Quantity.RATE, "for it has fractions"
    mean = math.fsum(row.amount for row in told.rows) / len({row.at for row in told.rows})
    raise LoadFileError(
        f"{told.table.path}: rows are {pace.step:g} s apart, and {told.column!r} does not tell whether it holds "
        f"records per second ({mean:,.1f}/s on average) or the records of {pace.step:g} s ({mean / pace.step:,.1f}/s), "
        "so it is not known what arrived; give --values rate or --values count (--values counter: a number that only "
        "grows), or name the column records_per_second or records."
    )


def _differences(path: Path, rows: Sequence[Row]) -> tuple[list[_Portion], int]:
    """Return what arrived from each row of a counter to the next one of its series, and how often one began anew."""
    lines: dict[tuple[Partition | None, int], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.partition, row.series), []).append(row)
    portions, restarts = [], 0
    for line in lines.values():
        for earlier, later in pairwise(line):
            lasting = later.at - earlier.at
            if lasting <= 0.0:
                continue
            grown = later.amount - earlier.amount
            restarts += grown < 0.0
            portions.append(_Portion(earlier, (later.amount if grown < 0.0 else grown) / lasting, lasting))
    if not portions:
        raise LoadFileError(
            f"{path} has no two times of one counter, so it is not known what arrived between them; export a "
            "longer range."
        )
    return sorted(portions, key=lambda portion: portion.row.at), restarts
