"""The time that each row of a table stands for: until the next time of the file, or of its own series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median

from loadtrim_agent.common.partition import Partition

from .load import counted
from .tables import Row

__all__ = ["Paces"]

REGULAR_SHARE = 0.5
"""Of the distances between rows, more than this alike: the file has a regular step."""
STEPS_TOLERANCE = 0.01
"""Of a step: a distance is so many whole steps if it is off by no more."""
EVIDENCE_ROWS = 3
"""A series of fewer rows tells no step of its own."""

_Line = tuple[Partition | None, int]
"""Partition and series of rows that follow one another."""


class _Pace:
    """The time that each row stands for.

    A row says what arrived from its time until the next one's. Where most rows are the same step apart, a distance of
    several whole steps is a gap instead: rows are missing there, and count as no load. The last row lasts as long as
    the one before it, or one step where that is regular.

    Args:
        times: of rows, in order, each once.
    """

    def __init__(self, times: Sequence[float]) -> None:
        distances = [round(later - earlier, 6) for earlier, later in pairwise(times)]
        usual, count = min(Counter(distances).items(), key=lambda each: (-each[1], each[0]), default=(1.0, 1))
        self.regular = not distances or count > REGULAR_SHARE * len(distances)
        self.step = usual if self.regular else median(distances)
        """The usual distance, seconds."""
        steps = [self._steps(distance) if self.regular else 0 for distance in distances]
        self.missing = sum(number - 1 for number in steps if number)
        """Steps without a row."""
        lasting = [self.step if number else distance for number, distance in zip(steps, distances, strict=True)]
        lasting.append(self.step if self.regular else lasting[-1])
        self.lasting = dict(zip(times, lasting, strict=True))
        """Time of a row -> seconds until what it says ends."""
        self.odd = [distance for number, distance in zip(steps, distances, strict=True) if not number]
        """Distances that are no whole steps."""

    def _steps(self, distance: float) -> int:
        """Return how many whole steps a distance is; 0: it is none."""
        number = round(distance / self.step)
        return number if abs(distance - number * self.step) <= STEPS_TOLERANCE * self.step else 0


class Paces:
    """The time that each row of a table stands for.

    A row lasts until the next time in the file, where its partition or series may have no row: it has no load there.
    That cannot be meant where each of them has times of its own, as series have that were asked for at unlike moments:
    then a row lasts until the next one of its own.

    Args:
        rows: at least one, in order of time.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        times: dict[_Line, set[float]] = {}
        for row in rows:
            times.setdefault((row.partition, row.series), set()).add(row.at)
        whole = _Pace(sorted({row.at for row in rows}))
        own = {line: _Pace(sorted(its)) for line, its in times.items()}
        self.staggered = _are_staggered(whole, own)
        """Does each partition or series have times of its own?"""
        self._of = own if self.staggered else dict.fromkeys(own, whole)
        self._told = _telling(own.values()) if self.staggered else [whole]
        self.regular = all(pace.regular for pace in self._told)
        self.step = median(pace.step for pace in self._told)
        """The usual distance, seconds."""

    def lasting(self, row: Row) -> float:
        """Return the seconds until what a row says ends."""
        pace = self._of[row.partition, row.series]
        return pace.lasting[row.at] if len(pace.lasting) > 1 else self.step

    def beside(self, row: Row) -> int:
        """Return how many times there are of which a row's is one."""
        return len(self._of[row.partition, row.series].lasting)

    def notes(self, lasting: bool) -> list[str]:
        """Return the notes on gaps, and on rows at odd times where rows last; else each counts at its time alone."""
        notes = []
        steps = _range([pace.step for pace in self._told])
        if self.staggered and lasting:
            many = counted(len(self._of), "series or partition", "series or partitions")
            notes.append(f"{many} have rows at times of their own: each row lasts until the next one of the same")
        if missing := sum(pace.missing for pace in self._told):
            total = missing + sum(len(pace.lasting) for pace in self._told)
            notes.append(f"{missing} of {total} steps of {steps} are missing and count as no load")
        if (odd := [distance for pace in self._told for distance in pace.odd]) and lasting:
            which = f"no steps of {steps}" if self.regular else "no regular steps"
            notes.append(
                f"{len(odd)} rows are followed by the next one after {_range(odd)}, which are {which}: what they say "
                "is spread until then"
            )
        return notes


def _range(seconds: Sequence[float]) -> str:
    shortest, longest = min(seconds), max(seconds)
    return f"{longest:g} s" if shortest == longest else f"{shortest:g} to {longest:g} s"


def _telling(paces: Collection[_Pace]) -> list[_Pace]:
    return [pace for pace in paces if len(pace.lasting) >= EVIDENCE_ROWS]


def _are_staggered(whole: _Pace, own: Mapping[_Line, _Pace]) -> bool:
    """Return whether partitions or series have times of their own, and do not only miss some of common ones.

    They have where they keep steps that the file as a whole does not keep. Where neither they nor the file keep any,
    they have if most times are of one of them alone. Rows less than a second apart are then those of single records.
    """
    telling = _telling(own.values())
    if len(own) < 2 or not telling or any(len(pace.lasting) == len(whole.lasting) for pace in telling):
        return False
    steps = [pace.step for pace in telling if pace.regular]
    if len(steps) > REGULAR_SHARE * len(telling):
        return bool(whole.odd) or whole.step < (1.0 - STEPS_TOLERANCE) * min(steps)
    shared = Counter(at for pace in own.values() for at in pace.lasting)
    alone = sum(number == 1 for number in shared.values())
    return not whole.regular and whole.step >= 1.0 and alone > REGULAR_SHARE * len(shared)
