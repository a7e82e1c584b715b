"""Loads from generators, written like ``cosine:mean=200,amplitude=100,period=600,seconds=1200``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from loadtrim_agent.common.partition import Partition

from .load import SECONDS_MAX, TOPIC, Load, WrongLoadError, check_known, check_partitions, shares_even

__all__ = ["GENERATORS", "SHARE_GENERATORS", "generator_lines", "parse_generator"]


def _cosine(
    mean: float = 100.0, amplitude: float = 50.0, period: float = 600.0, seconds: float = 1200.0
) -> list[float]:
    """mean + amplitude x cos(2 pi t / period), as in Koper'22"""
    if mean < 0.0 or period <= 0.0:
        raise WrongLoadError(
            f"mean is {mean:g} records/s and period {period:g} s, so that nothing would ever arrive or nobody knows "
            "when; give a mean of 0 or more and a period above 0."
        )
    return [max(0.0, mean + amplitude * math.cos(2.0 * math.pi * second / period)) for second in range(int(seconds))]


def _constant(rate: float = 100.0, seconds: float = 600.0) -> list[float]:
    """the same rate all the time"""
    return [rate] * int(seconds)


def _step(before: float = 50.0, after: float = 150.0, at: float = 60.0, seconds: float = 300.0) -> list[float]:
    """from one rate to another"""
    return [before if second < at else after for second in range(int(seconds))]


def _ramp(begin: float = 0.0, end: float = 200.0, seconds: float = 600.0) -> list[float]:
    """a straight line from one rate to another"""
    last = max(1, int(seconds) - 1)
    return [begin + (end - begin) * second / last for second in range(int(seconds))]


def _spike(
    rate: float = 100.0, height: float = 300.0, at: float = 120.0, width: float = 20.0, seconds: float = 300.0
) -> list[float]:
    """a rate with a rectangular spike on it"""
    return [rate + (height if at <= second < at + width else 0.0) for second in range(int(seconds))]


GENERATORS: dict[str, Callable[..., list[float]]] = {
    "constant": _constant,
    "cosine": _cosine,
    "ramp": _ramp,
    "spike": _spike,
    "step": _step,
}
"""Name -> records/s of each second."""
MODIFIERS = {"noise": 0.0, "seed": 0.0}
"""Taken by every generator that has a rate: the share of it by which a second is off, evenly, up and down; and of which
seed."""
SHARE_GENERATORS = ("drift", "landau")


def generator_lines() -> list[str]:
    """One line for each generator: its parameters with their defaults, and what it is."""
    lines = []
    for name, maker in sorted(GENERATORS.items()):
        parameters = ",".join(f"{key}={value:g}" for key, value in _defaults(maker).items())
        lines.append(f"{name}:{parameters}  {maker.__doc__}")
    lines.append(
        "drift:rate=200,seconds=600,from=1/partitions,to=0.5  the first partition's share goes from one to another"
    )
    lines.append(
        "landau:delta=5,iterations=100,interval=30,capacity=100,seed=0  Landau'24's streams: every partition walks at "
        "random, 0 to 100 % of the capacity (records/s)"
    )
    return lines


def _defaults(maker: Callable[..., object]) -> dict[str, float]:
    return {name: parameter.default for name, parameter in inspect.signature(maker).parameters.items()}


def parse_generator(text: str, partitions: int) -> Load:
    """Make a load from ``name:parameter=number,...``.

    Args:
        text: as written by the user.
        partitions: how many, with equal shares unless the generator says otherwise.

    Raises:
        WrongLoadError: there is no such generator or parameter (the message lists them and the nearest), or no load
            comes of it.
    """
    name, _, rest = text.partition(":")
    check_known("generator", name, [*GENERATORS, *SHARE_GENERATORS])
    check_partitions(partitions)
    given = _numbers(text, rest)
    source = text
    if name == "landau":
        return _landau(given, partitions, source)
    if name == "drift":
        return _drift(given, partitions, source)
    maker = GENERATORS[name]
    allowed = _defaults(maker) | MODIFIERS
    for key in given:
        check_known(f"parameter of {name} called", key, allowed)
    values = allowed | given
    _count("seconds", values["seconds"], least=0, most=SECONDS_MAX)
    rates = _noisy(maker(**{key: value for key, value in given.items() if key not in MODIFIERS}), values)
    notes = []
    if name == "cosine" and abs(values["amplitude"]) > values["mean"]:
        notes.append(
            f"the amplitude of {abs(values['amplitude']):g} is above the mean of {values['mean']:g}: "
            "what would be below 0 is no load, so that more arrives than the mean"
        )
    return replace(_load(rates, [shares_even(partitions)], source), notes=tuple(notes))


def _load(rates: Sequence[float], shares: Sequence[Sequence[float]], source: str) -> Load:
    partitions = tuple(Partition(TOPIC, index) for index in range(len(shares[0])))
    rows = tuple(tuple(row) for row in shares)
    return Load(per_second=tuple(rates), partitions=partitions, shares=rows, source=source)


def _noisy(rates: list[float], values: Mapping[str, float]) -> list[float]:
    share, seed = values["noise"], _count("seed", values["seed"], least=0)
    if not 0.0 <= share <= 1.0:
        raise WrongLoadError(f"noise is {share:g}, not a share from 0 to 1.")
    draw = Random(f"noise:{seed}")
    return [rate * (1.0 + draw.uniform(-share, share)) for rate in rates] if share else rates


def _drift(given: Mapping[str, float], partitions: int, source: str) -> Load:
    allowed = {"rate": 200.0, "seconds": 600.0, "from": 1.0 / partitions, "to": 0.5} | MODIFIERS
    for key in given:
        check_known("parameter of drift called", key, allowed)
    values = allowed | dict(given)
    for key in ("from", "to"):
        if not 0.0 <= values[key] <= 1.0:
            raise WrongLoadError(f"{key} is {values[key]:g}; it must be the first partition's share, from 0 to 1.")
    seconds = _count("seconds", values["seconds"], most=SECONDS_MAX)
    rows: list[tuple[float, ...]] = []
    for second in range(seconds):
        share = values["from"] + (values["to"] - values["from"]) * second / max(1, seconds - 1)
        if partitions == 1:
            rows.append((1.0,))
        else:
            rows.append((share, *((1.0 - share) / (partitions - 1),) * (partitions - 1)))
    return _load(_noisy([values["rate"]] * seconds, values), rows, source)


def _landau(given: Mapping[str, float], partitions: int, source: str) -> Load:
    """Source: Landau'24, section VI-A, and its published generator: integer steps, clamped to 0 .. 100."""
    allowed = {"delta": 5.0, "iterations": 100.0, "interval": 30.0, "capacity": 100.0, "seed": 0.0}
    for key in given:
        check_known("parameter of landau called", key, allowed)
    values = allowed | dict(given)
    delta, seed = _count("delta", values["delta"], least=0), _count("seed", values["seed"], least=0)
    random = Random(f"landau:{seed}")
    speeds = [random.randint(0, 100) for _ in range(partitions)]
    rows = []
    # Each lasts a second at least.
    for _ in range(_count("iterations", values["iterations"], most=SECONDS_MAX)):
        rows.append(speeds)
        speeds = [min(100, max(0, speed + random.randint(-delta, delta))) for speed in speeds]
    length = _count("interval", values["interval"], most=SECONDS_MAX // len(rows))
    rates: list[float] = []
    shares: list[tuple[float, ...]] = []
    for row in rows:
        total = sum(row)
        share = tuple(value / total for value in row) if total > 0 else shares_even(partitions)
        rates += [total / 100.0 * values["capacity"]] * length
        shares += [share] * length
    return replace(_load(rates, shares, source), arrivals="even", keys="fixed")


def _numbers(text: str, rest: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or not math.isfinite(number):
            raise WrongLoadError(
                f"{part!r} in {text!r} is no parameter with a finite number, so no load can be made; "
                "write it like step:before=50,after=150."
            )
        if (key := key.strip()) in numbers:
            raise WrongLoadError(
                f"{key} is there twice in {text!r}, so it is not known which one counts; give it once."
            )
        numbers[key] = number
    return numbers


def _count(name: str, value: float, least: int = 1, most: int | None = None) -> int:
    if not math.isfinite(value) or value < least or value != int(value):
        raise WrongLoadError(f"{name} is {value:g}; it must be a whole number of at least {least}.")
    if most is not None and value > most:
        raise WrongLoadError(
            f"{name} is {value:g}, which makes the load longer than the {SECONDS_MAX} s (31 days) that are played at "
            f"once; give at most {most}."
        )
    return int(value)
