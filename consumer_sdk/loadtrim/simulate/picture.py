"""Plots of simulated runs (extra ``demo``: matplotlib): load against capacity, replicas, latency, moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .loads import WrongLoadError
from .outcome import Outcome, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 1.0)
WIDTH_INCHES, HEIGHT_INCHES = 11.0, 11.0


def draw(path: Path, runs: Sequence[tuple[str, Outcome]], title: str) -> None:
    """Draw the runs into one picture, its format by the file's name.

    Args:
        path: where to.
        runs: (name, outcome), all of the same load.
        title: above the picture.

    Raises:
        WrongLoadError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise WrongLoadError(
            "The plot cannot be drawn, for matplotlib is not installed; the figures are not affected. "
            "pip install 'loadtrim[demo]', or leave --plot out."
        ) from None
    figure, axes = pyplot.subplots(4, 1, figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    _load_and_capacity(axes[0], runs)
    _replicas(axes[1], runs)
    _moves(axes[2], runs)
    _latency(axes[3], runs)
    figure.suptitle(title)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise WrongLoadError(f"The plot cannot be written to {path} ({error}); name another file.") from error
    finally:
        pyplot.close(figure)


def _load_and_capacity(axes: Axes, runs: Sequence[tuple[str, Outcome]]) -> None:
    axes.fill_between(range(len(runs[0][1].curves.work)), runs[0][1].curves.work, color="0.85", label="load")
    for name, outcome in runs:
        axes.plot(outcome.curves.capacity, label=f"capacity, {name}", drawstyle="steps-post", linewidth=1.2)
    axes.set_ylabel("busy seconds per second")
    axes.legend(fontsize="small", loc="upper left")


def _replicas(axes: Axes, runs: Sequence[tuple[str, Outcome]]) -> None:
    for name, outcome in runs:
        (line,) = axes.plot(outcome.curves.replicas, label=name, drawstyle="steps-post", linewidth=1.2)
        axes.plot(outcome.curves.wanted, color=line.get_color(), drawstyle="steps-post", linewidth=0.7, linestyle=":")
    axes.set_ylabel("replicas (dotted: wanted)")
    axes.legend(fontsize="small", loc="upper left")


def _moves(axes: Axes, runs: Sequence[tuple[str, Outcome]]) -> None:
    for name, outcome in runs:
        (line,) = axes.plot(outcome.curves.latency_max, label=name, linewidth=0.8)
        moved = [second for second, count in enumerate(outcome.curves.moves) if count]
        axes.plot(moved, [0.0] * len(moved), "|", color=line.get_color(), markersize=8)
    axes.axhline(runs[0][1].objective_seconds, color="0.4", linestyle="--", linewidth=0.8)
    axes.set_ylabel("longest latency in s (| moves)")
    axes.set_xlabel("seconds")


def _latency(axes: Axes, runs: Sequence[tuple[str, Outcome]]) -> None:
    places = range(len(QUANTILES))
    for name, outcome in runs:
        axes.plot(places, [percentile(outcome.latencies, share) for share in QUANTILES], marker=".", label=name)
    axes.axhline(runs[0][1].objective_seconds, color="0.4", linestyle="--", linewidth=0.8)
    axes.set_xticks(list(places), [f"p{share * 100:g}" if share < 1.0 else "longest" for share in QUANTILES])
    axes.set_ylabel("latency in s")
    axes.set_yscale("log")
