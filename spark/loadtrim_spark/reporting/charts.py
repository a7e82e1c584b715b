"""Plots as SVG that stands in a page by itself: lines, steps, bands and stacked bars over time, drawn by matplotlib."""

from __future__ import annotations

import datetime
import io
import itertools
import math
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
import matplotlib.dates
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

__all__ = ["COLOURS", "Line", "bars", "lines"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's, which people who see colours differently can tell apart."""
FAINT = "#7d8590"
"""Chosen: text and axes that can be read on white and on black."""
SIZE_INCHES = (10.0, 2.5)
STYLE: Any = {
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.labelcolor": FAINT,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 8.0,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.labelcolor": FAINT,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
}

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve.

    Attributes:
        name: in the legend.
        values: one per moment; None: not known, the curve is broken there.
        colour: index into :data:`COLOURS`.
        step: constant between two moments?
        dashed: drawn as dashes?
        below: the lower edge of a band of which ``values`` is the upper one.
    """

    name: str
    values: Values
    colour: int = 0
    step: bool = False
    dashed: bool = False
    below: Values | None = None


def lines(times: Sequence[float], curves: Sequence[Line], *, zone: str, unit: str, title: str) -> str:
    """Draw curves over time.

    Args:
        times: seconds since the epoch, ascending, the same distance between any two.
        curves: drawn in this order.
        zone: whose hours stand at the axis.
        unit: of the values.
        title: what is to be seen, for people who hear the page.

    Returns:
        SVG. Equal input gives equal bytes.
    """

    def paint(axes: Any) -> None:
        moments = _moments(times, zone)
        for curve in curves:
            look = {"color": COLOURS[curve.colour % len(COLOURS)], "label": curve.name}
            upper = _known(curve.values)
            if curve.below is not None:
                axes.fill_between(moments, _known(curve.below), upper, alpha=0.25, linewidth=0, **look)
                continue
            shape = {"drawstyle": "steps-post" if curve.step else "default", "dashes": (5, 3) if curve.dashed else ()}
            axes.plot(moments, upper, linewidth=1.2, **shape, **look)
        axes.set_ylim(bottom=0.0)

    return _drawn(paint, len(curves), zone, unit, title)


def bars(times: Sequence[float], stacks: Mapping[str, Sequence[float]], *, zone: str, unit: str, title: str) -> str:
    """Draw stacked bars over time.

    Args:
        times: when each bar begins, seconds since the epoch, ascending.
        stacks: name -> one value per bar, from the axis upwards.
        zone, unit, title: as of :func:`lines`.

    Returns:
        SVG. A value of 0 draws no bar.
    """
    step = min((after - before for before, after in itertools.pairwise(times)), default=3600.0)

    def paint(axes: Any) -> None:
        moments, base = _moments(times, zone), [0.0] * len(times)
        for colour, (name, stack) in enumerate(stacks.items()):
            shown = [place for place, value in enumerate(stack) if value > 0]
            axes.bar(
                [moments[place] for place in shown],
                [stack[place] for place in shown],
                bottom=[base[place] for place in shown],
                width=datetime.timedelta(seconds=step),
                align="edge",
                color=COLOURS[colour % len(COLOURS)],
                label=name,
            )
            base = [low + value for low, value in zip(base, stack, strict=True)]
        axes.set_xlim(moments[0], moments[-1] + datetime.timedelta(seconds=step))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    return _drawn(paint, len(stacks), zone, unit, title)


def _drawn(paint: Callable[[Any], None], entries: int, zone: str, unit: str, title: str) -> str:
    # The salt keeps names that plots of one page refer to apart.
    with mpl.rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        dates: Any = matplotlib.dates
        locator = dates.AutoDateLocator(tz=zoneinfo.ZoneInfo(zone))
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zoneinfo.ZoneInfo(zone)))
        axes.set_ylabel(unit)
        paint(axes)
        if entries > 1:
            axes.legend(ncols=entries, loc="lower left", bbox_to_anchor=(0.0, 1.0))
        file = io.StringIO()
        nothing: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawn = file.getvalue()
    return f'<svg role="img" aria-label="{escape(title)}"' + drawn[drawn.index("<svg") + 4 :]


def _moments(times: Sequence[float], zone: str) -> list[datetime.datetime]:
    return [datetime.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(zone)) for at in times]


def _known(values: Values) -> list[float]:
    return [math.nan if value is None else value for value in values]
