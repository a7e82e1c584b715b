"""A load: the number of records in each second, and how they fall on partitions and on the moments of the second.

A load is made by a generator (:mod:`.generators`) or read from a file (:mod:`.readers`). Both end in one type, so
that everything else (scaling it up, cutting a part out, dealing it out over partitions) is said once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from loadtrim_agent.common.checks import within
from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.naming import nearest
from loadtrim_agent.common.partition import Partition

__all__ = [
    "ARRIVALS",
    "PARTITIONS_MAX",
    "RATE_MAX",
    "SECONDS_MAX",
    "TOPIC",
    "Batch",
    "Load",
    "LoadFileError",
    "Moment",
    "ReadAs",
    "WrongLoadError",
    "check_known",
    "check_partitions",
    "counted",
    "digits",
    "part_end",
    "poisson",
    "shares_even",
    "shares_skewed",
]

TOPIC = "load"
ARRIVALS = ("burst", "even", "poisson", "random", "recorded")
SECONDS_MAX = 31 * 86_400
RATE_MAX = 1e7
"""Records/s: more than this is a mistake in the units."""
PARTITIONS_MAX = 10_000
"""Of a load: the most that planning is measured with. A second of the load takes the longer the more there are."""


class WrongLoadError(LoadtrimError, ValueError):
    """A load that nothing can be simulated with. The command line prints it and ends with exit code 2."""


class LoadFileError(WrongLoadError):
    """A file that is no load, with the place in it."""


def digits(value: object) -> str:
    """A number with as many digits as it takes to see what is wrong with it, for messages; anything else as it is."""
    return f"{value:,}".removesuffix(".0") if isinstance(value, int | float) else repr(value)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that arrive at one moment."""

    offset_seconds: float
    """From the beginning of its second, 0 .. 1."""
    counts: tuple[tuple[int, int], ...]
    """(index of the partition, records), sorted."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The records that a recording has at one moment.

    Raises:
        WrongLoadError: an offset outside the second, records that are no number of 0 or more.
    """

    offset_seconds: float
    """From the beginning of its second, 0 to below 1."""
    records: float
    """Fractions add up over time."""
    partition: int | None = None
    """The index of its partition; None: it falls on one as ``keys`` say."""

    def __post_init__(self) -> None:
        if not (within(self.offset_seconds, 0.0, 1.0) and self.offset_seconds < 1.0):
            raise WrongLoadError(
                f"A moment lies {digits(self.offset_seconds)} s behind the beginning of its second, so it is in none "
                "or in another; give 0 to below 1."
            )
        if not within(self.records, 0.0):
            raise WrongLoadError(
                f"{digits(self.records)} records came at a moment, so it is not known what arrives; give a finite "
                "number of 0 or more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAs:
    """The way that a table was read, to be told to its owner."""

    rows: int
    step_seconds: float
    """The usual distance of rows."""
    regular: bool
    """Are most rows that far apart?"""
    column: str
    """Name of the column that tells what arrived, as it is written."""
    quantity: str
    """``rate``, ``count`` or ``counter``."""
    why: str
    """The reason for taking the numbers so, in words."""
    begins_at: float | None
    """Time of the first row, seconds since the epoch; None: the file's times are its own."""
    ends_at: float | None
    """Time of the last row, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load, second by second.

    Raises:
        WrongLoadError: a rate that is negative or no finite number, no second, no partition, shares that do not fit,
            moments that do not add up to their second, are not in order of time, or are of a partition that is not
            there; arrivals as recorded where no moments were.
    """

    per_second: tuple[float, ...]
    """Records of the whole group in each second, >= 0; fractions add up over time."""
    partitions: tuple[Partition, ...]
    """Sorted."""
    shares: tuple[tuple[float, ...], ...]
    """Each partition's share of the load: one row for all of it, or one for each second. A row sums to 1."""
    arrivals: str = "burst"
    """``burst``: all of a second together, at its beginning (what the papers' producers do); ``even``: the same time
    between any two; ``random``: the number of the second, at random moments of it; ``poisson``: that number is random
    too; ``recorded``: at ``moments``."""
    moments: tuple[tuple[Moment, ...], ...] = ()
    """Of each second, in order of time, with as many records as ``per_second`` has; empty: they are not known."""
    keys: str = "random"
    """``random``: each record falls on a partition by chance; ``fixed``: each partition gets its share exactly."""
    source: str = ""
    """Where it comes from, in words."""
    notes: tuple[str, ...] = ()
    """Notes on what was found in the file and how it was read: gaps, disorder."""
    cost_seconds: float | None = None
    """The cost of a record, where the source tells it."""
    read_as: ReadAs | None = None
    """The way that a table was read; None: it is none."""
    partitions_assumed: bool = False
    """True: neither the source nor the caller told how many partitions there are."""

    def __post_init__(self) -> None:
        if not self.per_second:
            raise WrongLoadError("The load has no second, so there is nothing to play; give one with at least one.")
        if not self.partitions:
            raise WrongLoadError("The load has no partition, so there is nowhere for a record to go; give at least 1.")
        if len(self.per_second) > SECONDS_MAX:
            raise WrongLoadError(
                f"The load is {len(self.per_second)} s long, more than the {SECONDS_MAX} s (31 days) that are played "
                "at once; make it shorter."
            )
        check_partitions(len(self.partitions))
        if len(set(self.partitions)) < len(self.partitions):
            raise WrongLoadError("A partition is there twice, so it is not known which one is meant; give each once.")
        for second, rate in enumerate(self.per_second):
            if not within(rate, 0.0, RATE_MAX):
                raise WrongLoadError(
                    f"The load at second {second} is {digits(rate)} records/s, which is negative, not a number or more "
                    f"than {RATE_MAX:,.0f}, so it is not known what arrives; correct the input."
                )
        if len(self.shares) not in (1, len(self.per_second)):
            raise WrongLoadError(
                f"There are {len(self.shares)} rows of shares for {len(self.per_second)} seconds, so it is not known "
                "where a second's records go; give one row for all of the load, or one for each second."
            )
        for row in self.shares:
            _check_shares(row, len(self.partitions))
        for name, value, allowed in (
            ("arrivals", self.arrivals, ARRIVALS),
            ("keys", self.keys, ("random", "fixed")),
        ):
            if value not in allowed:
                raise WrongLoadError(f"{name} is {value!r}; it can be {' or '.join(allowed)}.")
        self._check_moments()

    def _check_moments(self) -> None:
        if len(self.moments) not in (0, len(self.per_second)):
            raise WrongLoadError(
                f"There are {len(self.moments)} rows of moments for {len(self.per_second)} seconds, so it is not known "
                "when a second's records come; give one row for each second, or none at all."
            )
        told = {moment.partition for second in self.moments for moment in second if moment.partition is not None}
        if lost := told.difference(range(len(self.partitions))):
            raise WrongLoadError(
                f"A moment is of the partition with the index {min(lost)}, and there are {len(self.partitions)}, so "
                f"its records have nowhere to go; give 0 to {len(self.partitions) - 1}, or None."
            )
        for second, moments in enumerate(self.moments):
            came = math.fsum(moment.records for moment in moments)
            if not math.isclose(came, self.per_second[second], rel_tol=1e-6, abs_tol=1e-6):
                raise WrongLoadError(
                    f"The moments of second {second} have {digits(came)} records and the second itself "
                    f"{digits(self.per_second[second])}, so it is not known what arrives; give moments that add up to "
                    "their second."
                )
            offsets = [moment.offset_seconds for moment in moments]
            if offsets != sorted(offsets):
                raise WrongLoadError(
                    f"The moments of second {second} are not in order of time, and records arrive in it; sort them."
                )
        if self.arrivals == "recorded" and not self.moments:
            raise WrongLoadError(
                "Records cannot arrive as recorded: this load does not tell at which moments of a second they came; "
                "choose burst, even, random or poisson."
            )

    @property
    def seconds(self) -> int:
        return len(self.per_second)

    @property
    def records(self) -> float:
        """Expected number."""
        return sum(self.per_second)

    def row(self, second: int) -> tuple[float, ...]:
        """The partitions' shares in a second."""
        return self.shares[0] if len(self.shares) == 1 else self.shares[second]

    def rates(self, second: int) -> dict[Partition, float]:
        """Expected records/s of each partition in a second."""
        rate = self.per_second[second]
        return {p: rate * share for p, share in zip(self.partitions, self.row(second), strict=True)}

    def scaled(self, factor: float) -> Load:
        """``factor`` times the load.

        Raises:
            WrongLoadError: the factor is not a finite number above 0.
        """
        if not 0.0 < factor < math.inf:
            raise WrongLoadError(f"The load cannot be scaled by {factor}; give a finite number above 0.")
        moments = tuple(
            tuple(replace(moment, records=moment.records * factor) for moment in second) for second in self.moments
        )
        return replace(self, per_second=tuple(rate * factor for rate in self.per_second), moments=moments)

    def part(self, begin: int, seconds: int | None) -> Load:
        """A part of it.

        Raises:
            WrongLoadError: it has no such part.
        """
        end = part_end(self.seconds, begin, seconds)
        shares = self.shares if len(self.shares) == 1 else self.shares[begin:end]
        return replace(self, per_second=self.per_second[begin:end], shares=shares, moments=self.moments[begin:end])

    def dealt(self, partitions: int, shares: Sequence[float]) -> Load:
        """The same total on other partitions. Which record was whose is lost with the old ones, so each falls on one by
        chance."""
        named = tuple(Partition(TOPIC, index) for index in range(partitions))
        moments = tuple(tuple(replace(moment, partition=None) for moment in second) for second in self.moments)
        return replace(self, partitions=named, shares=(tuple(shares),), moments=moments, keys="random")

    def batches(self, random: Random) -> Iterator[tuple[Batch, ...]]:
        """Yield what arrives in each second, in order of time. Deterministic for one state of ``random``."""
        if self.arrivals == "recorded":
            yield from self._recorded(random)
            return
        carry = [0.0] * len(self.partitions)
        rest = 0.0
        for second, rate in enumerate(self.per_second):
            rest += rate
            count = math.floor(rest + 1e-9)
            rest -= count
            if self.arrivals == "poisson":
                count = poisson(rate, random)
            yield self._placed(self._chosen(count, self.row(second), carry, random), random)

    def _recorded(self, random: Random) -> Iterator[tuple[Batch, ...]]:
        """Each moment's records together."""
        carry = [0.0] * len(self.partitions)
        owed: dict[int | None, float] = {}
        for second, moments in enumerate(self.moments):
            batches = []
            for moment in moments:
                to = moment.partition if self.keys == "fixed" else None
                rest = owed.get(to, 0.0) + moment.records
                count = math.floor(rest + 1e-9)
                owed[to] = rest - count
                if count and to is not None:
                    batches.append(Batch(moment.offset_seconds, ((to, count),)))
                elif count:
                    chosen = self._chosen(count, self.row(second), carry, random)
                    batches.append(_together(moment.offset_seconds, chosen))
            yield tuple(batches)

    def _chosen(self, count: int, row: Sequence[float], carry: list[float], random: Random) -> list[int]:
        """The partition that each of so many records falls on; ``carry``: what each is owed."""
        if self.keys == "fixed":
            return _spread_evenly(_divided(count, row, carry))
        return random.choices(range(len(row)), cum_weights=list(accumulate(row)), k=count)

    def _placed(self, chosen: Sequence[int], random: Random) -> tuple[Batch, ...]:
        """Records in the order of a second on its moments."""
        if not chosen:
            return ()
        if self.arrivals == "burst":
            return (_together(0.0, chosen),)
        number = len(chosen)
        if self.arrivals == "even":
            moments = [place / number for place in range(number)]
        else:
            moments = sorted(random.random() for _ in range(number))
        return tuple(Batch(moment, ((index, 1),)) for moment, index in zip(moments, chosen, strict=True))


def poisson(mean: float, random: Random, normal_above: float = 500.0) -> int:
    """A Poisson number; the normal approximation above a mean, at 500 off by less than a thousandth. O(mean)."""
    if mean > normal_above:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    count, product, limit = 0, random.random(), math.exp(-mean)
    while product > limit:
        count += 1
        product *= random.random()
    return count


def _together(offset_seconds: float, chosen: Sequence[int]) -> Batch:
    return Batch(offset_seconds, tuple(sorted(Counter(chosen).items())))


def _divided(count: int, row: Sequence[float], carry: list[float]) -> list[int]:
    """Whole records for each partition, as near to its share so far as they can be; ``carry``: what it is owed."""
    owed = [rest + share * count for rest, share in zip(carry, row, strict=True)]
    counts = [max(0, math.floor(amount + 1e-9)) for amount in owed]
    order = sorted(range(len(row)), key=lambda index: (counts[index] - owed[index], index))
    left = count - sum(counts)
    for index in order[:left] if left >= 0 else order[left:]:
        counts[index] += 1 if left > 0 else -1
    carry[:] = [amount - whole for amount, whole in zip(owed, counts, strict=True)]
    return counts


def _spread_evenly(counts: Sequence[int]) -> list[int]:
    """Every partition's records at equal distances in the second."""
    places = [((k + 0.5) / count, index) for index, count in enumerate(counts) for k in range(count)]
    return [index for _, index in sorted(places)]


def part_end(length: int, begin: int, seconds: int | None) -> int:
    """Return where a part of a load of ``length`` seconds ends; ``seconds`` None: where the load does.

    Raises:
        WrongLoadError: it has no such part.
    """
    end = length if seconds is None else min(length, begin + seconds)
    if not 0 <= begin < end:
        asked = f"begins at second {begin}" + ("" if seconds is None else f" and lasts {seconds} s")
        raise WrongLoadError(
            f"The load has {length} s, so there is no part that {asked}; give --begin 0 to {length - 1} and --seconds "
            "1 or more."
        )
    return end


def check_partitions(count: int) -> None:
    """Are there so many that a load can be dealt out over them?

    Raises:
        WrongLoadError: there are not, or there are more than can be played in any time that somebody waits for.
    """
    if count < 1:
        raise WrongLoadError(f"{count} partitions were asked for; a load needs at least 1.")
    if count > PARTITIONS_MAX:
        raise WrongLoadError(
            f"The load is for {count} partitions, more than the {PARTITIONS_MAX} that can be played: every decision "
            "looks at all of them, so it would take for ever; play a part of them, with that part of the load."
        )


def _check_shares(row: Sequence[float], partitions: int) -> None:
    if len(row) != partitions:
        raise WrongLoadError(f"{len(row)} shares were given for {partitions} partitions; give one for each.")
    if any(not 0.0 <= share <= 1.0 + 1e-9 for share in row) or not math.isclose(sum(row), 1.0, abs_tol=1e-6):
        raise WrongLoadError(
            f"The partitions' shares are not numbers from 0 to 1 that sum to 1 (they sum to {sum(row):g}); "
            "correct them."
        )


def shares_even(partitions: int) -> tuple[float, ...]:
    """Every partition gets the same share of the load."""
    return (1.0 / partitions,) * partitions


def shares_skewed(partitions: int, heavy: int = 2, heavy_share: float = 0.5) -> tuple[float, ...]:
    """The first ``heavy`` partitions share ``heavy_share`` of the load, the others the rest."""
    if partitions <= heavy:
        return shares_even(partitions)
    light = partitions - heavy
    return (heavy_share / heavy,) * heavy + ((1.0 - heavy_share) / light,) * light


def counted(number: int, one: str, several: str) -> str:
    """Return a number with the words for it: ``1 row has``, ``2 rows have``."""
    return f"{number:,} {one if number == 1 else several}"


def check_known(kind: str, name: str, known: Collection[str], means: str = "no load can be made") -> None:
    """Is there one of this name?

    Raises:
        WrongLoadError: there is not; the message says what that means, lists them and the nearest.
    """
    if name not in known:
        raise WrongLoadError(
            f"There is no {kind} {name!r}, so {means}; choose one of {', '.join(sorted(known))} "
            f"(the nearest is {nearest(name, known)!r})."
        )
