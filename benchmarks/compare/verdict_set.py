"""The families that judge. To choose a rule, a constant or a default by what comes of them is a defect.

They have shapes and seeds of their own; constant loads are here too, with other seeds than those for tuning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from benchmarks.compare.families import Family, Shape
from loadtrim.simulate import shares_even

__all__ = ["FAMILIES", "SEEDS"]

SEEDS = range(1000, 1006)
"""Of each family."""


def _constant(random: Random, seconds: int, _: int) -> Shape:
    noise = random.choice((0.0, 0.1))
    return Shape(factors=tuple(1.0 + random.uniform(-noise, noise) for _ in range(seconds)))


def _weekly(random: Random, seconds: int, _: int) -> Shape:
    """Days of two peaks, weekends lower, and the noise of a web site."""
    day, phase = random.uniform(100.0, 300.0), random.random()
    factors = []
    for second in range(seconds):
        at = second / day + phase
        hours = 1.0 + 0.5 * math.sin(2.0 * math.pi * at) + 0.2 * math.sin(4.0 * math.pi * at + 1.0)
        factors.append(hours * (0.6 if int(at) % 7 >= 5 else 1.0) * (1.0 + random.gauss(0.0, 0.03)))
    return Shape(factors=tuple(factors))


def _sawtooth(random: Random, seconds: int, _: int) -> Shape:
    period, low = random.uniform(40.0, 150.0), random.uniform(0.2, 0.6)
    return Shape(factors=tuple(low + 2.0 * (1.0 - low) * (second % period) / period for second in range(seconds)))


def _on_off(random: Random, seconds: int, _: int) -> Shape:
    on, off, rest = random.uniform(10.0, 120.0), random.uniform(10.0, 120.0), random.uniform(0.0, 0.2)
    up = (on + off - rest * off) / on
    return Shape(factors=tuple(up if second % (on + off) < on else rest for second in range(seconds)))


def _flash(random: Random, seconds: int, _: int) -> Shape:
    """A crowd comes within seconds, and goes by halves."""
    height, half = random.uniform(2.0, 8.0), random.uniform(15.0, 60.0)
    at, arrives = random.uniform(0.2, 0.6) * seconds, random.uniform(2.0, 20.0)
    factors = []
    for second in range(seconds):
        came = min(1.0, max(0.0, (second - at) / arrives))
        gone = 2.0 ** (-max(0.0, second - at - arrives) / half)
        factors.append(0.6 + height * 0.6 * came * gone)
    return Shape(factors=tuple(factors))


def _walk(random: Random, seconds: int, _: int) -> Shape:
    """The logarithm walks at random, and is drawn back to the level within minutes."""
    log, factors = 0.0, []
    step, back = random.uniform(0.01, 0.04), random.uniform(60.0, 240.0)
    for _second in range(seconds):
        log += random.gauss(0.0, step) - log / back
        factors.append(math.exp(log))
    return Shape(factors=tuple(factors))


def _hot(random: Random, seconds: int, partitions: int) -> Shape:
    """A part of the load lies on one partition, and every now and then on another."""
    share = random.uniform(0.1, 0.3)
    even, rows = shares_even(partitions), []
    until, hot = 0.0, 0
    for second in range(seconds):
        if second >= until:
            until, hot = second + random.uniform(20.0, 120.0), random.randrange(partitions)
        rest = [(1.0 - share) * each for each in even]
        rest[hot] += share
        rows.append(tuple(rest))
    return Shape(factors=(1.0,) * seconds, shares=tuple(rows))


FAMILIES: Mapping[str, Family] = {
    "constant": _constant,
    "weekly": _weekly,
    "sawtooth": _sawtooth,
    "on-off": _on_off,
    "flash": _flash,
    "walk": _walk,
    "hot": _hot,
}
