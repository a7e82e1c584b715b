"""The picture: the load, the replicas and the late records of both groups, around the rise."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.baselines.outcome import GroupsOutcome, Side
from benchmarks.baselines.schedule import clock
from demo.plot import FAINT, GREY, INK, RED, STYLE, steps
from demo.report import Report

__all__ = ["picture"]

_COLOURS = ("#2a6f97", "#e07b39")
"""Of the group that learnt, and of the one that did not."""


def picture(outcome: GroupsOutcome, reports: tuple[Report, Report], path: Path) -> None:
    """Draw both runs into one PNG; seconds count from the rise."""
    sides = (outcome.learnt, outcome.plain)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 8.4), dpi=130)
        load, replicas, late = figure.subplots(
            3, 1, sharex=True, gridspec_kw={"height_ratios": [1.3, 2.0, 1.7], "hspace": 0.14}
        )
        figure.subplots_adjust(left=0.085, right=0.82, top=0.87, bottom=0.07)
        _headline(figure, outcome)
        seconds = range(-outcome.low_seconds, len(reports[0].seconds) - outcome.low_seconds + 1)
        load.stairs([row.records for row in reports[0].seconds], seconds, fill=True, color=FAINT)
        load.set_ylabel("records/s, to each")
        end = max(report.setting.ended_at for report in reports) - outcome.rise_at
        for report, side, colour in zip(reports, sides, _COLOURS, strict=True):
            _replicas(replicas, report, side, colour, outcome.rise_at)
            counts = [row.late for row in report.seconds]
            late.stairs(counts, seconds, color=colour, linewidth=1.6, label=f"{side.name}: {side.late:,}")
            late.stairs(counts, seconds, fill=True, color=colour, alpha=0.18)
        replicas.set_ylabel("replicas")
        replicas.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        late.set_ylabel("late records, by second sent")
        for ax in (load, replicas, late):
            _dress(ax, -outcome.low_seconds, end)
        load.annotate(f"T, {clock(outcome.rise_at)} UTC", (0, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 4),
                      textcoords="offset points", color=RED, fontsize=9, ha="center")  # fmt: skip
        for ax in (replicas, late):
            ax.legend(loc="upper left", bbox_to_anchor=(1.005, 1.02), frameon=False, fontsize=8.5, handlelength=1.8)
        late.set_xlabel("seconds from the rise")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _dress(ax: Axes, begin: float, end: float) -> None:
    ax.set_xlim(begin, end)
    ax.set_ylim(0, None)
    ax.axvline(0, color=RED, linewidth=1.1)
    ax.grid(True, axis="both", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", length=0)
    ax.yaxis.set_label_coords(-0.065, 0.5)


def _replicas(ax: Axes, report: Report, side: Side, colour: str, rise_at: float) -> None:
    setting = report.setting
    shift = setting.started_at - rise_at
    end = setting.ended_at - setting.started_at
    times, counts = steps(
        [(r.started_at, r.ended_at) for r in setting.replicas if r.started_at is not None], setting, end
    )
    ax.step(
        [at + shift for at in times], counts, where="post", color=colour, linewidth=1.8, label=f"{side.name}: running"
    )
    wanted = [(at - rise_at, count) for at, count in report.wanted if at <= setting.ended_at]
    if wanted:
        ax.step([at for at, _ in wanted], [count for _, count in wanted], where="post", color=colour, linewidth=1.2,
                linestyle=(0, (3, 2)), label=f"{side.name}: wanted")  # fmt: skip


def _headline(figure: Figure, outcome: GroupsOutcome) -> None:
    learnt, plain = outcome.learnt, outcome.plain
    asked = learnt.asked_before_seconds
    lead = f"Asked {asked:.0f} s before the rise" if asked is not None and asked > 0 else "Not asked before the rise"
    figure.text(
        0.02, 0.962, f"{lead}: {learnt.late:,} late records instead of {plain.late:,}", fontsize=15, fontweight="bold",
        va="center",
    )  # fmt: skip
    a, b = learnt.summary, plain.summary
    figure.text(
        0.02, 0.928,
        f"{a.share_in_time:.2%} in time at {a.replica_minutes:.1f} replica-minutes with baselines, "
        f"{b.share_in_time:.2%} at {b.replica_minutes:.1f} without; a replica takes {outcome.startup_seconds:g} s to "
        f"start, W = {a.objective_seconds:g} s",
        fontsize=9.5, va="center", color=INK if not outcome.faults else RED,
    )  # fmt: skip
    figure.text(
        0.02, 0.9, f"learnt from {outcome.weeks} weeks of telemetry, {outcome.reports:,} reports", fontsize=8.5,
        color=GREY, va="center",
    )  # fmt: skip
