"""Third stage: the group's work per second now and when a replica asked for now could help.

A straight line by least squares over as much of the past as agrees with the newest seconds: up to two minutes of a
steady load, so that noise moves nothing, and no more than a few seconds after a jump, so that it is answered at once.
A long objective has time to see whether a jump is a batch that ends: there part of it counts (:func:`_lasting_share`).

Work comes in *grains*, the work of a record. Where a second has few of them it is far from a normal variable. Where one
record comes every two seconds, four in one second are no jump: bounds upwards allow for that (:func:`_skew`). And a
load that begins with a record is not known to go on at one a second.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

import msgspec

from .baseline import NOTHING_EXPECTED, Expectation
from .values import Estimate, Forecast

__all__ = ["WINDOWS_SECONDS", "alike_seconds", "dispersion_of", "forecast", "level_error", "reach_seconds"]

WINDOWS_SECONDS = (120, 60, 30, 15, 8)
"""Pasts that are tried, longest first."""
BEFORE_SECONDS = 30
"""What was before a jump is looked at over this time."""
NEWEST = 3
DISAGREE = 4.0
"""Standard errors by which the newest seconds may be off what the ones before them predict."""
UNLIKE = 3.0
"""Standard errors between the seconds before and after a jump. That there is one is known by then, so to stop looking
back too early costs little."""
STRAIGHT = 1.8
"""A line that leaves more than this many times the noise is no picture of what happened."""
SLOPE_ERRORS = 2.5
SLOPE_ERRORS_LONG = 4.0
"""The same over more than 30 s: a trend that matters shows in a shorter window too, and one that is none turns up once
in a hundred looks."""
TREND_SECONDS = 30
DAMPING_PER_SECOND = 0.97
FLOOR = 0.005
"""A measured load is not believed to be more exact than this share of it."""
JUMP_NOISE_MAX = 0.15
"""Noise after a jump, as a share of the load, is taken to be no more than this."""
NOISE_SECONDS = 30
SHARE = 0.85
JUMPS = 3
"""So many differences of a short past may be jumps: a jump inside a second makes two."""
NOISE_FLOOR_VALUES = 2.0
"""Of few values the noise is easily taken for too small: it counts for (1 + this / their number) times as much."""
RISEN_ERRORS = 0.5
"""What a window says of a rise counts less so many standard errors, beside those that looking at many windows makes.
Chosen by the loads for tuning."""
SUSPECTED_OBJECTIVES = 0.1
"""Of the objective: what a rise that is only suspected would make late until the horizon, and may. Chosen by the loads
for tuning."""
LASTING_OBJECTIVES = 0.5
"""Of the objective: so long a load out of nothing is seen before all of it counts. Derived: :func:`_lasting_share`."""
IDLE_SECONDS = 10
"""Nothing for so long is no part of the load that comes after it."""
CHANCE_SECONDS = 20.0
"""Seconds of measurement that the assumption of chance counts as much as. Chosen."""
SUM_OBJECTIVES = 0.25
"""Seconds whose work is summed up, in objectives. Chosen: a queue that makes records late builds up over longer, but
longer sums are fewer, and vary more by themselves."""
SUMS_MIN = 10
"""Sums that follow each other in what is known of a load, at least."""
IDLE_CHANCE = 0.001
"""Probability of a gap so long, where records come by chance as often as these, below which it is idle time as well.
Chosen."""
IDLE_SHARE = 0.02
"""Of the newest seconds: less is nothing."""
CALMER = 0.8
STANDARD = statistics.NormalDist()


class _Line(msgspec.Struct, frozen=True):
    level: float
    """At the newest second."""
    slope: float
    slope_error: float
    error: float
    """Standard error of the level."""
    stddev: float
    """Of one second around the line."""
    freedom: int


class _Told(NamedTuple):
    """The line that a series tells of."""

    line: _Line
    window: int
    """Newest seconds that it rests on."""
    known: tuple[float, ...]
    """The series since the load began."""


def _skew(errors: float, grain: float) -> float:
    """Return how much farther above its mean a sum of few grains may be than a normal variable.

    Args:
        errors: standard errors that are allowed for.
        grain: mean work of a record, by work: of a record that costs more, more comes at once.

    Source: the first term of the expansion of a quantile (E. A. Cornish, R. A. Fisher, 1938), for a compound Poisson
    variable. Its third cumulant over its variance is a grain, where all are alike.
    """
    return grain * (errors * errors - 1.0) / 6.0


def _noise(series: Sequence[float]) -> float:
    """Standard deviation of one second around whatever the load does, from the differences of neighbours.

    Slow ups and downs hardly show in them, and jumps are left out: the quantile of the differences that is taken for
    that of a normal variable leaves out one in seven, and three of a short past.
    """
    differences = [abs(right - left) for left, right in itertools.pairwise(series)]
    lately, always = _spread(differences[-NOISE_SECONDS:]), _spread(differences)
    # Thirty differences may happen to be small; a load seldom becomes so much calmer.
    return max(lately, CALMER * always) / math.sqrt(2.0)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of normal variables of mean 0, from their absolute values, some of which are jumps."""
    count = len(values)
    if not count:
        return 0.0
    rank = max(1, min(math.ceil(SHARE * count), count - JUMPS))
    quantile = STANDARD.inv_cdf(0.5 + 0.5 * (rank - 0.3) / (count + 0.4))
    return sorted(values)[rank - 1] / quantile * (1.0 + NOISE_FLOOR_VALUES / count)


def _fit(values: Sequence[float], noise: float) -> _Line:
    """Least squares; needs 3 values."""
    count = len(values)
    middle = (count - 1) / 2
    mean = statistics.fmean(values)
    spread = count * (count * count - 1) / 12
    places = _places(count)
    slope = sum(map(mul, places, values)) / spread
    squares = sum([(value - mean - slope * place) ** 2 for value, place in zip(values, places, strict=True)])
    stddev = max(math.sqrt(squares / (count - 2)), noise)
    return _Line(
        level=mean + slope * middle,
        slope=slope,
        slope_error=stddev / math.sqrt(spread),
        error=stddev * math.sqrt(1 / count + middle * middle / spread),
        stddev=stddev,
        freedom=count - 2,
    )


@lru_cache(maxsize=2 * WINDOWS_SECONDS[0])
def _places(count: int) -> tuple[float, ...]:
    """So many neighbouring seconds, counted from their middle."""
    middle = (count - 1) / 2
    return tuple(index - middle for index in range(count))


def _flat(values: Sequence[float], noise: float) -> _Line:
    """The mean alone; needs 1 value."""
    mean = statistics.fmean(values)
    squares = sum([(value - mean) ** 2 for value in values])
    stddev = max(math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0, noise)
    return _Line(mean, 0.0, 0.0, stddev / math.sqrt(len(values)), stddev, len(values) - 1)


def _believed(values: Sequence[float], noise: float) -> _Line:
    """The line where its slope is significant, else the mean.

    The bound grows for short windows as that of Student's t does, else every fourth window of 4 s of plain noise would
    show a trend.
    """
    if len(values) < 4:
        return _flat(values, noise)
    line = _fit(values, noise)
    errors = SLOPE_ERRORS if len(values) <= TREND_SECONDS else SLOPE_ERRORS_LONG
    bound = errors * (1 + 3.0 / line.freedom)
    return line if abs(line.slope) > bound * line.slope_error else _flat(values, noise)


def _agrees(values: Sequence[float], noise: float, grain: float) -> bool:
    """Is the past straight, and do the newest seconds look like what the ones before them predict?"""
    before, newest = values[:-NEWEST], values[-NEWEST:]
    line = _believed(before, noise)
    # Of few grains the variance itself varies: by the fourth cumulant, which is theirs squared times the second.
    chance = DISAGREE * noise * grain / math.sqrt(len(before))
    if line.stddev * line.stddev > (STRAIGHT * noise) ** 2 + chance:
        return False
    mean_off = 0.0
    for step, value in enumerate(newest, 1):
        off = value - line.level - line.slope * step
        mean_off += off / NEWEST
        if _is_off(off, DISAGREE + 0.5, math.hypot(line.stddev, line.error), grain):
            return False
    error = math.hypot(line.stddev / math.sqrt(NEWEST), line.error + line.slope_error * NEWEST)
    return not _is_off(mean_off, DISAGREE, error, grain / NEWEST)


def _is_off(off: float, errors: float, error: float, grain: float) -> bool:
    """Return whether something is farther from what was predicted than chance makes it."""
    return abs(off) > errors * error + (_skew(errors, grain) if off > 0.0 else 0.0)


def forecast(
    series: Sequence[float],
    horizon_seconds: float,
    expectation: Expectation = NOTHING_EXPECTED,
    opening: float = 0.0,
    objective_seconds: float = 0.0,
    grain: float = 0.0,
) -> Forecast:
    """Level and trend of the group's work.

    Args:
        series: work per second, oldest first, at least one.
        horizon_seconds: how far ahead: start-up time + one tick + 1 s.
        expectation: what the history expects until its own horizon, already scaled by how today compares with what was
            expected so far.
        opening: what is known already of the second after the last of the series. It counts where it is more than was
            expected of all of it: that little has come yet says nothing.
        objective_seconds: W. A rise that is only suspected is answered where what it brings until the horizon would be
            late. A jump counts in full once it was seen for so long as :func:`_lasting_share` says.
        grain: busy seconds that come at once with a record, see :func:`_skew`; 0: next to nothing.

    Returns:
        The larger of trend and baseline; never below 0.

    Cost: ``O(len(series))``, about 0.2 ms.
    """
    came = tuple(series)
    line, window, known = _told(came, grain)
    far = reach_seconds(horizon_seconds)
    reach = min(far, float(window))
    if opening > line.level + line.slope:
        sooner = _told((*came, opening), grain)
        if sooner.line.level + sooner.line.slope * reach > line.level + line.slope * reach:
            came, (line, window, known) = (*came, opening), sooner
    trend = max(0.0, line.level + line.slope * reach)
    # What would be late meanwhile is a part of the objective: so long a suspicion can wait to become a trend.
    waits = 1.0 + SUSPECTED_OBJECTIVES * objective_seconds / horizon_seconds if horizon_seconds > 0.0 else 1.0
    if (risen := _risen(known, window, far, grain) / waits) > line.level:
        trend = max(trend, risen)
    share = _lasting_share(came, line, window, objective_seconds, horizon_seconds)
    ahead = trend = share * trend
    source = "trend"
    if expectation.ahead is not None and expectation.ahead > ahead:
        ahead, source, horizon_seconds = expectation.ahead, "baseline", expectation.horizon_seconds
    return Forecast(
        level=share * max(0.0, line.level),
        ahead=ahead,
        error=share * line.error,
        slope=share * line.slope,
        horizon_seconds=horizon_seconds,
        window_seconds=window,
        trend=trend,
        source=source,
        returning=expectation.returning,
        counted_share=share,
    )


def _lasting_share(
    series: Sequence[float], line: _Line, window: int, objective_seconds: float, horizon_seconds: float
) -> float:
    """Return the part of a level that counts, 0 .. 1: all of it once it was seen for half of the objective.

    A second of much work is a batch or the first of many, and until it goes on nobody knows. A load that was seen for k
    seconds is expected for k more. The work of both has to be done within W. So its rate is that work over W, which is
    the mean of the last W / 2, until 2 k is W. A load that rises and was more than nothing before is more likely to
    stay. It is seen for no longer than an answer leaves that comes in time. One that was seen to rise is no batch.

    Args:
        series: work per second.
        line: of the newest seconds.
        window: the line was seen for so many seconds.
        objective_seconds: W.
        horizon_seconds: how long an answer takes.
    """
    level = line.level
    seconds = round(LASTING_OBJECTIVES * objective_seconds)
    before = series[-seconds:-window] if seconds > window else ()
    # The median, because a batch seldom begins with a second.
    if before and statistics.median(before) > IDLE_SHARE * level:
        seconds = min(seconds, round(objective_seconds - horizon_seconds))
    if window >= seconds or level <= 0.0 or line.slope > 0.0:
        return 1.0
    return min(1.0, statistics.fmean(series[-seconds:]) / level)


@lru_cache(maxsize=4)
def _risen(series: tuple[float, ...], alike: int, far_seconds: float, grain: float) -> float:
    """Return the least that is expected of a load if it is rising, by the window that says the most.

    A slope is believed only where noise would hardly ever make it, and until then the mean of the past lags behind a
    rise. Too few replicas cost more than too many. So the newest seconds say what they are, and each window says where
    its straight line leads, all less what noise makes of it. Of n windows that fit into the past, the luckiest is
    ``sqrt(2 ln n)`` standard errors off. So a long steady load does not rise by accident, and a short one soon. A line
    that may well be off by as much as the load itself says nothing: of few records half an error is several times it.
    A window's length ahead that is so with less than 27 records that come by chance.

    Source: the penalty of multiscale tests (L. Duembgen, V. Spokoiny, 2001).

    Args:
        series: work per second.
        alike: seconds that are of one kind; what was before does not count.
        far_seconds: how far a slope is drawn out at most. It lasts no longer than it has been seen for.
        grain: as for :func:`forecast`.
    """
    noise = _noise_of(series, min(grain, max(series)))
    count = min(NEWEST, alike)
    newest = _flat(series[-count:], noise)
    most = newest.level - _errors_of(count, alike) * newest.error
    for window in {alike, *WINDOWS_SECONDS}:
        if WINDOWS_SECONDS[-1] <= window <= alike:
            reach = min(far_seconds, float(window))
            line = _fit(series[-window:], noise)
            # The error of a line at a point grows with the distance from its middle.
            off = ((window - 1) / 2 + reach) * line.slope_error
            error = math.hypot(line.stddev / math.sqrt(window), off)
            if error < statistics.fmean(series[-window:]):
                most = max(most, line.level + line.slope * reach - _errors_of(window, alike) * error)
    return most


def _errors_of(window: int, alike: int) -> float:
    return RISEN_ERRORS + math.sqrt(2.0 * math.log(max(1.0, alike / window)))


@lru_cache(maxsize=4)  # which past agrees and whether it rises rest on the same
def _noise_of(series: tuple[float, ...], grain: float) -> float:
    """Return the standard deviation of one second, never below what a measurement is exact to.

    Nor below what whole grains make where most seconds have none: then few differences show it.
    """
    hit = _share_hit(series, grain)
    chance = grain * math.sqrt(hit * (1.0 - hit))
    return max(_noise(series), chance, FLOOR * abs(statistics.fmean(series[-NEWEST:])), 1e-12)


def _share_hit(series: Sequence[float], grain: float) -> float:
    """Return the share of seconds that get a grain where each gets one at most, 0 .. 1."""
    return min(1.0, statistics.fmean(series) / grain) if grain > 0.0 else 1.0


def reach_seconds(horizon_seconds: float) -> float:
    """How far a slope is drawn out, seconds: it loses 3 % a second, for no trend lasts. At most 32 s."""
    return DAMPING_PER_SECOND * (1 - math.pow(DAMPING_PER_SECOND, horizon_seconds)) / (1 - DAMPING_PER_SECOND)


def dispersion_of(estimate: Estimate, objective_seconds: float) -> float:
    """Return the index of dispersion of the group's work in a second, around what the load does now.

    That is the work of a record, where records of equal cost come by chance. They are taken to come so until more than
    a short time of one kind was seen. What records differ by in cost comes on top.

    Args:
        estimate: with the series of work per second.
        objective_seconds: W. What is done within a long one is late only where much comes for long, which single
            seconds do not show: of records that come in turn, some seconds have one and others none.
    """
    series, cost = estimate.series, estimate.cost
    if not series:
        return cost + estimate.dispersion
    line, window, known = _told(series, estimate.grain)
    told = max(0, window - WINDOWS_SECONDS[-1])
    seen = _seen(known[-window:], line, objective_seconds) if told and any(known[-window:]) else cost
    return (seen * told + cost * CHANCE_SECONDS) / (told + CHANCE_SECONDS) + estimate.dispersion


def level_error(estimate: Estimate, ahead: Forecast, objective_seconds: float) -> float:
    """Return the standard error of the level that a forecast begins at, work per second.

    Records that come in turn tell it better than their seconds, which have one or none, let it look.

    Args:
        estimate: as for :func:`dispersion_of`.
        ahead: its forecast.
        objective_seconds: W.
    """
    if ahead.slope or _together(objective_seconds, round(ahead.window_seconds)) == 1:
        return ahead.error  # the end of a line is known worse than a mean
    by_sums = math.sqrt(ahead.level * dispersion_of(estimate, objective_seconds) / ahead.window_seconds)
    return min(ahead.error, by_sums)


def _together(objective_seconds: float, count: int) -> int:
    """Return the number of neighbouring seconds, of so many, that are summed up."""
    return max(1, min(round(SUM_OBJECTIVES * objective_seconds), count // SUMS_MIN))


@lru_cache(maxsize=4)  # one decision asks for it ten times
def _seen(values: tuple[float, ...], line: _Line, objective_seconds: float) -> float:
    """Return the variance of sums of neighbours over their mean, around a line."""
    count = len(values)
    together = _together(objective_seconds, count)
    # Not the line's own deviation: that is never below the noise of the last half minute, which varies by itself.
    off = [value - line.level + line.slope * back for back, value in enumerate(reversed(values))]
    sums = list(itertools.accumulate(off, initial=0.0))
    squares = sum((end - begin) ** 2 for begin, end in zip(sums, sums[together:], strict=False))
    # The line follows the values: its level takes the variance of one sum, its slope that of another.
    known = (count + 1 - together) * (1.0 - (2 if line.slope else 1) * together / count)
    return squares / (together * known * statistics.fmean(values))


def alike_seconds(series: Sequence[float], grain: float = 0.0) -> int:
    """How many of the newest seconds are of one kind: what was before is another load."""
    return _told(tuple(series), grain).window


@lru_cache(maxsize=4)  # the estimate and the forecast of one decision ask the same
def _told(series: tuple[float, ...], grain: float) -> _Told:
    known = _since_idle(series, grain)
    return _Told(*_longest_that_agrees(known, min(grain, max(series))), known)


def _since_idle(series: tuple[float, ...], grain: float) -> tuple[float, ...]:
    """What came after the last idle time, or after the nothing before the load began; all of it while it is idle.

    The record that it begins with is left out: that the load began is all that it tells. Of n records since the first
    one, n - 1 came in the time since then.
    """
    nothing = IDLE_SHARE * statistics.fmean(series[-NEWEST:])
    if series[-1] <= nothing:
        return series
    idle = _idle_seconds(series, nothing)
    begin = run = 0
    for second, value in enumerate(series):
        run = run + 1 if value <= nothing else 0
        if run >= idle or run == second + 1:
            begin = second + 1
    return (max(0.0, series[begin] - grain), *series[begin + 1 :]) if begin else series


def _idle_seconds(series: Sequence[float], nothing: float) -> float:
    """Return for how long nothing must have come to be no chance: few records leave such gaps by themselves."""
    runs = [len(list(run)) for empty, run in itertools.groupby(series, lambda value: value <= nothing) if empty]
    longest = max(runs, default=0)
    empty = (sum(runs) - longest) / (len(series) - longest)
    return max(IDLE_SECONDS, math.log(IDLE_CHANCE) / math.log(empty)) if empty > 0.0 else IDLE_SECONDS


def _longest_that_agrees(series: tuple[float, ...], grain: float) -> tuple[_Line, int]:
    """As much of the past as tells the same as its newest parts alone (Lepski's rule for choosing a bandwidth)."""
    if not any(series):
        return _Line(0.0, 0.0, 0.0, 0.0, 0.0, len(series) - 1), len(series)
    noise = _noise_of(series, grain)
    grain *= 1.0 - _share_hit(series, grain)
    for window in WINDOWS_SECONDS:
        values = series[-window:]
        if len(values) <= NEWEST + 4 or window >= 2 * len(values) or not _agrees(values, noise, grain):
            continue
        line = _believed(values, noise)
        if all(_fits(line, series[-part:], grain) for part in WINDOWS_SECONDS if part < len(values)):
            return line, len(values)
    return _since_jump(series, noise, grain)


def _fits(line: _Line, newest: Sequence[float], grain: float) -> bool:
    """Does a line say what the newest part of its window was on average?"""
    expected = line.level - line.slope * (len(newest) - 1) / 2
    error = math.hypot(line.stddev / math.sqrt(len(newest)), line.error)
    return not _is_off(statistics.fmean(newest) - expected, DISAGREE, error, grain / len(newest))


def _since_jump(series: Sequence[float], noise: float, grain: float) -> tuple[_Line, int]:
    """The mean of the newest seconds that are alike, as noisy as the load before the jump was, in proportion."""
    before = statistics.fmean(series[-BEFORE_SECONDS:-NEWEST] or series)
    # Of next to nothing every share is large, and would hide the jump.
    share = min(noise / before, JUMP_NOISE_MAX) if before > 0 else 0.0
    newest = series[-WINDOWS_SECONDS[-1] :]
    while (count := _after_jump(newest, noise, grain)) < len(newest):
        newest = newest[-count:]
    mean = statistics.fmean(newest)
    stddev = max(noise, share * mean)
    return _Line(mean, 0.0, 0.0, stddev / math.sqrt(len(newest)), stddev, len(newest) - 1), len(newest)


def _after_jump(values: Sequence[float], noise: float, grain: float) -> int:
    """How many of the values come after the one jump that explains them best; all where noise explains them as well."""
    total, size = sum(values), len(values)
    best, chosen, after, skew = 0.0, size, 0.0, _skew(UNLIKE, grain)
    for count in range(1, size):
        after += values[-count]
        risen = after / count - (total - after) / (size - count)
        if risen > 0.0:
            risen = max(0.0, risen - skew / count)
        contrast = abs(risen) / math.sqrt(1 / count + 1 / (size - count))
        if contrast > best:
            best, chosen = contrast, count
    return chosen if best > UNLIKE * noise else size
