"""The runs behind docs/results.md: which commit each is of, and whether what it measures has changed since.

A run's row is ``| `name` | commit | date | CPU | its code since |``; the last cell says ``changed`` or ``unchanged``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.code_state import changes_since, told

from .suite import Benchmark

__all__ = ["PAGE", "PublishedRun", "compared", "runs_of"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results.md"
ROW = re.compile(
    r"^\| `(?P<name>[a-z0-9-]+)` \| (?P<commit>[0-9a-f]{7,40}(?: dirty)?) \| (?P<at>2\d[^|]*?) \| (?P<cpu>[A-Z]) \| "
    r"(?P<since>changed|unchanged) \|$",
    re.MULTILINE,
)

Changes = Callable[[str, tuple[str, ...]], int | None]


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A row of the page."""

    name: str
    commit: str
    marked: bool
    """The page says that its code has changed since."""


def runs_of(text: str) -> list[PublishedRun]:
    """Return the runs that a page names, in its order."""
    return [PublishedRun(row["name"], row["commit"], row["since"] == "changed") for row in ROW.finditer(text)]


def compared(
    runs: list[PublishedRun], benchmarks: Mapping[str, Benchmark], changes: Changes = changes_since
) -> tuple[list[str], list[str]]:
    """Compare each run's commit with the code of today.

    Returns:
        A line for each run; and the names of those that have changed though the page does not say so.
    """
    lines, unmarked = [], []
    for run in runs:
        known = benchmarks.get(run.name)
        since = changes(run.commit, known.code) if known is not None else None
        lines.append(f"{run.name:<20} {run.commit:<16} {told(since)}")
        if since and not run.marked:
            unmarked.append(run.name)
    return lines, unmarked
