"""Plots of simulated runs (extra ``demo``: matplotlib): load against capacity, replicas, latency, moves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..loads.load import WrongLoadError
from ..model.outcome import Outcome, percentile
from .text import seconds_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_plot", "draw"]

FORMATS = (".pdf", ".png", ".svg")
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 1.0)
WIDTH_INCHES, HEIGHT_INCHES = 11.0, 11.0
LOAD_COLOUR, RULE_COLOUR = "0.85", "0.4"
TICKS_MANY, TICKS_FEW = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0)
"""Of each decade of latency, by whether all that is drawn lies within one."""


def check_plot(path: Path) -> None:
    """Could a picture be written there? To be asked before a run of minutes.

    Raises:
        WrongLoadError: matplotlib is not installed, or the file cannot be written or has no format.
    """
    _pyplot()
    if path.suffix.lower() not in FORMATS:
        raise WrongLoadError(
            f"The plot cannot be written to {path}, for its name tells no format; name a file that ends in "
            f"{', '.join(FORMATS)}."
        )
    if path.is_dir() or not path.parent.is_dir():
        what = "that is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise WrongLoadError(f"The plot cannot be written to {path}, for {what}; name another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongLoadError(f"The plot cannot be written to {path}: permission is denied; name another file.")


def draw(path: Path, runs: Sequence[tuple[str, Outcome]], title: str) -> None:
    """Draw the runs into one picture, its format by the file's name.

    Args:
        path: where to.
        runs: (name, outcome), all of the same load.
        title: above the picture.

    Raises:
        WrongLoadError: matplotlib is not installed, or the file cannot be written.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(4, 1, figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    colours = [f"C{number % 10}" for number in range(len(runs))]
    lines = [(colour, outcome) for colour, (_, outcome) in zip(colours, runs, strict=True)]
    _load_and_capacity(axes[0], lines)
    _replicas(axes[1], lines)
    _latency_and_moves(axes[2], lines)
    _percentiles(axes[3], lines)
    for panel in axes[:3]:
        panel.set_xlabel("seconds")
        panel.set_xlim(0, max(len(outcome.curves.replicas) for _, outcome in lines))
        panel.axvline(runs[0][1].seconds, color=RULE_COLOUR, linewidth=0.6)
    named = [(name, colour) for colour, (name, _) in zip(colours, runs, strict=True)]
    # Below the panels, where it covers no curve.
    figure.legend(handles=_legend(named, runs[0][1].objective_seconds), loc="outside lower center", ncols=4)
    figure.suptitle(title)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise WrongLoadError(f"The plot cannot be written to {path} ({error}); name another file.") from error
    finally:
        pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise WrongLoadError(
            "The plot cannot be drawn, for matplotlib is not installed. pip install matplotlib, or leave --plot out."
        ) from None
    return pyplot


def _legend(named: Sequence[tuple[str, str]], objective_seconds: float) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=LOAD_COLOUR, label="load"),
        *(Line2D([], [], color=colour, label=name) for name, colour in named),
        Line2D([], [], color=RULE_COLOUR, linestyle=":", label="replicas wanted"),
        Line2D([], [], color=RULE_COLOUR, linestyle="", marker="|", label="moves"),
        Line2D([], [], color=RULE_COLOUR, linewidth=0.6, label="the load's end"),
        Line2D([], [], color=RULE_COLOUR, linestyle="--", label=f"objective W = {seconds_words(objective_seconds)}"),
    ]


def _steps(axes: Axes, values: Sequence[float], **style: Any) -> None:
    """Each value from the beginning of its second to the end."""
    given: dict[str, Any] = {"baseline": None} | style
    axes.stairs(values, range(len(values) + 1), **given)


def _load_and_capacity(axes: Axes, lines: Sequence[tuple[str, Outcome]]) -> None:
    load = lines[0][1]
    _steps(axes, load.curves.work[: load.seconds], fill=True, color=LOAD_COLOUR, baseline=0.0)
    for colour, outcome in lines:
        _steps(axes, outcome.curves.capacity, color=colour, linewidth=1.2)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("load and capacity,\nbusy seconds per second")


def _replicas(axes: Axes, lines: Sequence[tuple[str, Outcome]]) -> None:
    from matplotlib.ticker import MaxNLocator

    for colour, outcome in lines:
        _steps(axes, outcome.curves.replicas, color=colour, linewidth=1.2)
        _steps(axes, outcome.curves.wanted, color=colour, linewidth=0.9, linestyle=":")
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("replicas")


def _latency_and_moves(axes: Axes, lines: Sequence[tuple[str, Outcome]]) -> None:
    for colour, outcome in lines:
        _steps(axes, outcome.curves.latency_max, color=colour, linewidth=0.8)
        moved = [second + 0.5 for second, count in enumerate(outcome.curves.moves) if count]
        axes.plot(moved, [0.0] * len(moved), "|", color=colour, markersize=8)
    _rule(axes, lines[0][1].objective_seconds)
    axes.set_ylabel("longest latency, s")


def _percentiles(axes: Axes, lines: Sequence[tuple[str, Outcome]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    places = range(len(QUANTILES))
    drawn = [lines[0][1].objective_seconds]
    for colour, outcome in lines:
        latencies = outcome.latencies_least()
        values = [percentile(latencies, share) for share in QUANTILES]
        bounds = [place for place in places if outcome.is_bound(values[place])]
        axes.plot(places, values, marker=".", color=colour)
        axes.plot(bounds, [values[place] for place in bounds], "^", color=colour)
        drawn += [value for value in values if value > 0.0]
    _rule(axes, lines[0][1].objective_seconds)
    axes.set_xticks(list(places), [f"p{share * 100:g}" if share < 1.0 else "longest" for share in QUANTILES])
    some_left = any(outcome.left for _, outcome in lines)
    axes.set_ylabel("latency" + ("\n(triangle: at least,\nnot all was done)" if some_left else ""))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=TICKS_FEW if max(drawn) > 10.0 * min(drawn) else TICKS_MANY))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: seconds_words(seconds)))
    axes.yaxis.set_minor_locator(NullLocator())


def _rule(axes: Axes, objective_seconds: float) -> None:
    axes.axhline(objective_seconds, color=RULE_COLOUR, linestyle="--", linewidth=0.8)
