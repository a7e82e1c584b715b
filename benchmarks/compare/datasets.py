"""Recorded loads, none of which is part of the project, and what stands in for them where they are not.

They are looked for in ``LOADTRIM_DATA``, else in ``../shared/data`` beside the project. What is played of them follows
from rules that look at no result:

* The papers' 10-minute trace, per second: as it is, in whole records.
* World Cup 98, requests per minute: the day with the most requests, all of it, in 10 minutes.
* Taxi trips in New York, per half hour: the Monday that the papers' experiments begin with and the day after it, in 5
  minutes. They do not tell what the seconds were like, so these get the stand-in's noise.
* Landau'24: the published stream, from its beginning.

World Cup and taxi are scaled so that their busiest minute or half hour takes as many replicas as the stand-in's.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from demo.datasets import LANDAU_NAME, TAXI_NAME, TRACE_NAME, WORLD_CUP_NAME, data_file, not_here, trace_rates
from loadtrim.simulate import Load, parse_generator
from loadtrim.simulate.loads.readers import Reading, read_load

__all__ = ["RecordedRates", "landau_stream", "taxi", "ten_minutes", "world_cup"]

WORLD_CUP_DAY = "1998-06-30"
WORLD_CUP_SECONDS, WORLD_CUP_MOST = 600, 350.0
TAXI_DAYS = ("2015-01-05", "2015-01-06")
TAXI_SECONDS, TAXI_MOST, TAXI_NOISE = 300, 300.0, 0.08
LANDAU_INTERVAL_SECONDS = 30
LANDAU_CAPACITY = 25.0
"""Records/s that 100 % means: C = 5/6 of the 30 that a member does, as in section VI-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRates:
    """Records/s of each second."""

    per_second: tuple[float, ...]
    source: str
    recorded: bool
    """False: a stand-in."""


def ten_minutes() -> RecordedRates:
    """Three humps, each higher than the one before."""
    path = data_file(TRACE_NAME)
    rates = tuple(float(math.ceil(rate)) for rate in trace_rates(path))
    source = _instead_of(TRACE_NAME) if path is None else f"recorded 10-minute trace ({TRACE_NAME})"
    return RecordedRates(per_second=rates, source=source, recorded=path is not None)


def world_cup() -> RecordedRates:
    """A day of matches."""
    path = data_file(WORLD_CUP_NAME)
    if path is None:
        return RecordedRates(per_second=_two_matches(), source=_instead_of(WORLD_CUP_NAME), recorded=False)
    with gzip.open(path, "rt", newline="") as file:
        minutes = [float(row["count"]) for row in csv.DictReader(file) if row["period"].startswith(WORLD_CUP_DAY)]
    source = f"recorded ({WORLD_CUP_NAME}: {WORLD_CUP_DAY} in {WORLD_CUP_SECONDS} s)"
    return RecordedRates(per_second=_sped_up(minutes, WORLD_CUP_SECONDS, WORLD_CUP_MOST), source=source, recorded=True)


def taxi() -> RecordedRates:
    """Two working days."""
    path, draw = data_file(TAXI_NAME), Random("taxi")
    if path is None:
        rates, source = _two_days(), _instead_of(TAXI_NAME)
    else:
        with path.open(newline="") as file:
            halves = [float(row["value"]) for row in csv.DictReader(file) if row["timestamp"].startswith(TAXI_DAYS)]
        rates = _sped_up(halves, TAXI_SECONDS, TAXI_MOST)
        source = f"recorded ({TAXI_NAME}: {' and '.join(TAXI_DAYS)})"
    noisy = tuple(rate * (1.0 + draw.uniform(-TAXI_NOISE, TAXI_NOISE)) for rate in rates)
    return RecordedRates(per_second=noisy, source=f"{source}, noise +-{TAXI_NOISE:.0%}", recorded=path is not None)


def landau_stream(iterations: int) -> tuple[Load, bool]:
    """The beginning of the stream, evenly in the second; and whether it is the published one."""
    path, interval, capacity = data_file(LANDAU_NAME), LANDAU_INTERVAL_SECONDS, LANDAU_CAPACITY
    if path is None:
        text = f"landau:delta=5,iterations={iterations},interval={interval},capacity={capacity:g},seed=3"
        return parse_generator(text, 32), False
    load = read_load(path, Reading(interval=interval, capacity=capacity))
    return load.part(0, iterations * interval), True


def _instead_of(name: str) -> str:
    return f"STAND-IN, for {not_here(name)}"


def _sped_up(values: Sequence[float], seconds: int, most: float) -> tuple[float, ...]:
    """All of a recording in so many seconds: straight lines between its values; the largest becomes ``most``."""
    last, factor = len(values) - 1, most / max(values)
    rates = []
    for second in range(seconds):
        place, part = divmod(second * len(values) / seconds, 1.0)
        low, high = values[int(place)], values[min(int(place) + 1, last)]
        rates.append((low + (high - low) * part) * factor)
    return tuple(rates)


def _two_matches() -> tuple[float, ...]:
    """A quiet site, then two matches: a rise within seconds, a dip at half-time, noise that keeps for a while."""
    draw, noise, rates = Random("world-cup"), 0.0, []
    for second in range(300):
        noise = 0.9 * noise + draw.gauss(0.0, 0.04)
        rate = 70.0 + 20.0 * math.sin(second / 300.0 * math.pi)
        for kick_off, height in ((60, 130.0), (180, 260.0)):
            age = second - kick_off
            if 0 <= age < 90:
                half_time = 0.55 if 40 <= age < 52 else 1.0
                rate += height * (1.0 - math.exp(-age / 4.0)) * half_time
            elif age >= 90:
                rate += height * math.exp(-(age - 90) / 8.0)
        rates.append(max(0.0, rate * (1.0 + noise)))
    return tuple(rates)


def _two_days() -> tuple[float, ...]:
    """Two days of 150 s: little at night, a shoulder in the morning, the peak in the evening."""
    rates = []
    for second in range(TAXI_SECONDS):
        hour = second % 150 / 150.0 * 24.0
        shape = 0.55 * math.exp(-(((hour - 9.0) / 2.2) ** 2)) + math.exp(-(((hour - 19.5) / 3.2) ** 2))
        midday = 0.35 * math.exp(-(((hour - 14.0) / 3.5) ** 2))
        rates.append(30.0 + 260.0 * (shape + midday))
    return tuple(rates)
