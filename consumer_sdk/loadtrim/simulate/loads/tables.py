"""Rows of what arrived, from CSV and Parquet, and what their columns mean.

Everything here is about one row or one column: a name that nobody knows, a time that can be read in two ways, an amount
that is none. What rows mean together (steps, gaps, moments) is :mod:`.tabular`' part.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from loadtrim_agent.common.partition import Partition

from .amounts import COUNTS, RATES, UNCLEAR, Amounts, Quantity, amounts_of, quantity_of, shortened
from .load import TOPIC, LoadFileError

__all__ = [
    "COLUMNS",
    "Row",
    "Rows",
    "Table",
    "check_names",
    "csv_table",
    "is_number",
    "is_parquet",
    "parquet_table",
    "rows_of",
    "text_of",
]

COLUMNS = {
    "time": ("time", "timestamp", "t", "t_seconds", "seconds", "second", "period", "date", "datetime", "at"),
    "partition": ("partition", "partition_id", "p"),
    "topic": ("topic",),
    "records": tuple(sorted((RATES | COUNTS | UNCLEAR) - {"bytes", "size", "bytes_per_second"})),
    "bytes": ("bytes", "bytes_per_second", "size"),
}
"""Names of columns, in any case."""
EPOCH_UNITS = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))
"""(above, a second's worth, what they are) of numbers since the epoch. One that is larger than seconds can be (the year
5138) is told by its size, and no unit's years 1973 to 5138 overlap with another one's."""
EPOCH_SECONDS_MIN = 1e8
"""Seconds that are larger are taken for a moment where one is shown: 1973, or three years of a file's own time."""
TIME_MAX = 1e11
"""Seconds: the year 5138."""
COMPACT = {12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Digits -> a date that is written with nothing else. As milliseconds these would be of 1976, or of 2572 to 2635."""
AMBIGUOUS = {8: "%Y%m%d", 10: "%Y%m%d%H"}
"""Digits -> a date that may as well be seconds: since the start of a machine, or of 2030 and later."""
NUMBER = "a number of seconds"
ZONED, UNZONED = "a date with a time zone", "a date without one"
DIGITS = "a date of digits alone"
DELIMITERS = ",;\t|"
PARQUET_MAGIC = b"PAR1"
PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of a file, before anybody knows what they mean."""

    path: Path
    unit: str
    """The word for a row in messages: ``line`` or ``row``."""
    names: Sequence[str]
    """Of the columns, lower case, each once."""
    rows: Sequence[tuple[int, Sequence[Any]]]
    """(number in the file, from 1; a value for each column)."""
    titles: Sequence[str] = ()
    """The names as they are written; empty: as ``names``."""
    value: str = ""
    """Name of the column that tells what arrived, where it is a monitor's; empty: one of :data:`COLUMNS` does."""
    series: Sequence[int] = ()
    """Of each row, the number of its series, where the file has several; empty: the rows are one series."""
    headless: bool = False
    """True: the file does not name its columns."""

    def place(self, number: int) -> str:
        """Where that is, for messages."""
        return f"{self.path}, {self.unit} {number}"


@dataclass(frozen=True, slots=True)
class Row:
    """The meaning of one row."""

    number: int
    """In the file, from 1."""
    at: float
    """Seconds, to a microsecond."""
    partition: Partition | None
    amount: float
    """Records, or records/s."""
    series: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The meaning of all rows."""

    table: Table
    rows: list[Row]
    """As in the file."""
    column: str
    """The column that tells what arrived, as it is written."""
    quantity: Quantity | None
    """Kind of thing that the amounts count; None: the column does not tell."""
    why: str
    """The reason for that kind, in words."""
    dated: bool
    """Are the times moments since the epoch, and not seconds of the file's own?"""
    told_in_bytes: bool
    notes: tuple[str, ...]


# -- files


def is_parquet(path: Path, data: bytes = b"") -> bool:
    """By its name, or by what it begins with."""
    return path.name.lower().removesuffix(".gz").endswith(PARQUET_SUFFIXES) or data[:4] == PARQUET_MAGIC


def bytes_of(path: Path) -> bytes:
    """Return what is in a file, unpacked.

    Raises:
        LoadFileError: it is not there or cannot be read.
    """
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
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise LoadFileError(
            f"{path} cannot be unpacked ({error}), so its end or more is missing; pack or copy it again."
        ) from error


def text_of(path: Path, data: bytes) -> str:
    """The text in UTF-8, or in UTF-16 with its mark.

    Raises:
        LoadFileError: it is in neither.
    """
    if data[:4] == b"PK\x03\x04":
        raise LoadFileError(
            f"{path} is a packed archive, as spreadsheets are, so there is no load to be read in it; save it as CSV."
        )
    try:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadFileError(f"{path} cannot be read as text ({error}); save it as UTF-8, or name another.") from error


def csv_table(path: Path, text: str) -> Table:
    """CSV with commas, semicolons, tabs or strokes; without a header its two columns are time and records per second.

    Raises:
        LoadFileError: it is no CSV, a row has more or fewer columns than the first, or a name is there twice.
    """
    rows = _csv_rows(path, text)
    if not rows:
        return Table(path, "line", (), ())
    titles = [name.strip() for name in rows[0][1]]
    head = [name.lower() for name in titles]
    headless = all(is_number(value) for value in head)
    if headless:
        if len(head) != 2:
            raise LoadFileError(
                f"{path} has no header and {len(head)} columns; without a header it must have two: time in seconds, "
                f"records per second. Add a header with {_wanted()}."
            )
        titles = head = ["time", "records_per_second"]
    else:
        rows = rows[1:]
    if len(head) == 1:
        raise LoadFileError(
            f"{path} has one column only, {titles[0]!r}, so it is not known what arrived when; part the columns "
            f"by commas, semicolons, tabs or strokes, and give it {_wanted()}."
        )
    check_names(path, head)
    for number, values in rows:
        if len(values) != len(head):
            raise LoadFileError(
                f"{path}, line {number}: {len(values)} columns where the first line has {len(head)}; correct the line."
            )
    return Table(path, "line", head, rows, titles=titles, headless=headless)


def _csv_rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Return the rows with anything in them, each with the line it begins at: a quoted value may go over several."""
    delimiter, skipped = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    begins = 1
    try:
        for values in reader:
            if any(value.strip() for value in values) and not (skipped and not rows and begins == reader.line_num == 1):
                rows.append((begins, values))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise LoadFileError(
            f"{path}, line {begins}: what begins there cannot be read as CSV ({error}), so it is not known where its "
            "values end; correct it (a quote that is not closed?), or name another file."
        ) from error
    return rows


def _delimiter(text: str) -> tuple[str, bool]:
    """Return what parts the columns, and whether a line of its own says so, as spreadsheets write it (``sep=;``)."""
    first, _, rest = text.partition("\n")
    said = first.strip().strip('"').lower()
    if said.startswith("sep=") and len(said) == 5:
        return said[-1], True
    head = text.lstrip().partition("\n")[0]
    # The first line alone: amounts below it may have commas of their own.
    bare = re.sub(r'"[^"]*"?', "", head)
    best = max(DELIMITERS, key=bare.count)
    return (best if best in bare else max(DELIMITERS, key=rest[:4096].count)), False


def parquet_table(path: Path, data: bytes | None) -> Table:
    """Parquet, with the extra ``parquet``.

    Args:
        path: for messages.
        data: of the file; None: ``path`` is a directory of files, as Spark writes them.

    Raises:
        LoadFileError: it is none, or nothing that reads it is installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise LoadFileError(
            f"{path} is a Parquet file, and the package that reads them is not installed; "
            "pip install pyarrow, or save it as CSV."
        ) from None
    try:
        table = parquet.read_table(path if data is None else pyarrow.BufferReader(data))
        columns = [_values(column, pyarrow) for column in table.columns]
    except Exception as error:
        raise LoadFileError(f"{path} cannot be read as Parquet ({error}); name another file.") from error
    names = [name.lower() for name in table.column_names]
    check_names(path, names)
    return Table(path, "row", names, list(enumerate(zip(*columns, strict=True), 1)))


def _values(column: Any, pyarrow: Any) -> list[Any]:
    """Times become seconds since the epoch here: Python knows no nanoseconds, and may not know the column's zone."""
    if not pyarrow.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    micros = column.cast(pyarrow.timestamp("us", tz=column.type.tz), safe=False).cast(pyarrow.int64()).to_pylist()
    return [None if value is None else value / 1e6 for value in micros]


def is_number(text: str) -> bool:
    """Return whether it is a number, a finite one or not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- columns


def rows_of(table: Table, record_bytes: float | None, values: Quantity | None = None) -> Rows:
    """Return the meaning of the rows.

    Args:
        table: the file's.
        record_bytes: size of a record, where the file tells bytes.
        values: what the amounts count; None: what the column tells.

    Raises:
        LoadFileError: a column is missing or not known, or a value is none, with its place.
    """
    if not table.rows:
        raise LoadFileError(f"{table.path} has no row, so there is nothing to play; name a file with a load.")
    found = _columns(table)
    place = {kind: table.names.index(name) for kind, name in found.items()}
    kind = "records" if "records" in found else "bytes"
    size = _record_bytes(table.path, record_bytes) if kind == "bytes" else 1.0
    times, dated, notes = _times(table, place["time"])
    column = (table.titles or table.names)[place[kind]]
    cells = [(table.place(number), row[place[kind]]) for number, row in table.rows]
    amounts = amounts_of(column, cells, sparse=bool(table.value))
    quantity, why = _quantity(table, found[kind], amounts, values)
    size *= amounts.unit_seconds or 1.0
    rows = [
        Row(number, at, _partition(table, number, row, place), amount / size, series)
        for (number, row), at, amount, series in zip(
            table.rows, times, amounts.numbers, table.series or [0] * len(table.rows), strict=True
        )
        if amount is not None
    ]
    if not rows:
        raise LoadFileError(f"{table.path} has no row with a value, so there is nothing to play; export it again.")
    if (several := len(set(table.series))) > 1 and "partition" not in place:
        notes.append(f"{several} series were added up")
    told = (*notes, *amounts.notes, *_not_needed(found))
    return Rows(table, rows, column, quantity, why, dated, kind == "bytes", told)


def _quantity(table: Table, name: str, amounts: Amounts, values: Quantity | None) -> tuple[Quantity | None, str]:
    """Return what the amounts count, and what tells it."""
    if values is not None:
        return values, f"as --values {values} says"
    if amounts.unit_seconds is not None:
        return Quantity.RATE, "as its unit says"
    return quantity_of(name), "for the file has no header" if table.headless else "by its name"


def _columns(table: Table) -> dict[str, str]:
    """Return what each column is, kind -> name: one that nobody knows, or two for the same, would be played wrongly."""
    path, head = table.path, table.names
    kinds = {name: kind for kind, names in COLUMNS.items() for name in names}
    if table.value:
        kinds[table.value] = "records"
    found: dict[str, str] = {}
    if unknown := [name for name in head if name not in kinds]:
        raise _unknown(table, unknown, kinds)
    for name in head:
        if (kind := kinds[name]) in found:
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


def _unknown(table: Table, unknown: Sequence[str], kinds: Mapping[str, str]) -> LoadFileError:
    """Return the error for columns that nobody knows, with what may have been meant."""
    written = dict(zip(table.names, table.titles or table.names, strict=True))
    listed = []
    for name in unknown:
        near = get_close_matches(name, kinds, n=1)
        listed.append(f"{written[name]!r} (the nearest is {near[0]!r})" if near else repr(written[name]))
    return LoadFileError(
        f"{table.path} has columns with names that are not known: {', '.join(listed)}. What they tell would be passed "
        f"over; a load has {_wanted()}. Rename them, and leave out those that tell nothing of it."
    )


def _not_needed(found: Mapping[str, str]) -> list[str]:
    """Return the notes on columns that nothing is played by."""
    notes = []
    if "records" in found and "bytes" in found:
        notes.append(f"the column {found['bytes']!r} was not needed: {found['records']!r} tells what arrived")
    if "topic" in found and "partition" not in found:
        notes.append("the column 'topic' was not needed: without partitions the total of all rows is dealt out")
    return notes


def check_names(path: Path, head: Sequence[str]) -> None:
    twice = sorted({name for name in head if head.count(name) > 1})
    if twice:
        raise LoadFileError(
            f"{path} has more than one column {twice[0]!r}, so it is not known which one counts; leave all but one out."
        )


def _wanted() -> str:
    return "a column 'time' and one of 'records' or 'bytes' ('partition' and 'topic' may be there too)"


def _record_bytes(path: Path, size: float | None) -> float:
    if size is None:
        raise LoadFileError(
            f"{path} tells bytes, and a simulation is about records; say how large a record is with --record-bytes."
        )
    return size


# -- values


def _partition(table: Table, number: int, values: Sequence[Any], place: Mapping[str, int]) -> Partition | None:
    if "partition" not in place:
        return None
    value = values[place["partition"]]
    try:
        index = int(float(value))
        if index < 0 or index != float(value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise LoadFileError(
            f"{table.place(number)}: the partition {shortened(value)} is no whole number from 0 on; correct it."
        ) from None
    topic = str(values[place["topic"]] or "").strip() if "topic" in place else TOPIC
    if not topic:
        raise LoadFileError(
            f"{table.place(number)}: the topic is missing, so it is not known whose partition {index} is; name it."
        )
    return Partition(topic, index)


def _times(table: Table, column: int) -> tuple[list[float], bool, list[str]]:
    """Return the seconds of each row, whether they are since the epoch, and what is to be told of them.

    All must be written in one way. What lies between a number and a date, between numbers of unlike units, or between
    a date with a zone and one without, is not known.
    """
    times: list[float] = []
    first, expected = table.rows[0][0], ""
    for number, values in table.rows:
        form, at = _time(table.place(number), values[column])
        if form != (expected := expected or form):
            raise LoadFileError(
                f"{table.place(number)}: the time {values[column]!r} is {form}, and that of {table.unit} {first} is "
                f"{expected}, so it is not known how far apart they are; write all times in the same way."
            )
        # What is nearer than a microsecond is the same time.
        times.append(round(at, 6))
    written = table.rows[0][1][column]
    if expected == NUMBER and all(_compact(values[column], AMBIGUOUS) for _, values in table.rows):
        raise LoadFileError(
            f"{table.place(first)}: the time {written!r} may be seconds or the date {_compact(written, AMBIGUOUS)}, so "
            f"it is not known how far apart rows are; write dates with hyphens and colons, seconds like {written}.0."
        )
    dated = expected != NUMBER or min(times) > EPOCH_SECONDS_MIN
    if expected != DIGITS:
        return times, dated, []
    begin, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in (min(times), max(times)))
    return times, dated, [f"times like {written} were read as dates: from {begin} to {end} UTC"]


def _time(place: str, value: Any) -> tuple[str, float]:
    """In which way it is written, and which moment it is."""
    if (date := _compact(value, COMPACT)) is not None:
        return DIGITS, _seconds(date)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        try:
            date = datetime.fromisoformat(str(value).strip())
            return ZONED if date.tzinfo else UNZONED, _seconds(date)
        except (ValueError, OverflowError):
            number = math.nan
    worth, unit = next(((worth, unit) for above, worth, unit in EPOCH_UNITS if number > above), (1.0, ""))
    number /= worth
    if not abs(number) <= TIME_MAX:
        raise LoadFileError(
            f"{place}: the time {shortened(value)} is neither a number of seconds nor like 2024-05-01 12:30:00; "
            "correct it."
        )
    return f"a number of {unit} since the epoch" if unit else NUMBER, number


def _seconds(date: datetime) -> float:
    """Since the epoch; without a zone it is UTC."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _compact(value: Any, formats: Mapping[int, str]) -> datetime | None:
    """The date of 1900 to 2099 that digits alone may be."""
    text = str(value).strip() if isinstance(value, str | int) else ""
    if len(text) not in formats or text[:2] not in ("19", "20") or not text.isdecimal():
        return None
    try:
        return datetime.strptime(text, formats[len(text)])
    except ValueError:
        return None
