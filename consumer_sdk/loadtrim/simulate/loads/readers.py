"""Loads from files: CSV, Parquet, the papers' own traces, and a group's recorded telemetry.

A file is read by what is in it, not by its name alone. Whatever is done to make sense of it (rows put in order, gaps
taken as no load) is said in the load's ``notes``. What makes no sense is an error with the place.

* CSV with a header: a time, optionally ``topic`` and ``partition``, and ``records`` or ``bytes`` (or a name like
  them, see :data:`.tables.COLUMNS`). Each row says what arrived from its time until the next one's (:mod:`.tabular`),
  or, where they are less than a second apart, at its time. A monitor's export may have a column for each series.
* CSV without one, of two columns: time in seconds, records per second.
* One line of numbers with commas between them, three at least: records/s, one a minute (Koper'22). Two may as well be a
  time and a rate, and are refused.
* JSON: Landau'24's streams, a list of objects topic -> partition -> percent of a capacity; Prometheus' answer to
  ``query_range``; a list of objects with the names that a CSV has in its header.
* JSON lines: what a group's control topic holds, as ``loadtrim`` members wrote it; or such objects.
* Parquet, or a directory of such files: as CSV with a header (extra ``parquet``).

``.gz`` is unpacked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import decode
from loadtrim_agent.wire.envelope import UnreadableRecord
from loadtrim_agent.wire.telemetry_records import ReportRecord

from .amounts import amount_of
from .exports import is_prometheus, json_table, melted, prometheus_table
from .grid import Grid, check_rate, load_of
from .load import Load, LoadFileError, counted
from .reading import Reading, check_applies
from .tables import Table, bytes_of, csv_table, is_number, is_parquet, parquet_table, rows_of, text_of
from .tabular import load_of_rows

__all__ = ["Reading", "check_applies", "load_of_reports", "read_load"]

CAPACITY_DEFAULT, INTERVAL_DEFAULT = 100.0, 30.0
KOPER_SECONDS = 60


def read_load(path: Path, reading: Reading | None = None) -> Load:
    """Read a file.

    Raises:
        LoadFileError: it is not there, is no load, or holds what no load can hold; with the place.
        WrongLoadError: something is given that does not apply to such a file.
    """
    reading = reading or Reading()
    if is_parquet(path) and path.is_dir():
        return _table_load(parquet_table(path, None), reading)
    data = bytes_of(path)
    if is_parquet(path, data):
        return _table_load(parquet_table(path, data), reading)
    text = text_of(path, data)
    stripped = text.lstrip()
    if not stripped:
        raise LoadFileError(f"{path} is empty, so there is nothing to play; name a file with a load.")
    if stripped[0] in "{[":
        return _json(path, stripped, reading)
    lines = stripped.splitlines()
    if not any(line.strip() for line in lines[1:]) and _is_numbers(path, values := lines[0].split(",")):
        return _one_line(path, values, reading)
    return _table_load(csv_table(path, text), reading)


def _json(path: Path, text: str, reading: Reading) -> Load:
    """A monitor's answer, a table of objects, a paper's streams, or a control topic's records."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        if not any(map(_is_json, text.splitlines())):
            raise LoadFileError(
                f"{path} begins like JSON and ends or breaks off as none ({error}), so it is not known what arrived; "
                "export or copy it again."
            ) from None
        document = None
    if is_prometheus(document):
        return _table_load(prometheus_table(path, document), reading)
    if isinstance(document, list) and (table := json_table(path, document, "object")) is not None:
        return _table_load(table, reading)
    if text[0] == "[" and text[1:].lstrip()[:1] == "{":
        return _streams(path, text, reading)
    objects = _objects(path, text) if document is None else [document]
    if (table := json_table(path, objects, "line")) is not None:
        return _table_load(table, reading)
    return _control_lines(path, text, reading)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _objects(path: Path, text: str) -> list[object]:
    """Return the objects of JSON lines; none where a line is no JSON."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError:
        return []


def _too_deep(path: Path) -> LoadFileError:
    return LoadFileError(
        f"{path} is JSON whose lists or objects lie in each other deeper than can be read, as no load's do, so it is "
        "not known what arrived; name another file, or export it again."
    )


def _table_load(table: Table, reading: Reading) -> Load:
    return load_of_rows(rows_of(melted(table), reading.record_bytes, reading.values), reading)


def _is_numbers(path: Path, values: Sequence[str]) -> bool:
    """One of three is enough: what is wrong with the others is said then. A header has none."""
    if len(values) == 2 and all(is_number(value) for value in values):
        raise LoadFileError(
            f"{path} is one line of two numbers, which may be a time and records/s or the records/s of two minutes, so "
            "it is not known what arrives; give it a header (time,records_per_second), or a third number."
        )
    return len(values) > 2 and any(is_number(value) for value in values)


# -- the papers' own


def _one_line(path: Path, values: Sequence[str], reading: Reading) -> Load:
    """Koper'22: records/s, one a minute."""
    check_applies(str(path), "one line of records/s", reading, "record_bytes", "capacity", "interval", "values")
    length = KOPER_SECONDS / reading.speed_up
    grid = Grid(str(path), len(values) * length, reading)
    for number, value in enumerate(values):
        rate = amount_of(f"{path}, value {number + 1}", "records/s", value)
        check_rate(f"{path}, value {number + 1}", rate)
        grid.fill(number * length, length, None, rate)
    return load_of(grid, (), reading, f"{path.name} (records/s, one a minute)", ())


def _streams(path: Path, text: str, reading: Reading) -> Load:
    check_applies(str(path), "a list of percentages", reading, "record_bytes", "values")
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
    grid = Grid(str(path), len(rows) * length, reading)
    for number, row in enumerate(rows):
        flat = {_named(path, topic, index): value for topic, loads in row.items() for index, value in loads.items()}
        for partition in partitions:
            percent = amount_of(f"{path}, row {number + 1}", str(partition), flat.get(partition))
            grid.fill(number * length, length, partition, percent / 100.0 * capacity)
    return replace(load_of(grid, partitions, reading, path.name, ()), arrivals="even")


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
        except (ValueError, RecursionError, UnreadableRecord):
            unreadable += 1
            continue
        if isinstance(record, ReportRecord):
            reports.append(record)
    notes = (f"{unreadable} lines were no records of a control topic and were left out",) if unreadable else ()
    if not reports:
        raise LoadFileError(
            f"{path} is JSON and no load that is known ({counted(unreadable, 'line is', 'lines are')} no record of a "
            "control topic, and none is a member's report), so it is not known what arrived; give Prometheus' answer "
            "to query_range, objects with 'time' and 'records', or a control topic's telemetry, one record per line."
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
    check_applies(source, "telemetry, which tells records", reading, "record_bytes", "capacity", "interval", "values")
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
    grid = Grid(source, (max(at for at, _, _, _ in entries) - begin) / speed_up, reading)
    for at, interval, partition, arrived in entries:
        grid.fill((at - interval - begin) / speed_up, interval / speed_up, partition, arrived / interval)
    named = sorted({partition for _, _, partition, _ in entries})
    load = load_of(grid, named, reading, source, notes)
    return replace(load, cost_seconds=work / records if records else None, arrivals="even")
