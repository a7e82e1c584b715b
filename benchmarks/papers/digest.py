"""A paper in one short table: what it says, what came out here, whether that is the same, and why where it is not.

All figures come from the tables of the paper's experiment, so none is typed. Whether two figures are the same is
worked out by one rule for all papers, see :func:`sameness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, PaperTables, line

__all__ = ["ROWS_MAX", "Claim", "MissingFigureError", "digest", "markdown", "sameness"]

ROWS_MAX = 12
NEAR_POINTS, NEAR_PART = 2.0, 0.1
HEAD = ("what", "the paper", "as published", "as run", "the same?", "why, and what to know of it")
SAME, WITHIN, PARTLY, OTHER, UNKNOWN, UNSAID = "yes", "within our spread", "in part", "no", "cannot be told", "-"


class MissingFigureError(LookupError):
    """A claim names a figure that its experiment does not make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row: a claim of the paper, or a run of our own policy on its load."""

    what: str
    table: str
    """Beginning of the title of the table that has its figures."""
    figures: tuple[str, ...]
    """Names of its figures, which are shown side by side."""
    why: str = ""
    """The reason why ours differs, or what to know before the two are compared."""
    data_public: bool = True
    """False: the paper's load is not public, so with a stand-in a difference says nothing."""


def sameness(figures: Sequence[Sequence[FigureRow]]) -> str:
    """Say whether the paper's figures came out again, all of them in one of the forms that were played.

    A mean is the same that differs by no more than 2 points, of a figure in percent, or a tenth of the paper's. What
    lies between the least and the most of ours, and nothing else, is within our spread.

    Args:
        figures: of each figure of a claim its rows, one for each form.
    """
    judged = {
        form: [_sameness(row) for rows in figures for row in rows if row.form == form and row.difference is not None]
        for form in (AS_PUBLISHED, AS_RUN)
    }
    # A form that lacks a figure is not taken for the whole claim.
    most = max(map(len, judged.values()))
    found = [_together(each) for each in judged.values() if len(each) == most > 0]
    return min(found, key=(SAME, WITHIN, PARTLY, OTHER).index, default=UNSAID)


def _together(found: Sequence[str]) -> str:
    if OTHER in found:
        return OTHER if set(found) == {OTHER} else PARTLY
    return WITHIN if WITHIN in found else SAME


def _sameness(row: FigureRow) -> str:
    assert row.paper is not None
    assert row.difference is not None
    near = NEAR_POINTS if row.unit == "%" else NEAR_PART * abs(row.paper)
    if abs(row.difference) <= near:
        return SAME
    return WITHIN if row.within else OTHER


def digest(sheet: PaperTables, claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """Return the cells of a row for each claim, in the order of the head.

    Raises:
        MissingFigureError: no table of the sheet has a figure that a claim names.
    """
    return [_cells(claim, [_rows(sheet, claim, figure) for figure in claim.figures]) for claim in claims]


def _rows(sheet: PaperTables, claim: Claim, figure: str) -> list[FigureRow]:
    """The forms of a figure."""
    listed = [table for table in sheet.tables if table.title.startswith(claim.table)]
    rows = [row for table in listed for row in table.rows if row.what == figure]
    if not rows:
        raise MissingFigureError(
            f"{sheet.name}: no table {claim.table!r} with the figure {figure!r}, so there is nothing to say of "
            f"{claim.what!r}. Play {sheet.name} again, or mend its claim in benchmarks/papers/claims.py."
        )
    return rows


def _cells(claim: Claim, figures: Sequence[Sequence[FigureRow]]) -> tuple[str, ...]:
    paper = " / ".join(rows[0].paper_told for rows in figures)
    same = sameness(figures)
    return (
        claim.what,
        UNSAID if set(paper) <= set("- /") else paper,
        _form(figures, AS_PUBLISHED),
        _form(figures, AS_RUN),
        UNKNOWN if same != UNSAID and not claim.data_public else same,
        claim.why or UNSAID,
    )


def _form(figures: Sequence[Sequence[FigureRow]], form: str) -> str:
    told = [next((row.ours_told for row in rows if row.form == form), UNSAID) for rows in figures]
    return UNSAID if set(told) == {UNSAID} else " / ".join(told)


def markdown(sheet: PaperTables, claims: Iterable[Claim]) -> list[str]:
    """Return a section of the page; pictures and all figures lie beside the page."""
    lines = [f"## {sheet.title}", "", sheet.source, ""]
    lines += [line(HEAD), line(["---"] * len(HEAD)), *(line(cells) for cells in digest(sheet, claims)), ""]
    lines += [f"- {told}" for told in sheet.setting]
    lines += [f"- {table.title}: {table.note}" for table in sheet.tables if table.note]
    made = f"- Made by `{sheet.command}` ({sheet.seconds:,.0f} CPU seconds)."
    shown = f"`{sheet.name}.json`; `python -m benchmarks.papers.{sheet.name}` prints them."
    lines += [f"{made} All {len(sheet.tables)} tables are in {shown}", ""]
    for plot in sheet.plots:
        lines += [f"![{plot.caption}]({plot.file})", "", f"*{plot.caption}*", ""]
    return lines
