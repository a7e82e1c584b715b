"""Real runs on the page: what is kept of them for it, their table and their picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.papers.closer24 import DRIFTING, RUN
from benchmarks.papers.table import line

__all__ = ["RealRun", "load_runs", "merge_runs", "paint", "section", "table"]

FILE, PICTURE = "real.json", "real.png"
RUN_SECONDS = 600.0
LABEL_GAP = 0.035
"""Between two labels, of the shares that a panel shows."""
HEAD = (
    "consumers", "% in time", "paper", "replica-minutes", "paper", "p99, s", "rebalances", "lost", "repeated",
    "reports, s after a burst", "stolen, %",
)  # fmt: skip
INTRODUCTION = """## On a real Kafka

Ten minutes each, on {machine}{together}; those that one command plays come one after the other, on one broker: every
consumer a process that waits for as long as a record costs, a producer with one burst a second, replicas that take as
long to come as their processes do to start. The paper's policy and `objective` scale a group of loadtrim's consumers;
then the reference assignors get as many replicas, at the same moments, as the run asked for that is named behind
"scaled as". Late is what was not *done* within W. Repeated: records that were handed out twice, because their owner
changed before they were committed. *Alg. 2*: `{drifting}`; *lag at one phase*: `{sampled}`, the "as run" of the tables
above. Reports: median time from a burst to the members' reports. Stolen: of the machine's CPU time, what its host gave
to others meanwhile.

Made by `make papers REAL=1` (which can be cut off and resumed), {first} to {last}.
"""
CAPTION = (
    "Share of the records in time over replica-minutes. Red: objective; blue: the paper's policies; grey: reference "
    "assignors with the same scaling; crosses: what the papers report"
)


class RealRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as the page needs it."""

    load: str
    consumers: str
    """Who it was, within its load."""
    scaled_as: str = ""
    paper_share: float | None = None
    """Percent, as the paper has it; None: it does not say."""
    paper_minutes: float | None = None
    share: float
    """Percent."""
    replica_minutes: float
    p99: float
    """Seconds."""
    rebalances: int | None
    """Generations of the group, its first included; None: its consumers do not tell."""
    lost: int
    repeated: int
    reported_after_seconds: float | None = None
    """From a burst to the members' reports; None: nobody reported."""
    stolen: float
    """Percent of the machine's CPU time that its host gave to others."""
    at: float
    """When it began, seconds since the epoch."""
    machine: str


def load_runs(folder: Path) -> list[RealRun]:
    """What the page tells of so far."""
    path = folder / FILE
    return msgspec.json.decode(path.read_bytes(), type=list[RealRun]) if path.exists() else []


def merge_runs(folder: Path, found: Iterable[RealRun], order: Sequence[tuple[str, str]]) -> list[RealRun]:
    """Put runs in the place of their like; nothing is written where there are none at all.

    Args:
        folder: what is known already is there.
        found: the newest.
        order: (load, consumers) of all there can be, as the page is to tell of them.
    """
    known = {(run.load, run.consumers): run for run in (*load_runs(folder), *found)}
    runs = [known[key] for key in order if key in known]
    if runs:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1) + b"\n")
    return runs


def section(runs: Sequence[RealRun]) -> list[str]:
    """Of the page, in Markdown; no runs: nothing."""
    if not runs:
        return []
    days = sorted(datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d") for run in runs)
    machine = ", or ".join(dict.fromkeys(run.machine for run in runs))
    most = _together(runs)
    lines = INTRODUCTION.format(
        machine=machine,
        together=f", up to {most} of them at once" if most > 1 else "",
        drifting=DRIFTING,
        sampled=RUN.policy,
        first=days[0],
        last=days[-1],
    ).splitlines()
    for load in dict.fromkeys(run.load for run in runs):
        lines += ["", f"### {load}, real", "", *table([run for run in runs if run.load == load])]
    return [*lines, "", f"![{CAPTION}]({PICTURE})", "", f"*{CAPTION}*", ""]


def _together(runs: Sequence[RealRun]) -> int:
    """How many went on at once, at most."""
    begins = [run.at for run in runs]
    return max(sum(0.0 <= at - begin < RUN_SECONDS for begin in begins) for at in begins)


def table(runs: Sequence[RealRun]) -> list[str]:
    """A line for each run."""
    return [line(HEAD), line(["---"] * len(HEAD)), *(line(_cells(run)) for run in runs)]


def _cells(run: RealRun) -> tuple[str, ...]:
    share, minutes = ("-" if value is None else f"{value:g}" for value in (run.paper_share, run.paper_minutes))
    after = "-" if run.reported_after_seconds is None else f"{run.reported_after_seconds:.2f}"
    who = f"{run.consumers}, scaled as {run.scaled_as}" if run.scaled_as else run.consumers
    return (
        who, f"{run.share:.2f}", share, f"{run.replica_minutes:.2f}", minutes, f"{run.p99:.2f}",
        "-" if run.rebalances is None else f"{run.rebalances}",
        f"{run.lost}", f"{run.repeated}", after, f"{run.stolen:.1f}",
    )  # fmt: skip


def paint(figure: Any, runs: Sequence[RealRun]) -> None:
    """A panel for each load."""
    loads = list(dict.fromkeys(run.load for run in runs))
    for panel, load in zip(figure.subplots(1, len(loads), squeeze=False)[0], loads, strict=True):
        shown = sorted((run for run in runs if run.load == load), key=lambda run: -run.share)
        gap = LABEL_GAP * (shown[0].share - shown[-1].share)
        below = math.inf
        for run in shown:
            color = "tab:red" if run.consumers == "objective" else "0.45" if run.scaled_as else "tab:blue"
            panel.plot(run.replica_minutes, run.share, "o", color=color, markersize=4)
            below = min(run.share, below - gap)
            panel.annotate(
                f"{run.consumers}   ", (run.replica_minutes, run.share), (run.replica_minutes, below), color=color,
                fontsize=6, ha="right", va="center", arrowprops={"arrowstyle": "-", "color": "0.85", "linewidth": 0.5},
            )  # fmt: skip
            if run.paper_share is not None and run.paper_minutes is not None:
                panel.plot(run.paper_minutes, run.paper_share, "x", color=color, markersize=6)
        panel.set_title(load, fontsize=8)
        panel.set_xlabel("replica-minutes")
        panel.margins(x=0.6)
    figure.axes[0].set_ylabel("in time, %")
