"""The papers' loads: recorded ones where they are, stand-ins where they are not, each with what it is in words."""

from __future__ import annotations

import csv
import math
from random import Random

from demo.datasets import TAXI_NAME, TRACE_NAME, data_file, not_here, trace_rates
from loadtrim.simulate import Load, shares_even, shares_skewed
from loadtrim.simulate.loads.load import TOPIC
from loadtrim_agent.common.partition import Partition

__all__ = ["by_partition", "loaded", "taxi", "three_humps"]

TAXI_SECONDS, TAXI_RECORDS, TAXI_SPEED = 7200, 1_350_000, 40
TAXI_BEGIN = "2015-01-05"
"""A Monday of January: the nearest there is to January 2013."""
TAXI_STEP_SECONDS = 1800


def three_humps() -> tuple[list[float], str]:
    """Records/s of the 10-minute trace: whole numbers, rounded up as the papers' producers do."""
    path = data_file(TRACE_NAME)
    rates: list[float] = [math.ceil(rate) for rate in trace_rates(path)]
    if path is None:
        return rates, f"STAND-IN: three humps made in the shape of the 10-minute trace, for {not_here(TRACE_NAME)}"
    return rates, f"the recorded 10-minute trace ({TRACE_NAME})"


def taxi() -> tuple[list[float], str]:
    """Two hours in the shape of NYC taxi trips at 40 times their speed, 1.35 M records. Always a stand-in."""
    path = data_file(TAXI_NAME)
    count = TAXI_SECONDS * TAXI_SPEED // TAXI_STEP_SECONDS + 2
    if path is not None:
        with path.open(newline="") as file:
            rows = [(row["timestamp"], float(row["value"])) for row in csv.DictReader(file)]
        first = next(at for at, (stamp, _) in enumerate(rows) if stamp.startswith(TAXI_BEGIN))
        values = [value for _, value in rows[first : first + count]]
        origin = f"80 hours of NYC taxi passengers from {TAXI_BEGIN} on, per half hour ({TAXI_NAME})"
    else:
        days = [math.pi * 2.0 * (at / 48.0 - 0.8) for at in range(count)]
        values = [1.0 + 0.6 * math.cos(day) + 0.15 * math.cos(2.0 * day) for day in days]
        origin = f"days made of two cosines, for {not_here(TAXI_NAME)}"
    noise = Random("taxi")
    rates = []
    for second in range(TAXI_SECONDS):
        place, part = divmod(second * TAXI_SPEED / TAXI_STEP_SECONDS, 1.0)
        low, high = values[int(place)], values[int(place) + 1]
        rates.append(max(0.0, (low + (high - low) * part) * (1.0 + 0.05 * noise.gauss(0.0, 1.0))))
    factor = TAXI_RECORDS / sum(rates)
    return (
        [math.ceil(rate * factor) for rate in rates],
        f"STAND-IN for the trips of January 2013, which are not here: {origin}, straight lines between, 5 % noise",
    )


def loaded(rates: list[float], *, partitions: int = 5, skewed: bool = False, arrivals: str = "burst") -> Load:
    """A total dealt out: by chance evenly, or skewed in exact shares (half of it on 2 of the partitions)."""
    return Load(
        per_second=tuple(rates),
        partitions=tuple(Partition(TOPIC, at) for at in range(partitions)),
        shares=(shares_skewed(partitions) if skewed else shares_even(partitions),),
        arrivals=arrivals,
        keys="fixed" if skewed else "random",
    )


def by_partition(rows: list[list[float]], arrivals: str = "burst") -> Load:
    """Records/s of every partition in every second, in exact shares."""
    totals = [sum(row) for row in rows]
    return Load(
        per_second=tuple(totals),
        partitions=tuple(Partition(TOPIC, at) for at in range(len(rows[0]))),
        shares=tuple(tuple(rate / total for rate in row) for row, total in zip(rows, totals, strict=True)),
        arrivals=arrivals,
        keys="fixed",
    )
