"""Simulated policies side by side: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .loads import Load
from .outcome import PERCENTILES, Outcome, Summary

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["HEAD", "curves_of", "rich_table", "rows_of", "table_lines"]

HEAD = (
    "policy",
    "packer",
    "in time",
    "replica-min",
    "mean",
    "most",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "longest",
    "up/down",
    "moves",
)


def rows_of(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """One row of text per policy, under :data:`HEAD`."""
    rows = []
    for each in summaries:
        spread = ""
        if len(each.seeds) > 1:
            spread = f" ({each.share_in_time_min * 100:.2f}..{each.share_in_time_max * 100:.2f})"
        moves = f"{each.moves:.0f}"
        if each.slicing:
            moves += f" ({each.slices:.0f} own)"
        if each.rebalances:
            moves += f" in {each.rebalances:.0f} rebalances"
        rows.append(
            (
                each.policy,
                each.packer,
                f"{each.share_in_time * 100:.2f} %{spread}",
                f"{each.replica_minutes:.2f}",
                f"{each.replicas_mean:.2f}",
                str(each.replicas_max),
                *(_latency(each, name) for name in (*PERCENTILES, "latency_max")),
                f"{each.ups:.0f}/{each.downs:.0f}",
                moves,
            )
        )
    return rows


def _latency(summary: Summary, name: str) -> str:
    bound = "> " if name in summary.lower_bounds else ""
    return bound + seconds_words(getattr(summary, name))


def seconds_words(seconds: float) -> str:
    """``12 ms``, ``1.25 s``, ``340 s``."""
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100.0 else f"{seconds:.0f} s"


def table_lines(summaries: Sequence[Summary]) -> list[str]:
    """The table in plain text: for pipes, and where rich is not installed."""
    rows = [HEAD, *rows_of(summaries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def rich_table(summaries: Sequence[Summary]) -> Table:
    """The same for a terminal (extra ``cli``); the best of a column in bold."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column, name in enumerate(HEAD):
        table.add_column(name, justify="left" if column < 2 else "right", overflow="fold")
    best = max(each.share_in_time for each in summaries), min(each.replica_minutes for each in summaries)
    for each, row in zip(summaries, rows_of(summaries), strict=True):
        cells = list(row)
        if len(summaries) > 1:
            cells[2] = f"[bold]{cells[2]}[/]" if each.share_in_time == best[0] else cells[2]
            cells[3] = f"[bold]{cells[3]}[/]" if each.replica_minutes == best[1] else cells[3]
        table.add_row(*cells)
    return table


def curves_of(load: Load, outcome: Outcome) -> dict[str, Any]:
    """A run's curves for JSON output: a list per curve, an entry per second."""
    curves = outcome.curves
    return {
        "load": [round(rate, 3) for rate in load.per_second],
        "arrived": curves.arrived,
        "work": [round(work, 6) for work in curves.work],
        "capacity": [round(capacity, 6) for capacity in curves.capacity],
        "replicas": curves.replicas,
        "wanted": curves.wanted,
        "late": curves.late,
        "latency_max": [round(seconds, 6) for seconds in curves.latency_max],
        "moves": curves.moves,
        "waiting": curves.waiting,
    }
