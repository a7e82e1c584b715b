"""The cost of a record, and the machines of members."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from loadtrim_agent.common.checks import is_count, within

from ..loads.load import LoadFileError, WrongLoadError, check_known, digits

__all__ = ["COST_SECONDS_MIN", "FETCH_SECONDS", "Costs", "Machines", "parse_costs"]

COST_SECONDS_MIN = 1e-6
KINDS = ("exponential", "fixed", "lognormal", "measured")
FETCH_SECONDS = 0.003
"""From a record's time stamp until its owner has fetched it, where nothing else is said."""
VARIATION_DEFAULT = 1.0
VARIATION_MAX = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Busy seconds that a record takes on the reference member.

    Raises:
        WrongLoadError: a mean or a sample that is not finite and at least 1e-6, a variation that is not above 0 and at
            most 100, a kind that there is not, measured costs without a sample.
    """

    mean_seconds: float
    kind: str = "fixed"
    """``fixed``, ``exponential``, ``lognormal`` or ``measured``."""
    variation: float = VARIATION_DEFAULT
    """Standard deviation over mean, of ``lognormal``."""
    samples: tuple[float, ...] = ()
    """Of ``measured``: drawn from, each as often as the others."""

    def __post_init__(self) -> None:
        check_known("kind of cost", self.kind, KINDS, means="it is not known what a record takes")
        if self.kind == "measured" and not self.samples:
            raise WrongLoadError("Costs are measured, and there is no sample to draw them from; give at least one.")
        for cost in (self.mean_seconds, *self.samples):
            _check_cost(cost)
        if not 0.0 < self.variation <= VARIATION_MAX:
            raise WrongLoadError(
                f"The costs' standard deviation over their mean is {self.variation:g}; it must be a number above 0, at "
                f"most {VARIATION_MAX:g} (costs that are all alike are written 5ms)."
            )

    def drawer(self, random: Random) -> Callable[[], float]:
        """Return what gives the next record's cost."""
        mean = self.mean_seconds
        if self.kind == "exponential":
            return lambda: max(COST_SECONDS_MIN, random.expovariate(1.0 / mean))
        if self.kind == "lognormal":
            sigma = math.sqrt(math.log1p(self.variation * self.variation))
            mu = math.log(mean) - sigma * sigma / 2.0
            return lambda: max(COST_SECONDS_MIN, random.lognormvariate(mu, sigma))
        if self.kind == "measured":
            return lambda: random.choice(self.samples)
        return lambda: mean

    def __str__(self) -> str:
        text = f"{self.mean_seconds * 1e3:g} ms a record"
        spread = f", standard deviation {self.variation:g} times that" if self.kind == "lognormal" else ""
        return text if self.kind == "fixed" else f"{text} ({self.kind}{spread})"


def parse_costs(text: str) -> Costs:
    """Read ``5.9ms``, ``0.0059``, ``exponential:5ms``, ``lognormal:5ms,0.8`` or ``measured:FILE``.

    The file of ``measured`` has one cost per line, in seconds.

    Raises:
        WrongLoadError: it is none of these.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Costs(mean_seconds=_seconds(text, text))
    if kind == "measured":
        samples = _samples(Path(rest))
        return Costs(mean_seconds=sum(samples) / len(samples), kind=kind, samples=samples)
    mean, comma, variation = rest.partition(",")
    if comma and kind != "lognormal":
        raise WrongLoadError(f"{text!r} has a standard deviation, which only lognormal takes; leave {variation!r} out.")
    spread = _number(variation, text) if comma else VARIATION_DEFAULT
    return Costs(mean_seconds=_seconds(mean, text), kind=kind, variation=spread)


def _check_cost(seconds: float, place: str = "") -> None:
    if not within(seconds, COST_SECONDS_MIN):
        raise WrongLoadError(
            f"{place}A record's cost must be finite and at least {COST_SECONDS_MIN:g} s, else a member could do any "
            f"number of them; it is {digits(seconds)}."
        )


def _seconds(value: str, text: str) -> float:
    number, factor = (value[:-2], 1e-3) if value.endswith("ms") else (value.removesuffix("s"), 1.0)
    return _number(number, text) * factor


def _number(value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise WrongLoadError(
            f"{text!r} is no cost of a record; write 5ms, exponential:5ms, lognormal:5ms,0.8 or measured:FILE."
        ) from None


def _samples(path: Path) -> tuple[float, ...]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFileError(f"The measured costs in {path} cannot be read ({error}); name another file.") from error
    samples = [_sample(f"{path}, line {number}: ", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not samples:
        raise LoadFileError(f"{path} holds no cost; write one per line, in seconds.")
    return tuple(samples)


def _sample(place: str, line: str) -> float:
    try:
        seconds = float(line)
    except ValueError:
        raise LoadFileError(f"{place}{line!r} is no number of seconds; write one cost per line.") from None
    _check_cost(seconds, place)
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of members: the k-th that is started gets the k-th speed, over and over.

    Raises:
        WrongLoadError: a speed or a concurrency that gives no capacity, a fetch that takes no time that there is.
    """

    speeds: Sequence[float] = (1.0,)
    """Times as fast as the reference member."""
    concurrency: int = 1
    """Partitions that a member works on at once."""
    fetch_seconds: float = FETCH_SECONDS
    """From a record's time stamp until its owner has it: what the producer, the broker and the fetch take. The mean of
    ``arrival_delay`` in the members' reports, of a group that is there."""

    def __post_init__(self) -> None:
        if not self.speeds or any(not 0.0 < speed < math.inf for speed in self.speeds):
            raise WrongLoadError(
                f"A member's speed must be a finite number above 0, else it has no capacity; given: "
                f"{', '.join(map(str, self.speeds)) or 'none'}."
            )
        if not is_count(self.concurrency):
            raise WrongLoadError(
                f"The concurrency is {self.concurrency!r}, and a member that works on no partition at once, or on half "
                "of one, has no capacity; give a whole number of at least 1."
            )
        if not within(self.fetch_seconds, 0.0):
            raise WrongLoadError(
                f"A record is fetched {digits(self.fetch_seconds)} s after its time stamp, which is no time; give a "
                "finite number of 0 or more."
            )

    def speed(self, number: int) -> float:
        """Of the ``number``-th member that is started, from 0."""
        return self.speeds[number % len(self.speeds)]
