"""Results of cells: as JSON, and as a table for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from .cells import JUDGED, Cell
from .judge import Verdict
from .search import Search

__all__ = ["HEAD", "CellResult", "load_results", "markdown", "result_of", "row", "save_result"]

HEAD = (
    "cell", "record, W", "fewest", "late there", "one below", "asked for", "scalings", "late", "late of all",
    "replica-min", "fewest's", "lost", "repeated", "told", "true", "p99 told", "true", "off",
)  # fmt: skip


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """One cell with its search and its judged run."""

    name: str
    seed: int
    record_seconds: float
    objective_seconds: float
    form: str
    """``laboratory`` (virtual time) or ``real``."""
    commit: str = ""
    fewest: int | None
    """Replicas; None: no number that was tried holds the objective."""
    tried: dict[int, Verdict]
    verdict: Verdict
    problems: tuple[str, ...]
    """Names of what is off; empty for a program without a verdict."""


def result_of(cell: Cell, seed: int, form: str, search: Search, verdict: Verdict, commit: str = "") -> CellResult:
    """Put a cell's runs together."""
    fewest = search.fewest
    return CellResult(
        name=cell.name,
        seed=seed,
        record_seconds=cell.record_seconds,
        objective_seconds=cell.objective_seconds,
        form=form,
        commit=commit,
        fewest=fewest,
        tried=dict(sorted(search.tried.items())),
        verdict=verdict,
        problems=verdict.problems(cell, fewest) if cell.program in JUDGED else (),
    )


def save_result(path: Path, result: CellResult) -> None:
    """Put one result beside those of other cells, in place of an earlier one of its cell."""
    kept = {each.name: each for each in load_results(path)}
    kept[result.name] = result
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(kept.values())), indent=1) + b"\n")


def load_results(path: Path) -> list[CellResult]:
    """Read what is kept; empty where nothing is."""
    return msgspec.json.decode(path.read_bytes(), type=list[CellResult]) if path.exists() else []


def markdown(results: Iterable[CellResult]) -> str:
    """Return the table, a line for each cell."""
    lines = [HEAD, tuple("---" for _ in HEAD), *(row(result) for result in results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(result: CellResult) -> tuple[str, ...]:
    """Return one line's cells."""
    verdict, told = result.verdict, result.verdict.told
    at, below = _tried(result, 0), _tried(result, -1)
    return (
        result.name,
        f"{result.record_seconds:g}, {result.objective_seconds:g} s",
        "none" if result.fewest is None else str(result.fewest),
        _late(at) if at else "-",
        _late(below) if below else "-",
        _span(verdict),
        f"{verdict.scalings} of {verdict.scalings_whole}",
        _late(verdict),
        f"{verdict.whole_late} ({_percent(verdict.whole_share)})",
        f"{verdict.replica_minutes:.1f}",
        f"{at.replica_minutes:.1f}" if at else "-",
        str(verdict.lost),
        str(verdict.repeated),
        _percent(told.share),
        _percent(told.share_true),
        _seconds(told.latency_p99),
        _seconds(told.latency_p99_true),
        ", ".join(result.problems),
    )


def _tried(result: CellResult, beside: int) -> Verdict | None:
    return None if result.fewest is None else result.tried.get(result.fewest + beside)


def _span(verdict: Verdict) -> str:
    low, high = verdict.wanted_min, verdict.wanted_max
    return "-" if low is None else str(low) if low == high else f"{low} to {high}"


def _late(verdict: Verdict) -> str:
    return f"{verdict.late} of {verdict.records} ({_percent(verdict.share)})"


def _percent(share: float | None) -> str:
    """A share that is less than whole is not written as 100 %."""
    if share is None:
        return "unknown"
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"
