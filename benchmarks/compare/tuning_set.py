"""The families that constants and rules may be chosen by. Nothing is judged by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random

from benchmarks.compare.families import Family, Shape

__all__ = ["FAMILIES", "SEEDS"]

SEEDS = range(8)
"""Of each family."""


def _constant(random: Random, seconds: int, _: int) -> Shape:
    noise = random.choice((0.0, 0.05, 0.1))
    return Shape(factors=tuple(1.0 + random.uniform(-noise, noise) for _ in range(seconds)))


def _steps(random: Random, seconds: int, _: int) -> Shape:
    factors: list[float] = []
    while len(factors) < seconds:
        factors += [random.uniform(0.3, 2.0)] * round(random.uniform(30.0, 120.0))
    return Shape(factors=tuple(factors[:seconds]))


def _ramp(random: Random, seconds: int, _: int) -> Shape:
    begin, end = random.uniform(0.2, 1.0), random.uniform(1.0, 2.0)
    if random.random() < 0.3:
        begin, end = end, begin
    return Shape(factors=tuple(begin + (end - begin) * second / seconds for second in range(seconds)))


def _cosine(random: Random, seconds: int, _: int) -> Shape:
    period, amplitude = random.uniform(60.0, 400.0), random.uniform(0.2, 0.8)
    phase = random.uniform(0.0, 2.0 * math.pi)
    return Shape(
        factors=tuple(1.0 + amplitude * math.cos(2.0 * math.pi * second / period + phase) for second in range(seconds))
    )


def _rises(random: Random, seconds: int, _: int) -> Shape:
    """A trapezium now and then: up within seconds or a minute, some time up there, down again."""
    factors = [0.6] * seconds
    at = random.uniform(20.0, 60.0)
    while at < seconds:
        up, wide, height = random.uniform(5.0, 60.0), random.uniform(10.0, 90.0), random.uniform(0.4, 1.6)
        for second in range(int(at), min(seconds, int(at + 2 * up + wide))):
            part = min(1.0, (second - at) / up, (at + 2 * up + wide - second) / up)
            factors[second] += height * max(0.0, part)
        at += 2 * up + wide + random.uniform(20.0, 90.0)
    return Shape(factors=tuple(factors))


FAMILIES: Mapping[str, Family] = {
    "constant": _constant,
    "steps": _steps,
    "ramp": _ramp,
    "cosine": _cosine,
    "rises": _rises,
}
