"""The amounts in a table's cells: how the numbers are written, and what they count.

Whether a column holds rates, counts or a counter is told by its name, by the units of its cells, or not at all. What it
tells is decided here; what follows from the distance of the rows is :mod:`.paces`' part.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .load import LoadFileError, counted

__all__ = [
    "COUNTS",
    "RATES",
    "UNCLEAR",
    "Amounts",
    "Quantity",
    "amount_of",
    "amounts_of",
    "looks_like_series",
    "quantity_of",
    "shortened",
]

RATES = frozenset({"records_per_second", "rate", "bytes_per_second"})
"""Columns that hold so many per second, not so many in the time of the row."""
COUNTS = frozenset({"records", "count", "messages", "events", "requests", "bytes", "size"})
"""Columns that hold so many in the time of the row."""
UNCLEAR = frozenset({"value"})
"""Columns that hold either."""
MISSING = ("", "nan", "null", "undefined")
"""Cells that monitors write where they knew nothing, lower case."""
SHOWN_MAX = 100
"""Characters of a cell in a message. Chosen."""
_RATE_CALL = re.compile(r"\b(rate|irate|deriv)\s*\(")
_COUNTER_NAME = re.compile(r"(_total|_count|_offset)$")
_UNIT_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
}
"""Letters behind the stroke of a unit like c/s -> their seconds."""
_UNITS = {"rps": 1.0, "reqps": 1.0, "mps": 1.0, "msgps": 1.0}
"""Units of a rate that are written without a stroke -> the seconds of what they are per."""
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "Mil": 1e6, "G": 1e9, "Bil": 1e9}
_CELL = re.compile(
    r"(?P<number>[+-]?[\d.,'\u2019 \u00a0\u202f]*\d(?:[eE][+-]?\d+)?)\s*"
    r"(?:(?P<factor>Mil|Bil|[kKMG])(?![A-Za-z]))?\s*(?P<unit>[A-Za-z]*(?:/[A-Za-z]+)?)"
)
"""A number, perhaps with separators, a factor and a unit: ``1.2 K``, ``112 c/s``, ``3.4 Mil req/s``."""
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+,(\d{1,2}|\d{4,})|0+,\d+|\d{4,},\d+|[\d.]+\.\d{3},\d+)")
_THOUSANDS_COMMA = re.compile(r"[+-]?\d{1,3}(,\d{3}){2,}(\.\d*)?|[+-]?\d{1,3}(,\d{3})+\.\d*")
_PARTED = re.compile(r"[+-]?\d{1,3}(['\u2019 \u00a0\u202f]\d{3})+([.,]\d*)?([eE][+-]?\d+)?")
"""Thousands that are parted by something else than a comma."""
_SPACES = str.maketrans("", "", "'\u2019 \u00a0\u202f")


class Quantity(enum.StrEnum):
    """The kinds of things that the numbers of a column count."""

    RATE = "rate"
    """Records per second."""
    COUNT = "count"
    """Records in the time of the row."""
    COUNTER = "counter"
    """Records since some beginning: what arrives is the difference to the next row."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The numbers of a column, a row each."""

    numbers: list[float | None]
    """None: there is none in the row, as a monitor writes it that knew nothing then."""
    unit_seconds: float | None
    """Seconds that the cells' unit is per; None: they have no unit."""
    notes: tuple[str, ...]


def quantity_of(name: str) -> Quantity | None:
    """Return what a column of this name holds (lower case); None: the name does not tell."""
    if name in RATES or _RATE_CALL.search(name):
        return Quantity.RATE
    if name in COUNTS:
        return Quantity.COUNT
    bare = name.partition("{")[0].strip()
    return Quantity.COUNTER if _COUNTER_NAME.search(bare) else None


def looks_like_series(name: str) -> bool:
    """Return whether a name is an expression or a series of a monitor, like ``rate(x[5m])`` or ``{pod="a"}``."""
    return "{" in name or "(" in name or bool(_COUNTER_NAME.search(name))


def amount_of(place: str, name: str, value: Any) -> float:
    """Return so many records, bytes, records/s or percent.

    Raises:
        LoadFileError: it is missing, negative or no finite number; with the place.
    """
    try:
        number = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0.0 <= number < math.inf:
        raise _no_amount(place, name, value)
    return number


def _no_amount(place: str, name: str, value: Any) -> LoadFileError:
    return LoadFileError(
        f"{place}: {name} is {shortened(value)}, which is missing, negative or no finite number, so it is not known "
        "what arrived; correct it or leave it out."
    )


def shortened(value: Any) -> str:
    """Return a cell as messages show it: with its beginning alone where it is long."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}... ({len(shown)} characters)"


def amounts_of(name: str, cells: Sequence[tuple[str, Any]], sparse: bool = False) -> Amounts:
    """Return the numbers of a column.

    Args:
        name: of the column, for messages.
        cells: (place for messages, value) of each row.
        sparse: is a row without a number left out, as monitors write them? Else it is refused.

    Raises:
        LoadFileError: a value is negative or no finite number, or it may be two numbers; with the place.
    """
    written = [value.strip() if isinstance(value, str) else "" for _, value in cells]
    comma = _comma(cells, [text for text in written if "," in text])
    numbers: list[float | None] = []
    units: dict[str, str] = {}
    rounded = ""
    for (place, value), text in zip(cells, written, strict=True):
        if sparse and (value is None or (isinstance(value, str) and text.lower() in MISSING)):
            numbers.append(None)
            continue
        cell = _CELL.fullmatch(text) if text and not _plain(text) else None
        if cell is None:
            numbers.append(amount_of(place, name, value))
            continue
        numbers.append(_number(place, name, value, cell["number"], comma) * _FACTORS[cell["factor"] or ""])
        rounded = rounded or (text if cell["factor"] else "")
        if cell["unit"]:
            units.setdefault(cell["unit"], place)
    notes = []
    if left := sum(number is None for number in numbers):
        notes.append(counted(left, "row has no value and was left out", "rows have no value and were left out"))
    if rounded:
        notes.append(f"numbers like {rounded!r} are rounded, and were read as they stand")
    return Amounts(numbers, _per_seconds(name, units), tuple(notes))


def _plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(place: str, name: str, value: Any, digits: str, comma: str) -> float:
    bare = digits.translate(_SPACES)
    if bare != digits and not _PARTED.fullmatch(digits):
        raise _no_amount(place, name, value)
    digits = bare
    if comma == ".":
        digits = digits.replace(".", "").replace(",", ".")
    else:
        digits = digits.replace(",", "")
    if not _plain(digits):
        raise _no_amount(place, name, value)
    return amount_of(place, name, digits)


def _comma(cells: Sequence[tuple[str, Any]], written: Sequence[str]) -> str:
    """Return what a comma in a number stands for: ``.`` or nothing (thousands).

    ``6,067`` may be either. All cells of a column are written in one way, so one that can only be read in one way
    tells it for all.
    """
    if not written:
        return ""
    bare = [match["number"].translate(_SPACES) if (match := _CELL.fullmatch(text)) else text for text in written]
    decimal = next((text for text in bare if _DECIMAL_COMMA.fullmatch(text)), None)
    thousands = next((text for text in bare if _THOUSANDS_COMMA.fullmatch(text)), None)
    if (decimal is None) != (thousands is None):
        return "." if thousands is None else ""
    place = next(place for place, value in cells if isinstance(value, str) and "," in value)
    if decimal is not None:
        raise LoadFileError(
            f"{place}: in numbers like {decimal!r} the comma begins the fraction, and in {thousands!r} it parts "
            "thousands, so it is not known which numbers are meant; write numbers without commas."
        )
    plain = bare[0].replace(",", "")
    raise LoadFileError(
        f"{place}: {written[0]!r} may be {plain} or {bare[0].replace(',', '.')}, so it is not known what arrived; "
        f"write {plain} without a comma, or {bare[0].replace(',', '.')} with a point."
    )


def _per_seconds(name: str, units: dict[str, str]) -> float | None:
    """Return the seconds that all of the units are per; None: there is no unit."""
    found = set()
    for unit, place in units.items():
        _, stroke, per = unit.partition("/")
        seconds = _UNIT_SECONDS.get(per) if stroke else _UNITS.get(unit)
        if seconds is None or unit.partition("/")[0].endswith("B"):
            raise LoadFileError(
                f"{place}: {name} has the unit {unit!r}, which is not known to count records; write plain numbers, or "
                "a unit like c/s or req/s."
            )
        found.add(seconds)
    if len(found) > 1:
        raise LoadFileError(
            f"{name} has the units {', '.join(map(repr, units))}, which are per unlike times, so it is not known what "
            "arrived; write all values in one unit."
        )
    return found.pop() if found else None
