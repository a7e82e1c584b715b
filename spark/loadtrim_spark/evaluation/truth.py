"""Weeks of load whose truth is known: season, growth, holidays, outages, events, blind spells and noise. No Spark.

Every figure of a scenario, its seed among them, was written down before any estimator was judged by it, and all that is
random comes from that seed: the same scenario is the same load, minute by minute, wherever it is made.

What a record's rate is made of, in this order: the busy times of the day (at weekends and on holidays a share of them),
times growth, times the day's own level, times an event, times the minute's noise; nothing during an outage.
"""

from __future__ import annotations

import datetime
import itertools
import math
import zoneinfo
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from loadtrim.simulate import Load
from loadtrim.simulate.loads.load import poisson
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import DEFAULTS

__all__ = ["SCENARIOS", "Busy", "Spell", "Truth"]

MINUTE_SECONDS = 60
DAY_SECONDS = 86_400
WEEK_SECONDS = 7 * DAY_SECONDS
SATURDAY, SUNDAY = 5, 6
NORMAL_ABOVE = 50.0
"""Minutes with more records are drawn from the normal approximation: there are weeks of them."""
SAMPLES = (7.5, 22.5, 37.5, 52.5)
"""Seconds of a minute whose mean is the minute's rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A busy time of each day, by local time.

    Attributes:
        begin_minute: of the day, when the rise begins.
        end_minute: of the day, when the fall begins.
        height: records/s on top of the rest.
        ramp_seconds: from the beginning of the rise until it is complete; of the fall as well.
    """

    begin_minute: float
    end_minute: float
    height: float
    ramp_seconds: float

    def rate(self, second_of_day: float) -> float:
        """Records/s that it adds."""
        risen = (second_of_day - self.begin_minute * MINUTE_SECONDS) / self.ramp_seconds
        fallen = (second_of_day - self.end_minute * MINUTE_SECONDS) / self.ramp_seconds
        return self.height * (min(1.0, max(0.0, risen)) - min(1.0, max(0.0, fallen)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """Something that happens once: hours since the first Monday's midnight; of an event, how many times the load."""

    begin_hour: float
    end_hour: float
    factor: float = 0.0

    def holds(self, hour: float) -> bool:
        """Is it on?"""
        return self.begin_hour <= hour < self.end_hour


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A load over some weeks, and everything about it.

    Attributes:
        seed: of all that is random.
        end: when it ends, seconds since the epoch; a Monday's midnight in ``zone``.
        weeks: how many there are before that.
        zone: whose days and weeks the load follows.
        night: records/s that are always there.
        busy: what comes on top, each day.
        weekend: the share of it that comes on Saturdays, Sundays and holidays.
        growth: per week.
        noise: standard deviation of the logarithm of a minute's rate.
        noise_minutes: how long noise remembers itself.
        day_noise: standard deviation of the logarithm of a day's level.
        jitter_seconds: standard deviation of the moment at which each busy time begins and ends.
        holidays: days since the beginning that are like Sundays.
        outages: nothing arrives.
        events: once so many times as much.
        blind: nobody reports; what arrives is not known.
        shares: of the partitions.
        cost_seconds: of a record.
    """

    seed: int
    end: int
    weeks: int
    zone: str = DEFAULTS.time_zone
    night: float = 20.0
    busy: tuple[Busy, ...] = ()
    weekend: float = 0.3
    growth: float = 0.0
    noise: float = 0.0
    noise_minutes: float = 10.0
    day_noise: float = 0.0
    jitter_seconds: float = 0.0
    holidays: frozenset[int] = frozenset()
    outages: tuple[Spell, ...] = ()
    events: tuple[Spell, ...] = ()
    blind: tuple[Spell, ...] = ()
    shares: tuple[float, ...] = field(default=(1 / 12,) * 12)
    cost_seconds: float = 0.02

    @cached_property
    def begin(self) -> int:
        """Midnight of the first Monday, by local time."""
        end = datetime.datetime.fromtimestamp(self.end, zoneinfo.ZoneInfo(self.zone))
        return int((end - datetime.timedelta(weeks=self.weeks)).timestamp())

    def minutes(self) -> list[float]:
        """Records/s of each minute, noise and all."""
        count = (self.end - self.begin) // MINUTE_SECONDS
        return [
            sum(self._expected(minute, offset) for offset in SAMPLES) / len(SAMPLES) * noise
            for minute, noise in zip(range(count), self._noises, strict=True)
        ]

    def seconds(self, begin: int, count: int) -> list[float]:
        """Records/s of each second from ``begin`` (seconds since the epoch) on, the same noise as in the minutes."""
        first = begin - self.begin
        return [
            self._expected(second // MINUTE_SECONDS, second % MINUTE_SECONDS + 0.5)
            * self._noises[second // MINUTE_SECONDS]
            for second in range(first, first + count)
        ]

    def watched(self, minute: int) -> bool:
        """Does anybody report in this minute since the beginning?"""
        return not any(spell.holds(minute / 60) for spell in self.blind)

    def counts(self) -> list[int]:
        """Records that arrived in each minute: by chance around what was to be expected of it."""
        random = Random(f"{self.seed}:counts")
        return [poisson(rate * MINUTE_SECONDS, random, NORMAL_ABOVE) for rate in self.minutes()]

    def load(self, begin: int, seconds: int) -> Load:
        """A part of it, to be played by the simulator."""
        return Load(
            per_second=tuple(self.seconds(begin, seconds)),
            partitions=tuple(Partition("load", index) for index in range(len(self.shares))),
            shares=(self.shares,),
            arrivals="poisson",
            source=f"generated, {datetime.datetime.fromtimestamp(begin, datetime.UTC):%Y-%m-%d %H:%M} UTC",
            cost_seconds=self.cost_seconds,
        )

    def until(self, weeks: int) -> Truth:
        """Its first weeks; what is random in them is the same."""
        end = datetime.datetime.fromtimestamp(self.begin, zoneinfo.ZoneInfo(self.zone))
        return replace(self, weeks=weeks, end=int((end + datetime.timedelta(weeks=weeks)).timestamp()))

    # -- what it is made of

    def _expected(self, minute: int, offset: float) -> float:
        """Records/s at an offset into a minute, but for the minute's noise."""
        hour = minute / 60
        if any(outage.holds(hour) for outage in self.outages):
            return 0.0
        day, second_of_day = self._local[minute]
        season: float = self.night + self._share(day) * sum(
            busy.rate(second_of_day + offset - late) for busy, late in zip(self.busy, self._lates[day], strict=True)
        )
        season *= math.pow(1.0 + self.growth, hour / 168) * self._levels[day]
        for event in self.events:
            if event.holds(hour):
                season *= event.factor
        return season

    def _share(self, day: int) -> float:
        return self.weekend if day % 7 in (SATURDAY, SUNDAY) or day in self.holidays else 1.0

    @cached_property
    def _local(self) -> list[tuple[int, int]]:
        """(day since the beginning, second of that day) by local time, of each minute's beginning."""
        zone = zoneinfo.ZoneInfo(self.zone)
        first = datetime.datetime.fromtimestamp(self.begin, zone).toordinal()
        # A change of clocks falls on a whole hour.
        hours = (datetime.datetime.fromtimestamp(start, zone) for start in range(self.begin, self.end, 3600))
        return [
            (hour.toordinal() - first, hour.hour * 3600 + minute * MINUTE_SECONDS)
            for hour, minute in itertools.product(hours, range(60))
        ]

    @cached_property
    def _levels(self) -> list[float]:
        random = Random(f"{self.seed}:levels")
        return [math.exp(random.gauss(0.0, self.day_noise)) for _ in range(self.weeks * 7)]

    @cached_property
    def _lates(self) -> list[tuple[float, ...]]:
        """By how many seconds each busy time of each day is late."""
        random = Random(f"{self.seed}:lates")
        return [tuple(random.gauss(0.0, self.jitter_seconds) for _ in self.busy) for _ in range(self.weeks * 7)]

    @cached_property
    def _noises(self) -> list[float]:
        random = Random(f"{self.seed}:noise")
        keep = math.exp(-1.0 / self.noise_minutes)
        fresh = self.noise * math.sqrt(1.0 - keep * keep)
        value, noises = random.gauss(0.0, self.noise), []
        for _ in range((self.end - self.begin) // MINUTE_SECONDS):
            noises.append(math.exp(value - self.noise * self.noise / 2))
            value = keep * value + random.gauss(0.0, fresh)
        return noises


END = 1_795_392_000
"""Monday, 2026-11-23 00:00 UTC."""


def _eventful(truth: Truth) -> Truth:
    """With what befalls every group, all in the weeks to learn from: a holiday on a Friday, six hours of outage on a
    Wednesday morning, three times the load on a Tuesday from 10 to 12, and a Saturday that nobody watched."""
    return replace(
        truth,
        holidays=frozenset({32}),
        outages=(Spell(begin_hour=21 * 24 + 48 + 6, end_hour=21 * 24 + 48 + 12),),
        events=(Spell(begin_hour=14 * 24 + 24 + 10, end_hour=14 * 24 + 24 + 12, factor=3.0),),
        blind=(Spell(begin_hour=28 * 24 + 120, end_hour=28 * 24 + 144),),
    )


def _skewed(partitions: int) -> tuple[float, ...]:
    """The first partition gets twice as much as the last, evenly in between."""
    weights = [2.0 - index / (partitions - 1) for index in range(partitions)]
    return tuple(weight / sum(weights) for weight in weights)


SCENARIOS: dict[str, Truth] = {
    # Rises by the clock (an opening, a batch, a broadcast): from 1 replica's worth to 5 within 30 s to 2 minutes.
    "steep": _eventful(Truth(
        seed=1, end=END, weeks=8, night=20.0,
        busy=(
            Busy(begin_minute=8 * 60, end_minute=12 * 60, height=150.0, ramp_seconds=120.0),
            Busy(begin_minute=13 * 60, end_minute=17 * 60 + 30, height=200.0, ramp_seconds=60.0),
            Busy(begin_minute=20 * 60, end_minute=21 * 60, height=120.0, ramp_seconds=30.0),
        ),
        weekend=0.3, growth=0.02, noise=0.05, day_noise=0.03, jitter_seconds=15.0, shares=_skewed(12),
    )),
    # People's days: an hour to come, an hour to go, never at the same moment.
    "office": _eventful(Truth(
        seed=2, end=END, weeks=8, night=15.0,
        busy=(
            Busy(begin_minute=7 * 60 + 20, end_minute=11 * 60 + 40, height=120.0, ramp_seconds=3600.0),
            Busy(begin_minute=12 * 60 + 50, end_minute=16 * 60 + 30, height=140.0, ramp_seconds=2700.0),
        ),
        weekend=0.1, growth=-0.01, noise=0.08, noise_minutes=5.0, day_noise=0.06, jitter_seconds=300.0,
        shares=_skewed(12),
    )),
    # Clocks that change within the weeks, and much noise.
    "berlin": _eventful(Truth(
        seed=3, end=END - 3600, weeks=8, zone="Europe/Berlin", night=30.0,
        busy=(
            Busy(begin_minute=6 * 60, end_minute=9 * 60, height=160.0, ramp_seconds=600.0),
            Busy(begin_minute=16 * 60, end_minute=22 * 60, height=180.0, ramp_seconds=900.0),
        ),
        weekend=0.6, growth=0.05, noise=0.12, noise_minutes=20.0, day_noise=0.05, jitter_seconds=60.0,
        shares=_skewed(12),
    )),
}  # fmt: skip
"""By name. The first six weeks are to learn from, the last two to judge by."""
