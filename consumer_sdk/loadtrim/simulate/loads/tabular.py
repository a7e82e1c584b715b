"""Loads from tables: what rows mean together, as steps, gaps, moments and differences of a counter.

What one row or one column means is :mod:`.tables`' part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from loadtrim_agent.common.partition import Partition

from .amounts import Quantity
from .grid import Grid, check_rate, load_of
from .load import Load, LoadFileError, ReadAs, counted
from .paces import Paces
from .reading import Reading, check_applies
from .tables import Row, Rows

__all__ = ["load_of_rows"]


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
    paces = Paces(rows)
    quantity, why = (told.quantity, told.why) if told.quantity is not None else _guessed(told, paces)
    again = len(rows) - len({(row.at, row.partition, row.series) for row in rows})
    if again and quantity != Quantity.COUNTER:
        where = "time and partition" if named else "time"
        notes.append(f"{counted(again, 'row was', 'rows were')} added to an earlier one of the same {where}")
    if quantity == Quantity.COUNTER:
        portions, restarts = _differences(path, rows)
        if restarts:
            notes.append(f"the counter began anew {counted(restarts, 'time', 'times')}, and was counted from 0 then")
    else:
        portions = [_Portion(row, row.amount, paces.lasting(row)) for row in rows]
    per_second = quantity != Quantity.COUNT
    # Rows less than a second apart have the times they came at. Rates at odd times cannot: they last.
    moments = paces.step < min(1.0, reading.speed_up) and (paces.regular or not per_second)
    notes += paces.notes(lasting=per_second or not moments) if quantity != Quantity.COUNTER else []
    grid = _filled(told, portions, per_second, paces.step if moments else None, reading)
    # Within a second nothing is known where rows last, and independent sources arrive as Poisson does.
    load = load_of(grid, named, reading, path.name, notes, "recorded" if moments else "poisson")
    begin, end = (rows[0].at, rows[-1].at) if told.dated else (None, None)
    read_as = ReadAs(
        rows=len(rows),
        step_seconds=paces.step,
        regular=paces.regular,
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


def _guessed(told: Rows, paces: Paces) -> tuple[Quantity, str]:
    """Return what amounts count whose column does not tell it, and what tells it.

    Up to a second apart a row's records are those of its moment. Further apart they may be rates too, as monitors
    export them: these have fractions. Whole numbers may be either, and nobody is to go by the wrong ones.
    """
    if len(told.rows) == 1:
        return Quantity.COUNT, "which in a second makes no difference"
    if paces.step <= 1.0:
        return Quantity.COUNT, "for its rows are no more than a second apart"
    if any(row.amount != int(row.amount) for row in told.rows):
        return Quantity.RATE, "for it has fractions"
    mean = math.fsum(row.amount / paces.beside(row) for row in told.rows)
    raise LoadFileError(
        f"{told.table.path}: rows are {paces.step:g} s apart, and {told.column!r} does not tell whether it holds "
        f"records per second ({mean:,.1f}/s on average) or the records of {paces.step:g} s "
        f"({mean / paces.step:,.1f}/s), so it is not known what arrived; "
        "give --values rate or --values count (--values counter: a number that only "
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
                if later.amount != earlier.amount:
                    raise LoadFileError(
                        f"{path} has {earlier.amount:g} and {later.amount:g} of one counter at the same time, so it is "
                        "not known what arrived: these seem to be several counters. Give each a column of its own, or "
                        "a partition, or export their sum as a rate."
                    )
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
