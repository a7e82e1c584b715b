"""Loads from files: CSV, Parquet, the papers' own traces, and a group's recorded telemetry.

A file is read by what is in it, not by its name alone; whatever is done to make sense of it (rows put in order, gaps
taken as no load) is said in the load's ``notes``, and what makes no sense is an error with the line.

* CSV with a header: a time, optionally ``topic`` and ``partition``, and ``records`` or ``bytes`` (or a name like
  them, see :data:`COLUMNS`). Each row says what arrived from its time until the next one's.
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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from loadtrim_agent.core.model import Partition
from loadtrim_agent.core.records import ReportRecord, UnreadableRecord, decode

from .loads import SECONDS_MAX, TOPIC, Load, LoadFileError, shares_even, stream_load

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
    if path.suffix == ".parquet":
        return _tabular(path, _parquet_rows(path), reading)
    text = _text(path)
    stripped = text.lstrip()
    if not stripped:
        raise LoadFileError(f"{path} is empty, so there is nothing to play; name a file with a load.")
    if stripped[0] == "[" and stripped[1:].lstrip()[:1] == "{":
        return _streams(path, stripped, reading)
    if stripped[0] in "{[":
        return _control_lines(path, stripped)
    lines = [line for line in stripped.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].count(",") >= 2:
        return _one_line(path, lines[0], reading)
    return _tabular(path, _csv_rows(path, stripped), reading)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise LoadFileError(
            f"There is no file {path}, so there is no load; check the name (generators are written like "
            "step:before=50,after=150)."
        ) from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LoadFileError(f"{path} cannot be read as text ({error}); save it as UTF-8, or name another.") from error


# -- tables


def _csv_rows(path: Path, text: str) -> list[tuple[int, dict[str, str]]]:
    sample = text[:4096]
    delimiter = max(",;\t", key=sample.count)
    table = list(csv.reader(io.StringIO(text), delimiter=delimiter))
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
        partition = _partition(path, line, row, names)
        parsed.append(_Row(line, _time(path, line, row[names["time"]]), partition, value / size))
    return _assembled(path, parsed, amount in RATES, reading)


def _columns(path: Path, head: Sequence[str]) -> dict[str, str]:
    found = {}
    for kind, known in COLUMNS.items():
        matching = [name for name in known if name in head]
        if matching:
            found[kind] = matching[0]
    if "time" not in found or not ("records" in found or "bytes" in found):
        raise LoadFileError(
            f"{path} has the columns {', '.join(map(repr, head))}; a load needs {_wanted()}. "
            "Rename them in its first line."
        )
    return found


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
            # Milliseconds since the epoch are told from seconds by their size.
            return number / 1e3 if number > 1e11 else number
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


def _assembled(path: Path, rows: list[_Row], per_second: bool, reading: Reading) -> Load:
    """Rows -> seconds. A row stands for the time until the next one; the last for as long as the one before."""
    notes = []
    if any(later.at < earlier.at for earlier, later in pairwise(rows)):
        notes.append("rows were not in the order of time and were put into it")
        rows = sorted(rows, key=lambda row: row.at)
    times = sorted({row.at for row in rows})
    step = _step(times)
    missing = sum(round((later - earlier) / step) - 1 for earlier, later in pairwise(times))
    if missing > 0:
        notes.append(f"{missing} of {missing + len(times)} steps of {step:g} s are missing and count as no load")
    length = step / reading.speed_up
    span = (times[-1] - times[0]) / reading.speed_up
    seconds = int(span + 1e-9) + 1 if length < 1.0 else math.ceil(span + length - 1e-9)
    if seconds > SECONDS_MAX:
        raise LoadFileError(
            f"{path} spans {seconds} s, more than the {SECONDS_MAX} s (31 days) that are played at once; "
            "cut it, or play it faster with --speed-up."
        )
    named = sorted({row.partition for row in rows if row.partition is not None})
    if named and not all(row.partition is not None for row in rows):
        raise LoadFileError(f"{path}: some rows name a partition and some do not; correct them.")
    grid: list[dict[Partition | None, float]] = [{} for _ in range(seconds)]
    for row in rows:
        # A rate is kept when the time runs faster: a recorded day then is as heavy as it was, and shorter.
        rate = row.amount if per_second else row.amount / step
        if step < 1.0 and reading.speed_up == 1.0:
            rate, end = row.amount * (step if per_second else 1.0), None
        else:
            end = length
        _fill(grid, (row.at - times[0]) / reading.speed_up, end, rate, row.partition)
    source = path.name if reading.speed_up == 1.0 else f"{path.name}, {reading.speed_up:g} times as fast"
    return _load(grid, named, reading, source, notes)


def _fill(
    grid: list[dict[Partition | None, float]],
    begin: float,
    length: float | None,
    rate: float,
    partition: Partition | None,
) -> None:
    """Add a rate to the seconds that it lasts for; ``length`` None: so many records in the second of ``begin``."""
    if length is None:
        cell = grid[min(int(begin + 1e-9), len(grid) - 1)]
        cell[partition] = cell.get(partition, 0.0) + rate
        return
    end = begin + length
    second = int(begin + 1e-9)
    while second < end - 1e-9 and second < len(grid):
        part = min(end, second + 1.0) - max(begin, second)
        grid[second][partition] = grid[second].get(partition, 0.0) + rate * part
        second += 1


def _step(times: Sequence[float]) -> float:
    """The usual time between rows: the most common difference, of two as common the smaller one."""
    if len(times) < 2:
        return 1.0
    steps = Counter(round(later - earlier, 6) for earlier, later in pairwise(times))
    return min(steps.items(), key=lambda entry: (-entry[1], entry[0]))[0]


def _load(
    grid: Sequence[Mapping[Partition | None, float]],
    named: Sequence[Partition],
    reading: Reading,
    source: str,
    notes: Sequence[str],
) -> Load:
    totals = tuple(sum(cell.values()) for cell in grid)
    shares: tuple[tuple[float, ...], ...]
    if named and reading.partitions is None:
        partitions = tuple(named)
        even = shares_even(len(partitions))
        shares = tuple(
            tuple(cell.get(partition, 0.0) / total for partition in partitions) if total > 0 else even
            for cell, total in zip(grid, totals, strict=True)
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
    grid: list[dict[Partition | None, float]] = [{None: value} for value in values for _ in range(length)]
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
    return stream_load(values, reading.interval / reading.speed_up, reading.capacity, path.name, partitions)


def _named(path: Path, topic: str, index: str) -> Partition:
    if not index.isdecimal():
        raise LoadFileError(f"{path}: the partition {index!r} of {topic!r} is no number from 0 on; correct it.")
    return Partition(topic, int(index))


# -- telemetry


def _control_lines(path: Path, text: str) -> Load:
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
    return load_of_reports(reports, path.name, notes)


def load_of_reports(reports: Iterable[ReportRecord], source: str, notes: Sequence[str] = ()) -> Load:
    """The load that a group's members reported.

    Each report's arrivals are spread evenly over its interval: bursts below the second are not in it.

    Raises:
        LoadFileError: there is no report.
    """
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
    seconds = math.ceil(max(at for at, _, _, _ in entries) - begin)
    if seconds > SECONDS_MAX:
        raise LoadFileError(f"{source} spans {seconds} s, more than the {SECONDS_MAX} s that are played at once.")
    grid: list[dict[Partition | None, float]] = [{} for _ in range(max(1, seconds))]
    for at, interval, partition, arrived in entries:
        _fill(grid, at - interval - begin, interval, arrived / interval, partition)
    named = sorted({partition for _, _, partition, _ in entries})
    load = _load(grid, named, Reading(), source, notes)
    return replace(load, cost_seconds=work / records if records else None, arrivals="even")
