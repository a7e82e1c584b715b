"""What a paper reports beside what came out here: values, tables, and how they are printed."""

from __future__ import annotations

import math
import shlex
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
    "markdown",
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

    def cells(self) -> tuple[str, ...]:
        """As shown, in the order of the head."""
        unit = f" {self.unit}" if self.unit else ""
        paper = "-" if self.paper is None else f"{_number(self.paper, self.digits)}{unit}"
        ours = f"{_number(self.ours.mean, self.digits)}{unit}"
        low, high = _number(self.ours.low, self.digits), _number(self.ours.high, self.digits)
        if low != high:
            ours += f" ({low} to {high})"
        difference = "-"
        if self.difference is not None:
            difference = _signed(self.difference, self.digits)
            if self.within and low != high:
                difference += WITHIN
        return (self.what, self.form, paper, ours, difference)


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

    def alone(self, table: FigureTable) -> str:
        """The command that makes one of its tables."""
        quick = " --quick" if self.quick else ""
        command = f"python -m benchmarks.papers.{self.name}{quick}"
        return f"{command} --table {shlex.quote(f'={table.title}')}"


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


def markdown(sheet: PaperTables) -> list[str]:
    """Return a section of the page; pictures lie beside the page."""
    lines = [f"## {sheet.title}", "", sheet.source, ""]
    lines += [f"- {line}" for line in sheet.setting]
    lines += [f"- Made by `{sheet.command}` ({sheet.seconds:,.0f} CPU seconds).", ""]
    for table in sheet.tables:
        lines += [f"### {table.title}", ""]
        lines += [line(HEAD), line(["---"] * len(HEAD))]
        lines += [line(row.cells()) for row in table.rows]
        lines += ["", *([table.note, ""] if table.note else []), f"Alone: `{sheet.alone(table)}`.", ""]
    for plot in sheet.plots:
        lines += [f"![{plot.caption}]({plot.file})", "", f"*{plot.caption}*", ""]
    return lines


def line(cells: Sequence[str]) -> str:
    """Of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
