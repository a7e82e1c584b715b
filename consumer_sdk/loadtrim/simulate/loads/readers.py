"""Loads from files: CSV, Parquet, the papers' own traces, and a group's recorded telemetry.

A file is read by what is in it, not by its name alone; whatever is done to make sense of it (rows put in order, gaps
taken as no load) is said in the load's ``notes``, and what makes no sense is an error with the place.

* CSV with a header: a time, optionally ``topic`` and ``partition``, and ``records`` or ``bytes`` (or a name like
  them, see :data:`.tables.COLUMNS`). Each row says what arrived from its time until the next one's (:class:`_Pace`),
  or, where they are less than a second apart, at its time.
* CSV without one, of two columns: time in seconds, records per second.
* One line of numbers with commas between them, three at least: records/s, one a minute (Koper'22). Two may as well be a
  time and a rate, and are refused.
* JSON: Landau'24's streams, a list of objects topic -> partition -> percent of a capacity.
* JSON lines: what a group's control topic holds, as ``loadtrim`` members wrote it.
* Parquet, or a directory of such files: as CSV with a header (extra ``parquet``).

``.gz`` is unpacked.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import decode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.telemetry_records import ReportRecord

from .load import (
    RATE_MAX,
    SECONDS_MAX,
    TOPIC,
    Load,
    LoadFileError,
    Moment,
    WrongLoadError,
    check_partitions,
    digits,
    part_end,
    shares_even,
)
from .tables import Rows, amount_of, bytes_of, csv_table, is_number, is_parquet, parquet_table, rows_of, text_of

__all__ = ["Reading", "check_applies", "load_of_reports", "read_load"]

BYTES_MAX = 1 << 30
CAPACITY_DEFAULT, INTERVAL_DEFAULT = 100.0, 30.0
KOPER_SECONDS = 60
SPEED_UP_MAX = 1e6
PARTITIONS_DEFAULT = 9
REGULAR_SHARE = 0.5
"""Of the distances between rows, more than this alike: the file has a regular step."""
STEPS_TOLERANCE = 0.01
"""Of a step: a distance is so many whole steps if it is off by no more."""
ABOUT = {
    "record_bytes": "files that tell bytes",
    "capacity": "files of Landau'24's streams",
    "interval": "files of Landau'24's streams",
    "speed_up": "recorded times",
}
"""The options that are about some loads only -> which loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options for what a file does not say."""

    partitions: int | None = None
    """Deal the total out over so many, evenly and by chance; None: those in the file, 9 where it names none."""
    record_bytes: float | None = None
    """Size of a record, for files that tell bytes and no others: above 0, at most 1 GiB."""
    capacity: float | None = None
    """Records/s that 100 % means in Landau'24's streams, and in no others; None: 100."""
    interval: float | None = None
    """Seconds that each of their rows lasts, at most 31 days; None: 30."""
    speed_up: float = 1.0
    """A row's time counts as so much less: 60 plays a minute in a second, at the same rate per second. 1e-6 to 1e6."""
    begin: int = 0
    """The first second that is read, as it is played: after ``speed_up``."""
    seconds: int | None = None
    """The number of seconds that are read; None: all from ``begin`` on. Only these have to be short enough."""

    def __post_init__(self) -> None:
        for name, value, most, unit in (
            ("record_bytes", self.record_bytes, BYTES_MAX, "bytes"),
            ("capacity", self.capacity, RATE_MAX, "records/s"),
            ("interval", self.interval, SECONDS_MAX, "seconds"),
        ):
            if value is not None and not 0.0 < value <= most:
                raise WrongLoadError(
                    f"{_option(name)} is {digits(value)}; it must be a number of {unit} above 0, at most {most:,.0f}."
                )
        if not 1.0 / SPEED_UP_MAX <= self.speed_up <= SPEED_UP_MAX:
            raise WrongLoadError(
                f"--speed-up is {digits(self.speed_up)}; it must be a number from {1.0 / SPEED_UP_MAX:g} to "
                f"{SPEED_UP_MAX:,.0f}."
            )
        if self.partitions is not None:
            check_partitions(self.partitions)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_applies(source: str, kind: str, given: object, *names: str) -> None:
    """Is none of these given? They are not about loads of this kind, and would be ignored without a word.

    Args:
        source: the load's, for messages.
        kind: what it is, as in "a table".
        given: has an attribute for each name; None: not given.
        names: of :data:`ABOUT`.

    Raises:
        WrongLoadError: one is.
    """
    for name in names:
        if getattr(given, name) is not None:
            raise WrongLoadError(f"{source}: {_option(name)} is for {ABOUT[name]}, and this is {kind}; leave it out.")


class _Grid:
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


def read_load(path: Path, reading: Reading | None = None) -> Load:
    """Read a file.

    Raises:
        LoadFileError: it is not there, is no load, or holds what no load can hold; with the place.
        WrongLoadError: something is given that does not apply to such a file.
    """
    reading = reading or Reading()
    if is_parquet(path) and path.is_dir():
        return _tabular(rows_of(parquet_table(path, None), reading.record_bytes), reading)
    data = bytes_of(path)
    if is_parquet(path, data):
        return _tabular(rows_of(parquet_table(path, data), reading.record_bytes), reading)
    text = text_of(path, data)
    stripped = text.lstrip()
    if not stripped:
        raise LoadFileError(f"{path} is empty, so there is nothing to play; name a file with a load.")
    if stripped[0] == "[" and stripped[1:].lstrip()[:1] == "{":
        return _streams(path, stripped, reading)
    if stripped[0] in "{[":
        return _control_lines(path, stripped, reading)
    lines = stripped.splitlines()
    if not any(line.strip() for line in lines[1:]) and _is_numbers(path, values := lines[0].split(",")):
        return _one_line(path, values, reading)
    return _tabular(rows_of(csv_table(path, text), reading.record_bytes), reading)


def _is_numbers(path: Path, values: Sequence[str]) -> bool:
    """One of three is enough: what is wrong with the others is said then. A header has none."""
    if len(values) == 2 and all(is_number(value) for value in values):
        raise LoadFileError(
            f"{path} is one line of two numbers, which may be a time and records/s or the records/s of two minutes, so "
            "it is not known what arrives; give it a header (time,records_per_second), or a third number."
        )
    return len(values) > 2 and any(is_number(value) for value in values)


# -- tables


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


def _tabular(told: Rows, reading: Reading) -> Load:
    """Rows -> seconds."""
    path, rows, per_second, notes = told.table.path, told.rows, told.per_second, [*told.notes]
    needless = ("capacity", "interval") if told.told_in_bytes else ("capacity", "interval", "record_bytes")
    check_applies(str(path), f"a table that tells {'bytes' if told.told_in_bytes else 'records'}", reading, *needless)
    if any(later.at < earlier.at for earlier, later in pairwise(rows)):
        notes.append("rows were not in the order of time and were put into it")
        rows = sorted(rows, key=lambda row: row.at)
    named = sorted({row.partition for row in rows if row.partition is not None})
    times = sorted({row.at for row in rows})
    pace = _Pace(times)
    # Rows less than a second apart have the times they came at. Rates at odd times cannot: they last.
    moments = pace.step < min(1.0, reading.speed_up) and (pace.regular or not per_second)
    notes += pace.notes(lasting=per_second or not moments)
    if again := len(rows) - len({(row.at, row.partition) for row in rows}):
        where = "time and partition" if named else "time"
        notes.append(f"{again} rows have the {where} of another one and were added to it")
    length = pace.lasting[times[-1]] / reading.speed_up
    span = (times[-1] - times[0]) / reading.speed_up
    grid = _Grid(str(path), int(span + 1e-9) + 1 if moments else span + length, reading)
    for row in rows:
        at, lasting = (row.at - times[0]) / reading.speed_up, pace.lasting[row.at] / reading.speed_up
        # A rate is kept when the time runs faster: a recorded day then is as heavy as it was, and shorter.
        if moments and not per_second:
            records = row.amount / reading.speed_up
            _check_rate(told.table.place(row.number), records)
            grid.add(at, row.partition, records)
            continue
        rate = row.amount if per_second else row.amount / pace.lasting[row.at]
        _check_rate(told.table.place(row.number), rate)
        if moments:
            grid.spread(at, lasting, row.partition, rate, pace.step / reading.speed_up)
        else:
            grid.fill(at, lasting, row.partition, rate)
    load = _load(grid, named, reading, path.name, notes)
    return replace(load, arrivals="recorded", moments=_moments(grid, load)) if moments else load


def _moments(grid: _Grid, load: Load) -> tuple[tuple[Moment, ...], ...]:
    """Return the moments of each second, in order of time: a row that lasts goes on beside others.

    What is dealt out falls on partitions by chance.
    """
    index = {partition: number for number, partition in enumerate(load.partitions)} if load.keys == "fixed" else {}
    return tuple(
        tuple(
            Moment(offset, records, None if partition is None else index.get(partition))
            for offset, partition, records in sorted(grid.moments.get(second, ()), key=lambda moment: moment[0])
        )
        for second in range(grid.begin, grid.end)
    )


def _check_rate(place: str, rate: float) -> None:
    if rate > RATE_MAX:
        raise LoadFileError(
            f"{place}: {digits(rate)} records/s are more than the {RATE_MAX:,.0f} that can be played, so it is "
            "probably in another unit; correct it."
        )


def _load(
    grid: _Grid,
    named: Sequence[Partition],
    reading: Reading,
    source: str,
    notes: Sequence[str],
) -> Load:
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
            per_second=totals, partitions=partitions, shares=shares, keys=keys, source=source, notes=tuple(notes)
        )
    except WrongLoadError as error:
        raise LoadFileError(f"{grid.source}: {error}") from None


# -- the papers' own


def _one_line(path: Path, values: Sequence[str], reading: Reading) -> Load:
    """Koper'22: records/s, one a minute."""
    check_applies(str(path), "one line of records/s", reading, "record_bytes", "capacity", "interval")
    length = KOPER_SECONDS / reading.speed_up
    grid = _Grid(str(path), len(values) * length, reading)
    for number, value in enumerate(values):
        rate = amount_of(f"{path}, value {number + 1}", "records/s", value)
        _check_rate(f"{path}, value {number + 1}", rate)
        grid.fill(number * length, length, None, rate)
    return _load(grid, (), reading, f"{path.name} (records/s, one a minute)", ())


def _streams(path: Path, text: str, reading: Reading) -> Load:
    check_applies(str(path), "a list of percentages", reading, "record_bytes")
    try:
        rows = msgspec.json.decode(text, type=list[dict[str, dict[str, float]]])
    except msgspec.MsgspecError as error:
        raise LoadFileError(
            f"{path} is JSON, but not a list of topic -> partition -> percent as Landau'24's streams are ({error})."
        ) from None
    partitions = sorted({_named(path, topic, index) for row in rows for topic, loads in row.items() for index in loads})
    if not partitions:
        raise LoadFileError(f"{path} names no partition, so there is nothing to play.")
    capacity = reading.capacity or CAPACITY_DEFAULT
    length = (reading.interval or INTERVAL_DEFAULT) / reading.speed_up
    grid = _Grid(str(path), len(rows) * length, reading)
    for number, row in enumerate(rows):
        flat = {_named(path, topic, index): value for topic, loads in row.items() for index, value in loads.items()}
        for partition in partitions:
            percent = amount_of(f"{path}, row {number + 1}", str(partition), flat.get(partition))
            grid.fill(number * length, length, partition, percent / 100.0 * capacity)
    return replace(_load(grid, partitions, reading, path.name, ()), arrivals="even")


def _named(path: Path, topic: str, index: str) -> Partition:
    if not index.isdecimal():
        raise LoadFileError(f"{path}: the partition {index!r} of {topic!r} is no number from 0 on; correct it.")
    return Partition(topic, int(index))


# -- telemetry


def _control_lines(path: Path, text: str, reading: Reading) -> Load:
    """Records of a control topic, one per line, bare or with their place (partition, offset, time, record)."""
    reports, unreadable = [], 0
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            value = entry[-1] if isinstance(entry, list) and entry else line
            record = decode(value.encode() if isinstance(value, str) else json.dumps(value).encode())
        except (ValueError, UnreadableRecord):
            unreadable += 1
            continue
        if isinstance(record, ReportRecord):
            reports.append(record)
    notes = (f"{unreadable} lines were no records of a control topic and were left out",) if unreadable else ()
    if not reports:
        raise LoadFileError(
            f"{path} holds no member's report, so it is not known what arrived; give a control topic's telemetry, one "
            f"record per line ({unreadable} lines were unreadable)."
        )
    return load_of_reports(reports, path.name, reading, notes)


def load_of_reports(
    reports: Iterable[ReportRecord], source: str, reading: Reading | None = None, notes: Sequence[str] = ()
) -> Load:
    """The load that a group's members reported.

    Each report's arrivals are spread evenly over its interval: bursts below the second are not in it.

    Raises:
        LoadFileError: there is no report, or no such part.
        WrongLoadError: something is given that does not apply to telemetry.
    """
    speed_up = (reading := reading or Reading()).speed_up
    check_applies(source, "telemetry, which tells records", reading, "record_bytes", "capacity", "interval")
    entries = []
    work = records = 0.0
    for report in sorted(reports, key=lambda report: (report.at, report.member, report.sequence)):
        for part in report.partitions:
            if part.arrived > 0:
                entries.append(
                    (report.at, max(report.interval, 0.1), Partition(part.topic, part.partition), part.arrived)
                )
            if part.cost_mean is not None and part.done > 0:
                work += part.cost_mean * report.speed * part.done
                records += part.done
    if not entries:
        raise LoadFileError(f"{source}: nothing arrived in what the members reported, so there is nothing to play.")
    begin = min(at - interval for at, interval, _, _ in entries)
    grid = _Grid(source, (max(at for at, _, _, _ in entries) - begin) / speed_up, reading)
    for at, interval, partition, arrived in entries:
        grid.fill((at - interval - begin) / speed_up, interval / speed_up, partition, arrived / interval)
    named = sorted({partition for _, _, partition, _ in entries})
    load = _load(grid, named, reading, source, notes)
    return replace(load, cost_seconds=work / records if records else None, arrivals="even")
