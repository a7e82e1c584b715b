"""What a benchmark found, where it is kept, and the table made of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["BenchmarkResult", "Figure", "load_results", "merge", "percentile", "render_table", "render_text"]

OUT = Path(__file__).resolve().parents[2] / "out"
JSON_FILE = "benchmarks.json"
TABLE_FILE = "benchmarks.md"


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number, beside what it should be and what somebody else gets."""

    name: str
    value: float
    unit: str = ""
    """``s`` and ``ms`` are both kept in seconds and written as milliseconds for ``ms``."""
    at_most: float | None = None
    """Target: no larger than this."""
    at_least: float | None = None
    """Target: no smaller than this."""
    peer: str = ""
    """What the peer gets, in words."""

    @property
    def met(self) -> bool | None:
        """None: there is no target."""
        if self.at_most is None and self.at_least is None:
            return None
        above = self.at_most is not None and not self.value <= self.at_most
        below = self.at_least is not None and not self.value >= self.at_least
        return not (above or below)


class BenchmarkResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One benchmark's outcome."""

    name: str
    title: str
    command: str
    at: str
    """Date and time (UTC) of its end."""
    seconds: float
    machine: str
    load_average: float
    """Of the last minute, before it began: above about 1, the machine was doing other things too."""
    quick: bool
    figures: tuple[Figure, ...]
    commit: str = ""
    """As :func:`benchmarks.code_state.commit_now` told it before the run; empty: not known."""
    code: tuple[str, ...] = ()
    """Files and folders that this measures: the figures are of older code once one has changed since ``commit``."""
    setting: str = ""
    """What was run, in a sentence."""
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = {}


class _File(msgspec.Struct, kw_only=True):
    results: dict[str, BenchmarkResult] = {}


def percentile(values: Iterable[float], share: float) -> float:
    """Nearest rank; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def load_results(directory: Path = OUT) -> dict[str, BenchmarkResult]:
    """What is kept, by name; empty where nothing is."""
    path = directory / JSON_FILE
    return msgspec.json.decode(path.read_bytes(), type=_File).results if path.exists() else {}


def merge(result: BenchmarkResult, directory: Path = OUT) -> None:
    """Put one result beside those of the others, and make the table anew."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = load_results(directory)
    kept[result.name] = result
    ordered = {name: kept[name] for name in [*(n for n in ORDER if n in kept), *sorted(set(kept) - set(ORDER))]}
    text = msgspec.json.format(msgspec.json.encode(_File(results=ordered)), indent=1)
    (directory / JSON_FILE).write_bytes(text + b"\n")
    (directory / TABLE_FILE).write_text(render_table(ordered.values()))


ORDER: list[str] = []
"""Names in the order of the table; the command line fills it in."""


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    if unit == "ms":
        return f"{value * 1e3:.1f} ms"
    if unit == "s":
        return f"{value:.2f} s"
    if unit == "%":
        return f"{value:.3g} %" if abs(value) < 1 else f"{value:.2f} %"
    if unit == "x":
        return f"{value:.3f} x"
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return f"{text} {unit}".strip()


def _target(figure: Figure) -> str:
    if figure.at_most is not None and figure.at_least is not None:
        return f"{_number(figure.at_least, figure.unit)} to {_number(figure.at_most, figure.unit)}"
    if figure.at_most is not None:
        if figure.at_most == 0:
            return "0"
        return f"<= {_number(figure.at_most, figure.unit)}"
    if figure.at_least is not None:
        return f">= {_number(figure.at_least, figure.unit)}"
    return ""


def _verdict(figure: Figure) -> str:
    if figure.met is None:
        return ""
    if figure.met:
        return "met"
    bound = figure.at_most if figure.at_most is not None and not figure.value <= figure.at_most else figure.at_least
    if math.isnan(figure.value) or bound is None:
        return "missed: not measured"
    if figure.unit == "%":  # a share of a share says little: 99.4 where 99.9 is asked for is six times as much late
        return f"missed by {abs(figure.value - bound):.2g} points"
    missed = f"{abs(figure.value - bound) / abs(bound):.0%}" if bound else _number(figure.value, figure.unit)
    return f"missed by {missed}"


def render_text(result: BenchmarkResult) -> str:
    """One result for the terminal."""
    lines = [f"{result.name}: {result.title} ({result.seconds:.0f} s{', quick' if result.quick else ''})"]
    for figure in result.figures:
        parts = [f"  {figure.name:<58} {_number(figure.value, figure.unit):>14}"]
        if target := _target(figure):
            parts.append(f"target {target}: {_verdict(figure)}")
        if figure.peer:
            parts.append(f"beside {figure.peer}")
        lines.append("   ".join(parts))
    return "\n".join([*lines, *(f"  {note}" for note in result.notes)])


def render_table(results: Iterable[BenchmarkResult]) -> str:
    """All results as Markdown."""
    chosen = list(results)
    lines = [
        "# Benchmarks",
        "",
        "Generated by `make bench` and `make bench-spark`: do not edit. The same figures, with more detail, are in",
        "`benchmarks.json`. Figures of the consumer are measured on a real Kafka broker, with peers in the same run;",
        "those of packers, planner, simulator and Spark as each section says. Absolute times depend on the machine,",
        "which stands under each with the commit; what it did besides is told by the load average before each run.",
        "What `objective` is to reach beside every other policy, in the simulator:",
        "[comparison](comparison/comparison.md).",
        "",
    ]
    for result in chosen:
        lines += _section(result)
    return "\n".join(lines).rstrip() + "\n"


def _section(result: BenchmarkResult) -> Sequence[str]:
    lines = [f"## {result.title}", ""]
    if result.setting:
        lines += [result.setting, ""]
    lines += ["| figure | target | measured | beside | |", "|---|---|---|---|---|"]
    lines += [
        f"| {f.name} | {_target(f)} | {_number(f.value, f.unit)} | {f.peer} | {_verdict(f)} |" for f in result.figures
    ]
    lines.append("")
    lines += [f"- {note}" for note in result.notes]
    if result.notes:
        lines.append("")
    where = result.machine + (". A quick run: the figures are rough." if result.quick else ".")
    before = f"load average before it {result.load_average:.1f}"
    lines += [
        f"`{result.command}`, {result.at}, {result.seconds:.0f} s, {before}; {_of(result)}; {where}",
        "",
    ]
    return lines


def _of(result: BenchmarkResult) -> str:
    return f"commit {result.commit}" if result.commit else "commit not known"


def stamp() -> str:
    """Now, as results tell it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
