"""Third stage: the group's work per second now and when a replica asked for now could help.

A straight line by least squares over as much of the past as agrees with the newest seconds: up to two minutes of a
steady load, so that noise moves nothing, and no more than a few seconds after a jump, so that it is answered at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .values import Forecast

__all__ = ["WINDOWS_SECONDS", "forecast"]

WINDOWS_SECONDS = (120, 60, 30, 15, 8)
"""Pasts that are tried, longest first. A trend is followed over 30 s at most, a level over all of it."""
TREND_SECONDS = 30
NEWEST = 3
DISAGREE = 4.0
"""Standard errors by which the newest seconds may be off what the ones before them predict."""
SLOPE_ERRORS = 2.5
DAMPING_PER_SECOND = 0.97
ALIKE = 0.02
"""Seconds after a jump whose difference is within this share (times :data:`DISAGREE`) are one level."""
FLOOR = 0.005
"""A measured load is not believed to be more exact than this share of it."""


@dataclass(frozen=True, slots=True)
class _Line:
    level: float
    """At the newest second."""
    slope: float
    slope_error: float
    error: float
    """Standard error of the level."""
    sd: float
    """Of one second around the line."""
    freedom: int


def _fit(values: Sequence[float]) -> _Line:
    """Least squares; needs 3 values."""
    count = len(values)
    middle = (count - 1) / 2
    mean = statistics.fmean(values)
    spread = count * (count * count - 1) / 12
    slope = sum((index - middle) * value for index, value in enumerate(values)) / spread
    squares = sum((value - mean - slope * (index - middle)) ** 2 for index, value in enumerate(values))
    freedom = count - 2
    sd = max(math.sqrt(squares / freedom), FLOOR * abs(mean))
    return _Line(
        level=mean + slope * middle,
        slope=slope,
        slope_error=sd / math.sqrt(spread),
        error=sd * math.sqrt(1 / count + middle * middle / spread),
        sd=sd,
        freedom=freedom,
    )


def _flat(values: Sequence[float]) -> _Line:
    """The mean alone; needs 1 value."""
    mean = statistics.fmean(values)
    sd = statistics.stdev(values) if len(values) > 1 else abs(mean)
    sd = max(sd, FLOOR * abs(mean))
    return _Line(mean, 0.0, 0.0, sd / math.sqrt(len(values)), sd, len(values) - 1)


def _believed(values: Sequence[float]) -> _Line:
    """The line where its slope is significant, else the mean.

    The bound grows for short windows as that of Student's t does, else every fourth window of 4 s of plain noise would
    show a trend.
    """
    if len(values) < 4:
        return _flat(values)
    line = _fit(values)
    bound = SLOPE_ERRORS * (1 + 3.0 / line.freedom)
    return line if abs(line.slope) > bound * line.slope_error else _flat(values)


def _agrees(values: Sequence[float]) -> bool:
    """Do the newest seconds look like what the ones before them predict?"""
    before, newest = values[:-NEWEST], values[-NEWEST:]
    line = _believed(before)
    mean_off = 0.0
    for step, value in enumerate(newest, 1):
        off = value - line.level - line.slope * step
        mean_off += off / NEWEST
        if abs(off) > (DISAGREE + 0.5) * math.hypot(line.sd, line.error):
            return False
    error = math.hypot(line.sd / math.sqrt(NEWEST), line.error + line.slope_error * NEWEST)
    return abs(mean_off) <= DISAGREE * error


def forecast(series: Sequence[float], horizon_seconds: float, baseline: float | None = None) -> Forecast:
    """Level and trend of the group's work.

    Args:
        series: work per second, oldest first, at least one.
        horizon_seconds: how far ahead: start-up time + one tick + 1 s.
        baseline: work per second that the history expects at the horizon, already scaled by how today compares with
            the expected so far; None where there is no baseline.

    Returns:
        The larger of trend and baseline; never below 0.

    Cost: ``O(len(series))``, about 0.1 ms.
    """
    line, window = _longest_that_agrees(series)
    # A slope loses 3 % a second: no trend lasts.
    reach = DAMPING_PER_SECOND * (1 - DAMPING_PER_SECOND**horizon_seconds) / (1 - DAMPING_PER_SECOND)
    ahead = max(0.0, line.level + line.slope * reach)
    source = "trend"
    if baseline is not None and baseline > ahead:
        ahead, source = baseline, "baseline"
    return Forecast(
        level=max(0.0, line.level),
        ahead=ahead,
        error=line.error,
        slope=line.slope,
        horizon_seconds=horizon_seconds,
        window_seconds=window,
        source=source,
    )


def _longest_that_agrees(series: Sequence[float]) -> tuple[_Line, int]:
    for window in WINDOWS_SECONDS:
        values = series[-window:]
        if len(values) <= NEWEST + 4 or window >= 2 * len(values):
            continue
        if not _agrees(values):
            continue
        line = _believed(values)
        if line.slope != 0.0 and len(values) > TREND_SECONDS:
            continue  # a trend over minutes is not straight enough to be extended
        return line, len(values)
    return _since_jump(series)


def _since_jump(series: Sequence[float]) -> tuple[_Line, int]:
    """The mean of the newest seconds that are alike, with the noise of the load before them."""
    past = series[-TREND_SECONDS : -NEWEST]
    mean = statistics.fmean(past) if past else 0.0
    noise = statistics.stdev(past) / mean if len(past) > 3 and mean > 0 else 0.0
    noise = min(max(noise, ALIKE), 1.0)
    count = 1
    mean = series[-1]
    while count < min(len(series), WINDOWS_SECONDS[-1]):
        off = abs(series[-count - 1] - mean)
        if off > DISAGREE * noise * mean * math.sqrt(1 + 1 / count):
            break
        count += 1
        mean = statistics.fmean(series[-count:])
    sd = noise * mean
    return _Line(mean, 0.0, 0.0, sd / math.sqrt(count), sd, count - 1), count
