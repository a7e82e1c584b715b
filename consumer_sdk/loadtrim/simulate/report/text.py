"""Simulated policies side by side: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..loads.load import Load
from ..model.outcome import PERCENTILES, Outcome, Summary

__all__ = [
    "HEAD",
    "curves_of",
    "decision_lines",
    "decisions_of",
    "legend_lines",
    "rows_of",
    "seconds_words",
    "table_lines",
]

HEAD = (
    "policy",
    "packer",
    "in time",
    "replica-min",
    "mean",
    "most",
    "up/down",
    "moves",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "longest",
)
NAMES, *GROUPS = [0, 1], [2, 3, 4, 5], [6, 7], [8, 9, 10, 11, 12]
"""Columns: of words, and of figures that belong together."""
GAP = "  "
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NOTHING = "-"
"""The cell of a figure that no record made."""
LEGEND = (
    ("in time", "share of all records that were done within W of their arrival"),
    ("replica-min", "paid for, from the request until a replica goes or the load ends"),
    ("mean, most", "replicas paid for at once"),
    ("up/down", "replicas asked for and given back, also those that never came"),
    ("moves", "partitions that changed hands"),
    ("p50..longest", "from a record's arrival until it is done"),
)


def rows_of(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """One row of text per policy, under :data:`HEAD`."""
    rows = []
    for each in summaries:
        spread = ""
        if each.share_in_time_min < each.share_in_time_max:
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
                f"{each.share_in_time * 100:.2f} %{spread}" if each.records else NOTHING,
                f"{each.replica_minutes:.2f}",
                f"{each.replicas_mean:.2f}",
                str(each.replicas_max),
                f"{each.ups:.0f}/{each.downs:.0f}",
                moves,
                *(_latency(each, name) for name in (*PERCENTILES, "latency_max")),
            )
        )
    return rows


def _latency(summary: Summary, name: str) -> str:
    if not summary.records:
        return NOTHING
    bound = "> " if name in summary.lower_bounds else ""
    return bound + seconds_words(getattr(summary, name))


def seconds_words(seconds: float) -> str:
    """``12 ms``, ``1.25 s``, ``340 s``."""
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100.0 else f"{seconds:.0f} s"


def table_lines(summaries: Sequence[Summary], width: int | None = None, bold: bool = False) -> list[str]:
    """The table.

    Args:
        summaries: a row each.
        width: of the terminal: what does not fit beside the policies' names stands below, under the names again. None:
            one line per policy, however long.
        bold: show the best in bold, by a terminal's control characters.
    """
    rows = [HEAD, *rows_of(summaries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    best = _best(summaries) if bold and len(summaries) > 1 else set()

    def cell(number: int, column: int) -> str:
        text, size = rows[number][column], widths[column]
        text = text.ljust(size) if column in NAMES else text.rjust(size)
        return f"{BOLD}{text}{PLAIN}" if (number, column) in best else text

    lines: list[str] = []
    for columns in _blocks(widths, width):
        lines += [""] if lines else []
        lines += [GAP.join(cell(number, column) for column in columns).rstrip() for number in range(len(rows))]
    return lines


def _best(summaries: Sequence[Summary]) -> set[tuple[int, int]]:
    """(line of the table, column) of the largest share in time and the fewest replica-minutes."""
    share, least = max(each.share_in_time for each in summaries), min(each.replica_minutes for each in summaries)
    in_time = {(line, HEAD.index("in time")) for line, each in enumerate(summaries, 1) if each.share_in_time == share}
    return in_time | {
        (line, HEAD.index("replica-min")) for line, each in enumerate(summaries, 1) if each.replica_minutes == least
    }


def _blocks(widths: Sequence[int], width: int | None) -> Iterator[list[int]]:
    """Columns that stand beside each other, each time after the names: whole groups, where one fits the width."""

    def fits(columns: Sequence[int]) -> bool:
        return width is None or sum(widths[column] + len(GAP) for column in columns) - len(GAP) <= width

    block = NAMES
    for group in GROUPS:
        for piece in [group] if fits(NAMES + group) else [[column] for column in group]:
            if block != NAMES and not fits(block + piece):
                yield block
                block = NAMES
            block = block + piece
    yield block


def legend_lines(summaries: Sequence[Summary]) -> list[str]:
    """Return what the columns are, and what stands in them where there are several seeds."""
    size = max(len(name) for name, _ in LEGEND)
    lines = [f"{name.ljust(size)}{GAP}{words}" for name, words in LEGEND]
    seeds = summaries[0].seeds
    if len(seeds) > 1:
        lines.append(f"Means of seeds {seeds[0]} to {seeds[-1]}, in brackets the worst and the best of them; most and")
        lines.append("longest are the largest of any seed.")
    return lines


def decisions_of(outcome: Outcome) -> list[dict[str, Any]]:
    """The decisions that changed something, for JSON output."""
    return [
        {
            "second": round(at, 3),
            "replicas_wanted": decision.replicas_wanted,
            "replicas_actual": decision.replicas_actual,
            "outcome": decision.outcome,
            "reason": decision.reason,
            "reason_code": decision.reason_code,
            "moves": decision.moves,
        }
        for at, decision in outcome.changes()
    ]


def decision_lines(outcome: Outcome) -> list[str]:
    """The decisions that changed something, one a line: second, and the reason, which begins with the replicas."""
    return [f"{at:8.1f} s  {decision.reason}" for at, decision in outcome.changes()]


def curves_of(load: Load, outcome: Outcome) -> dict[str, Any]:
    """A run's curves for JSON output: a list per curve, an entry per second; all but ``load`` go on beyond its end,
    until everything was done or the time for that was over."""
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
