"""Loads from files: CSV, Parquet, the papers' own traces, and a group's recorded telemetry.

A file is read by what is in it, not by its name alone; whatever is done to make sense of it (rows put in order, gaps
taken as no load) is said in the load's ``notes``, and what makes no sense is an error with the line.

* CSV with a header: a time, optionally ``topic`` and ``partition``, and ``records`` or ``bytes`` (or a name like
  them, see :data:`COLUMNS`). Each row says what arrived from its time until the next one's (:class:`_Pace`).
* CSV without one, of two columns: time in seconds, records per second.
* Numbers separated by commas, of one column: records/s, one a minute (Koper'22).
* JSON: Landau'24's streams, a list of objects topic -> partition -> percent of a capacity.
* JSON lines: what a group's control topic holds, as ``loadtrim`` members wrote it.
* Parquet: as CSV with a header (extra ``parquet``).

``.gz`` is unpacked.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from loadtrim_agent.core.model import Partition
from loadtrim_agent.core.records import ReportRecord, UnreadableRecord, decode

from .loads import (
    SECONDS_MAX,
    TOPIC,
    Load,
    LoadFileError,
    WrongLoadError,
    check_partitions,
    nearest,
    part_end,
    shares_even,
    stream_load,
)

__all__ = ["COLUMNS", "Reading", "load_of_reports", "read_load"]

COLUMNS = {
    "time": ("time", "timestamp", "t", "t_seconds", "seconds", "second", "period", "date", "datetime", "at"),
    "partition": ("partition", "partition_id", "p"),
    "topic": ("topic",),
    "records": ("records", "records_per_second", "count", "value", "messages", "events", "requests", "rate"),
    "bytes": ("bytes", "size", "bytes_per_second"),
}
"""Names of columns, in any case."""
RATES = frozenset({"records_per_second", "rate", "bytes_per_second"})
"""Columns that hold so many per second, not so many in the time of the row."""
BYTES_MAX = 1 << 30
KOPER_SECONDS = 60
EPOCH_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""(above, a second's worth): nano-, micro- and milliseconds since the epoch. A number that is larger than seconds can
be (the year 5138) is told by its size, and no unit's years 1973 to 5138 overlap with another one's."""
REGULAR_SHARE = 0.5
"""Of the distances between rows, more than this alike: the file has a regular step."""
STEPS_TOLERANCE = 0.01
"""Of a step: a distance is so many whole steps if it is off by no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read what a file does not say."""

    partitions: int | None = None
    """Deal the total out over so many, evenly; None: those in the file, 9 where it names none."""
    record_bytes: float | None = None
    """Size of a record, for files that tell bytes."""
    capacity: float = 100.0
    """Records/s that 100 % means in Landau'24's streams."""
    interval: float = 30.0
    """Seconds that each of their rows lasts."""
    speed_up: float = 1.0
    """A row's time counts as so much less: 60 plays a minute in a second, at the same rate per second."""
    begin: int = 0
    """The first second that is read, as it is played: after ``speed_up``."""
    seconds: int | None = None
    """So many seconds are read; None: all from ``begin`` on. Only what is read has to be short enough to be played."""


class _Grid:
    """The seconds that are read, each with what arrived in it.

    Args:
        source: the load's, for messages.
        length: seconds of all that is there.
        reading: which of them are read.

    Raises:
        LoadFileError: there are no such seconds, or more than are played at once.
    """

    def __init__(self, source: str, length: int, reading: Reading) -> None:
        try:
            self.begin, self.end = reading.begin, part_end(length, reading.begin, reading.seconds)
        except WrongLoadError as error:
            raise LoadFileError(f"{source}: {error}") from None
        if self.end - self.begin > SECONDS_MAX:
            raise LoadFileError(
                f"{source} spans {self.end - self.begin} s, more than the {SECONDS_MAX} s (31 days) that are played at "
                "once; cut a part out with --begin and --seconds, or play it faster with --speed-up."
            )
        self.cells: list[dict[Partition | None, float]] = [{} for _ in range(self.begin, self.end)]

    def add(self, at: float, partition: Partition | None, records: float) -> None:
        """So many records in the second of ``at``."""
        self._add(int(at + 1e-9), partition, records)

    def fill(self, begin: float, length: float, partition: Partition | None, rate: float) -> None:
        """A rate in each of the seconds that it lasts for."""
        end = begin + length
        for second in range(max(self.begin, int(begin + 1e-9)), min(self.end, math.ceil(end - 1e-9))):
            self._add(second, partition, rate * (min(end, second + 1.0) - max(begin, second)))

    def _add(self, second: int, partition: Partition | None, records: float) -> None:
        if self.begin <= second < self.end:
            cell = self.cells[second - self.begin]
            cell[partition] = cell.get(partition, 0.0) + records


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    at: float
    partition: Partition | None
    amount: float


PARTITIONS_DEFAULT = 9


def read_load(path: Path, reading: Reading | None = None) -> Load:
    """Read a file.

    Raises:
        LoadFileError: it is not there, is no load, or holds what no load can hold; with the line.
    """
    reading = reading or Reading()
    if not 0.0 < reading.speed_up < math.inf:
        raise LoadFileError(f"--speed-up is {reading.speed_up}; it must be a finite number above 0.")
    if reading.partitions is not None:
        check_partitions(reading.partitions)
    if path.suffix == ".parquet":
        return _tabular(path, _parquet_rows(path), reading)
    text = _text(path)
    stripped = text.lstrip()
    if not stripped:
        raise LoadFileError(f"{path} is empty, so there is nothing to play; name a file with a load.")
    if stripped[0] == "[" and stripped[1:].lstrip()[:1] == "{":
        return _streams(path, stripped, reading)
    if stripped[0] in "{[":
        return _control_lines(path, stripped, reading)
    lines = [line for line in stripped.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].count(",") >= 2:
        return _one_line(path, lines[0], reading)
    return _tabular(path, _csv_rows(path, stripped), reading)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LoadFileError(
            f"There is no file {path}, so there is no load; check the name (generators are written like "
            "step:before=50,after=150)."
        ) from None
    except IsADirectoryError:
        raise LoadFileError(f"{path} is a directory, so there is no load in it; name one of its files.") from None
    except OSError as error:
        raise LoadFileError(
            f"{path} cannot be read ({error.strerror}), so there is no load; check the name and who may read it."
        ) from error
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise LoadFileError(
            f"{path} cannot be unpacked ({error}), so its end or more is missing; pack or copy it again."
        ) from error
    try:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadFileError(f"{path} cannot be read as text ({error}); save it as UTF-8, or name another.") from error


# -- tables


def _csv_rows(path: Path, text: str) -> list[tuple[int, dict[str, str]]]:
    sample = text[:4096]
    delimiter = max(",;\t", key=sample.count)
    try:
        table = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise LoadFileError(f"{path} cannot be read as CSV ({error}); correct it, or name another file.") from error
    head = [name.strip().lower() for name in table[0]]
    if all(_is_number(value) for value in head):
        if len(head) != 2:
            raise LoadFileError(
                f"{path} has no header and {len(head)} columns; without a header it must have two: time in seconds, "
                f"records per second. Add a header with {_wanted()}."
            )
        head, first = ["time", "records_per_second"], 0
    else:
        first = 1
    _check_names(path, head)
    rows = []
    for number, values in enumerate(table[first:], first + 1):
        if not any(value.strip() for value in values):
            continue
        if len(values) != len(head):
            raise LoadFileError(
                f"{path}, line {number}: {len(values)} columns where the first line has {len(head)}; correct the line."
            )
        rows.append((number, dict(zip(head, values, strict=True))))
    return rows


def _parquet_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise LoadFileError(
            f"{path} is a Parquet file, and the package that reads them is not installed; "
            "pip install 'loadtrim[parquet]', or save it as CSV."
        ) from None
    try:
        table = parquet.read_table(path)
    except Exception as error:
        raise LoadFileError(f"{path} cannot be read as Parquet ({error}); name another file.") from error
    names = [name.lower() for name in table.column_names]
    _check_names(path, names)
    columns = [column.to_pylist() for column in table.columns]
    return [
        (number, dict(zip(names, values, strict=True))) for number, values in enumerate(zip(*columns, strict=True), 1)
    ]


def _tabular(path: Path, rows: Sequence[tuple[int, Mapping[str, Any]]], reading: Reading) -> Load:
    if not rows:
        raise LoadFileError(f"{path} has no row, so there is nothing to play; name a file with a load.")
    names = _columns(path, list(rows[0][1]))
    amount = names.get("records") or names["bytes"]
    size = _record_bytes(path, reading) if "records" not in names else 1.0
    parsed = []
    for line, row in rows:
        value = _amount(path, line, amount, row[amount])
        # What is nearer than a microsecond is the same time.
        at = round(_time(path, line, row[names["time"]]), 6)
        parsed.append(_Row(line, at, _partition(path, line, row, names), value / size))
    return _assembled(path, parsed, amount in RATES, reading, _not_needed(names))


def _columns(path: Path, head: Sequence[str]) -> dict[str, str]:
    """What each column is, kind -> name: one that nobody knows, or two for the same, would be played wrongly."""
    kinds = {name: kind for kind, names in COLUMNS.items() for name in names}
    found: dict[str, str] = {}
    for name in head:
        if (kind := kinds.get(name)) is None:
            raise LoadFileError(
                f"{path} has a column {name!r}, which is not known (the nearest is {nearest(name, COLUMNS)!r}), so "
                f"what it tells would be passed over; a load has {_wanted()}. Rename the column or leave it out."
            )
        if kind in found:
            raise LoadFileError(
                f"{path} has the columns {found[kind]!r} and {name!r}, which both tell the {kind}, so it is not known "
                "which one counts; leave one of them out."
            )
        found[kind] = name
    if "time" not in found or not ("records" in found or "bytes" in found):
        raise LoadFileError(
            f"{path} has the columns {', '.join(map(repr, head))}; a load needs {_wanted()}. "
            "Rename them in its first line."
        )
    return found


def _not_needed(names: Mapping[str, str]) -> list[str]:
    """What is told of columns that nothing is played by."""
    notes = []
    if "records" in names and "bytes" in names:
        notes.append(f"the column {names['bytes']!r} was not needed: {names['records']!r} tells what arrived")
    if "topic" in names and "partition" not in names:
        notes.append("the column 'topic' was not needed: without partitions the total of all rows is dealt out")
    return notes


def _check_names(path: Path, head: Sequence[str]) -> None:
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise LoadFileError(
            f"{path} has more than one column {twice[0]!r}, so it is not known which one counts; leave all but one out."
        )


def _wanted() -> str:
    return "a column 'time' and one of 'records' or 'bytes' ('partition' and 'topic' may be there too)"


def _record_bytes(path: Path, reading: Reading) -> float:
    if reading.record_bytes is None:
        raise LoadFileError(
            f"{path} tells bytes, and a simulation is about records; say how large a record is with --record-bytes."
        )
    if not 0.0 < reading.record_bytes <= BYTES_MAX:
        raise LoadFileError(f"A record of {reading.record_bytes} bytes cannot be; give a size above 0.")
    return reading.record_bytes


def _amount(path: Path, line: int, name: str, value: Any) -> float:
    try:
        number = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise LoadFileError(
            f"{path}, line {line}: {name} is {value!r}, which is missing, negative or no finite number, so it is not "
            "known what arrived; correct the line or leave it out."
        )
    return number


def _partition(path: Path, line: int, row: Mapping[str, Any], names: Mapping[str, str]) -> Partition | None:
    if "partition" not in names:
        return None
    value = row[names["partition"]]
    try:
        index = int(float(value))
        if index < 0 or index != float(value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise LoadFileError(
            f"{path}, line {line}: the partition {value!r} is no whole number from 0 on; correct it."
        ) from None
    topic = str(row[names["topic"]]).strip() if "topic" in names else TOPIC
    return Partition(topic, index)


def _time(path: Path, line: int, value: Any) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    try:
        number = float(value)
        if math.isfinite(number):
            return number / next((worth for above, worth in EPOCH_UNITS if number > above), 1.0)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(value).strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            pass
    raise LoadFileError(
        f"{path}, line {line}: the time {value!r} is neither a number of seconds nor like "
        "2024-05-01 12:30:00; correct it."
    )


class _Pace:
    """How long each row stands for.

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
        """How many whole steps a distance is; 0: it is none."""
        number = round(distance / self.step)
        return number if abs(distance - number * self.step) <= STEPS_TOLERANCE * self.step else 0

    def notes(self, moments: bool) -> list[str]:
        """What is to be told of gaps and of rows at odd times; ``moments``: rows count in the second of their time."""
        notes = []
        if self.missing:
            total = self.missing + len(self.lasting)
            notes.append(f"{self.missing} of {total} steps of {self.step:g} s are missing and count as no load")
        if self.odd and not moments:
            steps = f"no steps of {self.step:g} s" if self.regular else "no regular steps"
            shortest, longest = min(self.odd), max(self.odd)
            after = f"{longest:g} s" if shortest == longest else f"{shortest:g} to {longest:g} s"
            notes.append(
                f"{len(self.odd)} rows are followed by the next one after {after}, which are {steps}: what they say is "
                "spread until then"
            )
        return notes


def _assembled(path: Path, rows: list[_Row], per_second: bool, reading: Reading, notes: Sequence[str]) -> Load:
    """Rows -> seconds."""
    notes = [*notes]
    if any(later.at < earlier.at for earlier, later in pairwise(rows)):
        notes.append("rows were not in the order of time and were put into it")
        rows = sorted(rows, key=lambda row: row.at)
    named = sorted({row.partition for row in rows if row.partition is not None})
    times = sorted({row.at for row in rows})
    pace = _Pace(times)
    # Rows less than a second apart count in the second of their time. Rates at odd times cannot: they last.
    moments = pace.step < 1.0 and reading.speed_up == 1.0 and (pace.regular or not per_second)
    notes += pace.notes(moments)
    if again := len(rows) - len({(row.at, row.partition) for row in rows}):
        where = "time and partition" if named else "time"
        notes.append(f"{again} rows have the {where} of another one and were added to it")
    length = pace.lasting[times[-1]] / reading.speed_up
    span = (times[-1] - times[0]) / reading.speed_up
    whole = int(span + 1e-9) + 1 if moments or length < 1.0 else math.ceil(span + length - 1e-9)
    grid = _Grid(str(path), whole, reading)
    for row in rows:
        at, lasting = (row.at - times[0]) / reading.speed_up, pace.lasting[row.at]
        if moments:
            grid.add(at, row.partition, row.amount * (lasting if per_second else 1.0))
        else:
            # A rate is kept when the time runs faster: a recorded day then is as heavy as it was, and shorter.
            rate = row.amount if per_second else row.amount / lasting
            grid.fill(at, lasting / reading.speed_up, row.partition, rate)
    source = path.name if reading.speed_up == 1.0 else f"{path.name}, {reading.speed_up:g} times as fast"
    return _load(grid, named, reading, source, notes)


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
    return Load(per_second=totals, partitions=partitions, shares=shares, keys=keys, source=source, notes=tuple(notes))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- the papers' own


def _one_line(path: Path, line: str, reading: Reading) -> Load:
    """Koper'22: records/s, one a minute."""
    values = [_amount(path, 1, f"value {number}", value) for number, value in enumerate(line.split(","), 1)]
    length = max(1, round(KOPER_SECONDS / reading.speed_up))
    grid = _Grid(str(path), len(values) * length, reading)
    for number, value in enumerate(values):
        grid.fill(number * length, length, None, value)
    return _load(grid, (), reading, f"{path.name} (records/s, one a minute)", ())


def _streams(path: Path, text: str, reading: Reading) -> Load:
    try:
        rows = msgspec.json.decode(text, type=list[dict[str, dict[str, float]]])
    except msgspec.MsgspecError as error:
        raise LoadFileError(
            f"{path} is JSON, but not a list of topic -> partition -> percent as Landau'24's streams are ({error})."
        ) from None
    partitions = sorted({_named(path, topic, index) for row in rows for topic, loads in row.items() for index in loads})
    if not partitions:
        raise LoadFileError(f"{path} names no partition, so there is nothing to play.")
    values = []
    for number, row in enumerate(rows, 1):
        flat = {_named(path, topic, index): value for topic, loads in row.items() for index, value in loads.items()}
        values.append([_amount(path, number, str(p), flat.get(p)) for p in partitions])
    load = stream_load(values, reading.interval / reading.speed_up, reading.capacity, path.name, partitions)
    return load.part(reading.begin, reading.seconds)


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
    """
    speed_up = (reading := reading or Reading()).speed_up
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
    length = math.ceil((max(at for at, _, _, _ in entries) - begin) / speed_up)
    grid = _Grid(source, max(1, length), reading)
    for at, interval, partition, arrived in entries:
        grid.fill((at - interval - begin) / speed_up, interval / speed_up, partition, arrived / interval)
    named = sorted({partition for _, _, partition, _ in entries})
    # Every partition that was reported is played as it was: dealing the total out anew is the caller's.
    load = _load(grid, named, replace(reading, partitions=None), source, notes)
    return replace(load, cost_seconds=work / records if records else None, arrivals="even")
