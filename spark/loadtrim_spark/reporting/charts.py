"""Plots as SVG that stands in a page by itself: lines, steps, bands and stacked bars over time. Pure text."""

from __future__ import annotations

import datetime
import itertools
import math
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["COLOURS", "Line", "bars", "lines"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
"""Okabe and Ito's, which people who see colours differently can tell apart."""
WIDTH, HEIGHT = 960, 230
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 26
EDGE = 30
"""So near to it a label in the middle of its mark would be cut off."""
HEADROOM = 1.04
TICKS_MAX = 5
HOURS = (1, 2, 3, 6, 12, 24, 48, 168)
"""Distances between marks on the time axis that people can read."""
MARKS_MAX = 10

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


@dataclass(frozen=True, slots=True)
class _Frame:
    """From moments and values to places in the picture."""

    begin: float
    end: float
    top: float

    def x(self, moment: float) -> float:
        return LEFT + (moment - self.begin) / max(self.end - self.begin, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - min(value, self.top) / self.top * (HEIGHT - TOP - BOTTOM)


def lines(times: Sequence[float], curves: Sequence[Line], *, zone: str, unit: str, title: str) -> str:
    """Curves over time.

    Args:
        times: seconds since the epoch, ascending, the same distance between any two.
        curves: drawn in this order.
        zone: whose hours stand at the axis.
        unit: of the values.
        title: what is to be seen, for those who hear the page.
    """
    values = [value for curve in curves for value in curve.values if value is not None]
    step = times[1] - times[0] if len(times) > 1 else 1.0
    frame = _Frame(times[0], times[-1] + step, _nice_top(max(values, default=0.0) * HEADROOM))
    drawn = [part for curve in curves for part in _curve(frame, times, curve, step)]
    names = [(curve.name, curve.colour, curve.dashed, curve.below is not None) for curve in curves]
    return _picture(frame, drawn, zone, unit, title) + _legend(names)


def bars(times: Sequence[float], stacks: Mapping[str, Sequence[float]], *, zone: str, unit: str, title: str) -> str:
    """Stacked bars over time, each with its figures in a tool tip.

    Args:
        times: when each bar begins, seconds since the epoch, ascending.
        stacks: name -> one value per bar, from the axis upwards.
        zone: whose hours stand at the axis.
        unit: of the values.
        title: what is to be seen, for those who hear the page.
    """
    step = min((after - before for before, after in itertools.pairwise(times)), default=3600.0)
    totals = [sum(stack[place] for stack in stacks.values()) for place in range(len(times))]
    frame = _Frame(times[0], times[-1] + step, _nice_top(max(totals, default=0.0), 1.0))
    drawn = []
    for place, moment in enumerate(times):
        base = 0.0
        for colour, (name, stack) in enumerate(stacks.items()):
            if stack[place] <= 0:
                continue
            left, right = frame.x(moment), frame.x(moment + step)
            low, high = frame.y(base), frame.y(base + stack[place])
            base += stack[place]
            tip = f"{_moment(moment, zone):%a %d %b %H:%M}: {stack[place]:,.6g} {unit}, {name}"
            drawn.append(
                f'<rect x="{left:.1f}" y="{high:.1f}" width="{max(right - left - 0.6, 0.6):.1f}" '
                f'height="{max(low - high, 0.5):.1f}" fill="{_colour(colour)}"><title>{escape(tip)}</title></rect>'
            )
    legend = [(name, colour, False, True) for colour, name in enumerate(stacks)]
    return _picture(frame, drawn, zone, unit, title, 1.0) + (_legend(legend) if len(stacks) > 1 else "")


def _curve(frame: _Frame, times: Sequence[float], curve: Line, step: float) -> Iterator[str]:
    colour = _colour(curve.colour)
    if curve.below is not None:
        for run in _runs(
            times, [None if low is None else high for low, high in zip(curve.below, curve.values, strict=True)]
        ):
            upper = [(frame.x(times[place]), frame.y(curve.values[place] or 0.0)) for place in run]
            lower = [(frame.x(times[place]), frame.y(curve.below[place] or 0.0)) for place in reversed(run)]
            yield f'<path d="{_path([*upper, *lower])} Z" fill="{colour}" fill-opacity="0.22"/>'
        return
    dash = ' stroke-dasharray="5 3"' if curve.dashed else ""
    for run in _runs(times, curve.values):
        points: list[tuple[float, float]] = []
        for place in run:
            height = frame.y(curve.values[place] or 0.0)
            points.append((frame.x(times[place]), height))
            if curve.step:
                points.append((frame.x(times[place] + step), height))
        yield f'<path d="{_path(points)}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>'


def _runs(times: Sequence[float], values: Values) -> Iterator[list[int]]:
    """Places of neighbouring values that are known."""
    run: list[int] = []
    for place in range(len(times)):
        if values[place] is not None:
            run.append(place)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _picture(frame: _Frame, drawn: Sequence[str], zone: str, unit: str, title: str, least: float = 0.0) -> str:
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in _ticks(frame.top, least):
        y = frame.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    parts.append(f'<text x="12" y="{HEIGHT / 2 - 8:.0f}" text-anchor="middle" transform="rotate(-90 12 '
                 f'{HEIGHT / 2 - 8:.0f})">{escape(unit)}</text>')  # fmt: skip
    for moment, text in _marks(frame, zone):
        x = frame.x(moment)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        anchor = "start" if x < LEFT + EDGE else "end" if x > WIDTH - RIGHT - EDGE else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 9}" text-anchor="{anchor}">{escape(text)}</text>')
    return "".join([*parts, *drawn, "</svg>"])


def _legend(names: Sequence[tuple[str, int, bool, bool]]) -> str:
    """(name, colour, dashed, filled) of each entry."""
    entries = []
    for name, colour, dashed, filled in names:
        style = "dashed" if dashed else "filled" if filled else "solid"
        entries.append(f'<span><i class="{style}" style="--colour:{_colour(colour)}"></i>{escape(name)}</span>')
    return f'<p class="legend">{"".join(entries)}</p>'


def _marks(frame: _Frame, zone: str) -> list[tuple[float, str]]:
    """Whole hours or days of local time, and what is written there."""
    hours = (frame.end - frame.begin) / 3600
    every = next(
        (entry for entry in HOURS if hours / entry <= MARKS_MAX), HOURS[-1] * math.ceil(hours / 168 / MARKS_MAX)
    )
    first = _moment(frame.begin, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    marks = []
    for number in range(math.ceil((hours + 25) / every) + 1):
        local = first + datetime.timedelta(hours=number * every)
        if frame.begin <= local.timestamp() <= frame.end:
            marks.append((local.timestamp(), f"{local:%H:%M}" if local.hour else f"{local:%a %d %b}"))
    return marks


def _nice_top(largest: float, least: float = 0.0) -> float:
    """The next larger value at which a tick can stand."""
    step = _tick_step(largest, least)
    return math.ceil(largest / step - 1e-9) * step if largest > 0 else 1.0


def _tick_step(largest: float, least: float = 0.0) -> float:
    """1, 2 or 5 times a power of ten, and no less than ``least``: there are no halves of a record."""
    if largest <= 0:
        return 1.0
    rough = max(largest / TICKS_MAX, least)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= rough * (1 - 1e-9))


def _ticks(top: float, least: float) -> list[float]:
    step = _tick_step(top, least)
    return [step * number for number in range(math.floor(top / step + 1e-9) + 1)]


def _moment(seconds: float, zone: str) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(zone))


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
