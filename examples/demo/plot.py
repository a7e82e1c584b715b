"""The picture of a run: load, replicas, who owned what, latency against the objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from demo.report import Replica, Report, Setting
from demo.telemetry import OwnerChange
from loadtrim_agent.common.partition import Partition

__all__ = ["FAINT", "GREY", "INK", "RED", "STYLE", "plot", "steps"]

INK, GREY, FAINT, RED = "#1f2430", "#6b7280", "#d5d9e0", "#d1242f"
_HEAVY, _LIGHT = "#2a6f97", "#a9cfe3"
_MEMBERS = (
    "#4477aa", "#ee8866", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#99582a", "#7a77c9", "#44bb99", "#bbbbbb",
)  # fmt: skip
_NAMES_MAX = 3
"""Instances of one colour that the legend names."""
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": "#eceef2",
}


def plot(report: Report, path: Path) -> None:
    """Draw the run into a PNG."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 10.5), dpi=130)
        axes: Sequence[Axes] = figure.subplots(
            4, 1, sharex=True, gridspec_kw={"height_ratios": [2.0, 1.5, 2.4, 2.6], "hspace": 0.16}
        )
        figure.subplots_adjust(left=0.085, right=0.83, top=0.885, bottom=0.06)
        _headline(figure, report)
        end = max(report.setting.ended_at - report.setting.started_at, len(report.seconds))
        _load(axes[0], report)
        _replicas(axes[1], report, end)
        _owners(axes[2], report, end)
        _latency(axes[3], report)
        for ax in axes:
            ax.set_xlim(0, end)
            ax.grid(True, axis="both", linewidth=0.8)
            ax.set_axisbelow(True)
            ax.tick_params(which="both", length=0)
            ax.yaxis.set_label_coords(-0.07, 0.5)
        axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
        axes[-1].set_xlabel("seconds since the load began")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _headline(figure: Figure, report: Report) -> None:
    s = report.summary
    promise = f"{s.share_in_time:.2%} of {s.records:,} records done within {s.objective_seconds:g} s"
    cost = f"{s.replica_minutes:.1f} replica-minutes"
    proof = f"{s.lost} lost, {s.repeated} repeated, {s.double_owners} double owners"
    figure.text(0.02, 0.965, f"{promise}, {cost}", fontsize=15, fontweight="bold", va="center")
    who = f"{s.client} ({s.policy})" if s.policy else s.client
    figure.text(0.02, 0.94, f"{proof}; {who}, {s.moves} moves", fontsize=10.5, va="center", color=INK if s.ok else RED)
    note = "; five times as steep as recorded, not comparable with the papers" if s.note else ""
    figure.text(0.02, 0.917, f"{s.source}{note}", fontsize=8.5, color=GREY, va="center")


def _legend(ax: Axes, **options: Any) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.005, 1.02), frameon=False, fontsize=8.5, handlelength=1.4, **options)


def _load(ax: Axes, report: Report) -> None:
    edges = list(range(len(report.seconds) + 1))
    heavy_share = 1.5 / report.setting.partitions
    heavy = [index for index, share in enumerate(report.setting.shares) if share > heavy_share]
    hot = [sum(row.by_partition[index] for index in heavy) for row in report.seconds]
    total = [row.records for row in report.seconds]
    label = (
        f"{report.setting.partitions - len(heavy)} partitions" if heavy else f"{report.setting.partitions} partitions"
    )
    ax.stairs(total, edges, baseline=hot, fill=True, color=_LIGHT, label=label)
    if heavy:
        ax.stairs(hot, edges, fill=True, color=_HEAVY, label=f"{len(heavy)} hot ones")
    ax.set_ylabel("records/s")
    ax.set_ylim(0, None)
    _legend(ax)


def _replicas(ax: Axes, report: Report, end: float) -> None:
    setting = report.setting
    running = steps([(r.started_at, r.ended_at) for r in setting.replicas if r.started_at is not None], setting, end)
    asked = steps([(r.asked_at, r.ended_at) for r in setting.replicas], setting, end)
    ax.fill_between(*running, step="post", color=FAINT, linewidth=0)
    ax.step(*asked, where="post", color=GREY, linewidth=1.0, label="paid for")
    ax.step(*running, where="post", color=INK, linewidth=1.6, label="running")
    if report.wanted:
        times = [at - setting.started_at for at, _ in report.wanted]
        wanted = [replicas for _, replicas in report.wanted]
        ax.step([*times, end], [*wanted, wanted[-1]], where="post", color=RED, linewidth=1.1, linestyle=(0, (3, 2)),
                label="wanted")  # fmt: skip
    ax.set_ylabel("replicas")
    ax.set_ylim(0, None)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _legend(ax)


def steps(spans: Sequence[tuple[float, float | None]], setting: Setting, end: float) -> tuple[list[float], list[int]]:
    """How many of the spans (begin, end; epoch seconds) hold from which second of the load on, until its end."""
    changes = sorted(
        change
        for begin, finish in spans
        for change in ((begin - setting.started_at, 1), ((finish or 1e18) - setting.started_at, -1))
    )
    times, counts, count = [0.0], [0], 0
    for at, change in changes:
        count += change
        if at <= 0:
            counts[0] = count
        elif at < end:
            times.append(at)
            counts.append(count)
    return [*times, end], [*counts, counts[-1]]


def _owners(ax: Axes, report: Report, end: float) -> None:
    """Each partition's row in the colour of its owner; a white tick where a move happened."""
    start = report.setting.started_at
    colours = _colours(report.setting.replicas)
    seen: set[str] = set()
    last: dict[int, tuple[float, str | None]] = {}
    closing = [OwnerChange(at=start + end, partition=Partition("", row), instance=None, moved=False)
               for row in range(report.setting.partitions)]  # fmt: skip
    for change in [*report.owner_changes, *closing]:
        row, until = change.partition.partition, min(change.at - start, end)
        begun, owner = last.get(row, (0.0, None))
        if owner is not None and until > max(begun, 0.0):
            seen.add(owner)
            width = until - max(begun, 0.0)
            ax.barh(row, width, left=max(begun, 0.0), height=0.82, color=colours.get(owner, GREY), linewidth=0)
        last[row] = (until, change.instance)
    moves = [(change.at - start, change.partition.partition) for change in report.owner_changes if change.moved]
    ax.vlines([at for at, _ in moves], [row - 0.41 for _, row in moves], [row + 0.41 for _, row in moves],
              color="white", linewidth=0.9)  # fmt: skip
    ax.set_ylim(report.setting.partitions - 0.4, -0.6)
    ax.set_yticks(range(report.setting.partitions))
    ax.set_ylabel("owner of partition")
    _legend(ax, handles=[Patch(color=colour, label=label) for colour, label in _labels(colours, seen)])


def _colours(replicas: Sequence[Replica]) -> dict[str, str]:
    """A colour for each instance; one that has gone leaves its colour to the next that comes."""
    colours: dict[str, str] = {}
    free_at = [-math.inf] * len(_MEMBERS)
    lives: dict[str, tuple[float, float]] = {}
    for replica in replicas:
        asked, gone = lives.get(replica.name, (math.inf, -math.inf))
        ended = math.inf if replica.ended_at is None else replica.ended_at
        lives[replica.name] = (min(asked, replica.asked_at), max(gone, ended))
    for name, (asked, gone) in sorted(lives.items(), key=lambda life: (life[1][0], life[0])):
        free = [index for index, at in enumerate(free_at) if at <= asked]
        index = free[0] if free else min(range(len(free_at)), key=lambda index: free_at[index])
        free_at[index] = gone
        colours[name] = _MEMBERS[index]
    return colours


def _labels(colours: dict[str, str], seen: set[str]) -> list[tuple[str, str]]:
    """Per colour its instances: ``payments-1, 7, 12``."""
    by_colour: dict[str, list[str]] = {}
    for name, colour in colours.items():
        if name in seen:
            names = by_colour.setdefault(colour, [])
            names.append(name.rpartition("-")[2] if names else name)
    return [
        (colour, ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else ""))
        for colour, names in by_colour.items()
    ]


def _latency(ax: Axes, report: Report) -> None:
    objective = report.setting.objective_seconds
    at = [row.second + 0.5 for row in report.seconds]

    def line(name: str, **style: Any) -> None:
        values = [getattr(row, f"latency_{name}") for row in report.seconds]
        ax.plot(at, [float("nan") if value is None else value for value in values], label=name, **style)

    edges = list(range(len(report.seconds) + 1))
    worst = [row.latency_max or 0.0 for row in report.seconds]
    ax.stairs(worst, edges, fill=True, color="#e8ebf0", label="max", baseline=0.001)
    late = [value if value > objective else objective for value in worst]
    ax.stairs(late, edges, fill=True, color="#f3b9bd", baseline=objective, label="max, late")
    line("p99", color=INK, linewidth=1.5)
    line("p50", color=_HEAVY, linewidth=1.2)
    ax.axhline(objective, color=RED, linewidth=1.2)
    ax.annotate(f"W = {objective:g} s", (1.0, objective), xycoords=("axes fraction", "data"), xytext=(6, 0),
                textcoords="offset points", color=RED, fontsize=9, va="center", annotation_clip=False)  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(0.004, max(1.2, *worst) * 1.4)
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms")
    )
    ax.set_ylabel("latency, by second sent")
    low, high = map(math.log, ax.get_ylim())
    height = (math.log(objective) - low) / (high - low)
    top = 1.02 if height < 0.6 else height - 0.05
    ax.legend(loc="upper left", bbox_to_anchor=(1.005, top), frameon=False, fontsize=8.5, handlelength=1.4)
