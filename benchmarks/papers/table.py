"""What a paper reports beside what came out here: values, tables, and how they are printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

__all__ = [
    "AS_PUBLISHED",
    "AS_RUN",
    "FigureRow",
    "FigureTable",
    "PaperTables",
    "Plot",
    "Spread",
    "line",
    "text",
]

AS_PUBLISHED, AS_RUN = "as published", "as run"
WITHIN = ", within"
HEAD = ("what", "form", "paper", "ours", "difference")


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was measured several times: over seeds, or over phases inside the second."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Mean, least and most of at least one value."""
        listed = list(values)
        return cls(mean=fmean(listed), low=min(listed), high=max(listed))

    @classmethod
    def one(cls, value: float) -> Spread:
        """A figure that there is one of."""
        return cls.of([value])

    def holds(self, value: float) -> bool:
        """Does it lie between the least and the most?"""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Spread:
        """In another unit; ``factor`` above 0."""
        return Spread(mean=self.mean * factor, low=self.low * factor, high=self.high * factor)


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a paper."""

    what: str
    form: str
    """:data:`AS_PUBLISHED`: by the paper's text. :data:`AS_RUN`: as its authors' code and data have it."""
    unit: str = ""
    digits: int = 1
    paper: float | None = None
    """None: the paper does not say."""
    ours: Spread
    comparable: bool = True
    """False: ours is of a run so much shorter than the paper's that a difference would say nothing."""

    @property
    def difference(self) -> float | None:
        """Ours (mean) less the paper's."""
        return self.ours.mean - self.paper if self.comparable and self.paper is not None else None

    @property
    def within(self) -> bool:
        """Does the paper's figure lie within what was seen here?"""
        return self.paper is not None and self.ours.holds(self.paper)

    @property
    def paper_told(self) -> str:
        """The paper's figure with its unit."""
        return "-" if self.paper is None else f"{_number(self.paper, self.digits)}{self._unit}"

    @property
    def ours_told(self) -> str:
        """Our figure with its unit, and behind it the least and the most where they differ as they are shown."""
        ours = f"{_number(self.ours.mean, self.digits)}{self._unit}"
        return f"{ours} ({self._low} to {self._high})" if self._varies else ours

    @property
    def _unit(self) -> str:
        return f" {self.unit}" if self.unit else ""

    @property
    def _low(self) -> str:
        return _number(self.ours.low, self.digits)

    @property
    def _high(self) -> str:
        return _number(self.ours.high, self.digits)

    @property
    def _varies(self) -> bool:
        return self._low != self._high

    def cells(self) -> tuple[str, ...]:
        """As shown, in the order of the head."""
        difference = "-"
        if self.difference is not None:
            within = WITHIN if self.within and self._varies else ""
            difference = f"{_signed(self.difference, self.digits)}{within}"
        return (self.what, self.form, self.paper_told, self.ours_told, difference)


def _number(value: float, digits: int) -> str:
    if math.isinf(value):
        return "never ends"
    shown = f"{value:,.{digits}f}"
    return shown.removeprefix("-") if float(shown.replace(",", "")) == 0.0 else shown


def _signed(value: float, digits: int) -> str:
    shown = f"{value:+,.{digits}f}"
    return _number(0.0, digits) if float(shown.replace(",", "")) == 0.0 else shown


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that belong together."""

    title: str
    rows: tuple[FigureRow, ...]
    note: str = ""

    def apart(self) -> FigureTable:
        """The same figures, of a run that is not comparable with the paper's: without differences."""
        rows = (msgspec.structs.replace(row, comparable=False) for row in self.rows)
        return msgspec.structs.replace(self, rows=tuple(rows))


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that a run drew."""

    file: str
    caption: str


class PaperTables(msgspec.Struct, frozen=True, kw_only=True):
    """One paper."""

    name: str
    title: str
    source: str
    setting: tuple[str, ...]
    """What was played and how; stand-ins for data that is not there are said here, and what a quick run leaves out."""
    tables: tuple[FigureTable, ...]
    plots: tuple[Plot, ...] = ()
    command: str = ""
    """Makes all of it again."""
    seconds: float = 0.0
    """CPU seconds it took."""
    quick: bool = False
    code: str = ""
    """Digest of the code that made it; empty: made before it was kept."""


def text(sheet: PaperTables) -> str:
    """For a terminal."""
    lines = [sheet.title, *sheet.setting]
    for table in sheet.tables:
        rows = [HEAD, *(row.cells() for row in table.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
        lines += ["", table.title]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if table.note:
            lines.append(table.note)
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """Of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
