"""The capacity of a member is learnt from the seconds in which it was saturated.

Theory of operation. Work is time in hand: a program that has ten records in hand for a second does ten busy seconds.
How much of it a member can give per second depends on its program: 1 where records are worked on one by one, as many as
a semaphore lets in where each has a task. Nobody has to say it. A member is *saturated* where records wait all the
time, and user code does not sleep for want of one. What it gives then is what it can give. Before that, as much as was
asked for was given: it can give at least that.

A program may take every record at once and let it wait inside. Then nothing waits outside and user code always asks for
more, but what it has in hand grows while no more is done: it is *saturated inside*. Records take ever longer then, so
what such a program can do is remembered in records, and told as the time that they take now.

How well it is known is told beside: see :class:`~loadtrim_agent.wire.telemetry_records.Capacity`.

Source: the utilization law and Little's law (Denning & Buzen, 1978), for a server of which only the flows are seen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from loadtrim_agent.wire.telemetry_records import Capacity, Untold

from .cost import BusyRing
from .readings import Working

__all__ = ["LearntCapacity", "MemberWork"]

KNOWN_SECONDS = 2.0
"""Saturated seconds after which a capacity is known. Chosen."""
HALF_LIFE_SECONDS = 30.0
"""Saturated time after which what was learnt counts half as much. Chosen: as long as a record's cost is remembered."""
ASLEEP_SHARE = 0.05
"""Of an interval: user code that slept longer for want of records was not saturated. Chosen."""
ROOM = 3.0
"""A member that was never saturated is taken to be able to give this many times what it gave. With less, two members
that share a load evenly could never be made one. Chosen."""
GROWTH_SECONDS = 4.0
GROWTH_COSTS = 4.0
"""Growth counts after so long, and after so many times as long as a record takes. A step of the load fills a
member's hands for about as long as one takes. Chosen."""
GROWTH_SDS = 3.0
"""By so many standard deviations of arrivals at random. Chosen."""
FLOWS_MIN = 4
FLOWS_MAX = 120
"""Intervals that growth is looked for in: two halves of two, up to two minutes."""
CAPACITY_LEAST = 1e-6
"""A share of nothing is no number. Chosen: below what any program can give."""
PROVEN_HALF_LIFE_SECONDS = 300.0
"""Time after which the most that was given counts half as much. Chosen."""


class _Flow(NamedTuple):
    """One interval of a program that works on many records at once."""

    seconds: float
    taken: int
    done: int
    in_hand: int
    """At its end."""


class _Ratio:
    """The mean of what is given per saturated second, and its standard error. O(1) per interval.

    The error of what a record costs is left out: the load is told by the same cost, so that it does not change how many
    members a load takes.

    Source: the ratio estimator, and its variance by the residuals (Cochran, Sampling Techniques, 1977, chapter 6), with
    weights that fade: what is older counts less.
    """

    __slots__ = ("amount", "amount_squares", "products", "seconds", "seconds_squares")

    def __init__(self) -> None:
        self.amount = self.seconds = 0.0
        self.amount_squares = self.products = self.seconds_squares = 0.0

    def add(self, seconds: float, amount: float) -> None:
        kept = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self.amount = self.amount * kept + amount
        self.seconds = self.seconds * kept + seconds
        kept *= kept
        self.amount_squares = self.amount_squares * kept + amount * amount
        self.products = self.products * kept + amount * seconds
        self.seconds_squares = self.seconds_squares * kept + seconds * seconds

    @property
    def value(self) -> float:
        return self.amount / self.seconds

    @property
    def error_share(self) -> float:
        """Return the standard error over the value, 0 .. 1; 1 where a single interval tells nothing of it."""
        intervals = self.seconds * self.seconds / self.seconds_squares
        value = self.value
        if intervals <= 1.0 or not value:
            return 1.0
        residuals = self.amount_squares - 2.0 * value * self.products + value * value * self.seconds_squares
        error = math.sqrt(max(0.0, residuals) * intervals / (intervals - 1.0)) / self.seconds
        return min(1.0, error / value)


class LearntCapacity:
    """The learnt capacity of one member, busy seconds per second. Deterministic.

    Args:
        hint: of the user, for the time before anything is known.
    """

    def __init__(self, hint: float) -> None:
        self._hint = hint
        self._busy_seconds = _Ratio()
        self._records = _Ratio()
        self._seen_seconds = 0.0
        """Saturated, in all."""
        self._proven = 0.0
        self._cost_least = math.inf
        self._flows: deque[_Flow] = deque(maxlen=FLOWS_MAX)

    def add(self, seconds: float, busy_seconds: float, asleep_seconds: float, *, done: int, waited: bool) -> None:
        """Take in an interval.

        Args:
            seconds: its length, above 0.
            busy_seconds: given in it.
            asleep_seconds: for which user code slept for want of records.
            done: records.
            waited: records that nobody worked on waited all the time.
        """
        given = busy_seconds / seconds
        self._proven = max(self._proven * 0.5 ** (seconds / PROVEN_HALF_LIFE_SECONDS), given)
        if waited and asleep_seconds <= ASLEEP_SHARE * seconds and given > 0.0:
            self._learn(seconds, busy_seconds, done)

    def flowed(self, seconds: float, done: int, in_hand: int, cost_seconds: float) -> None:
        """Take in the flow of an interval, of a program that works on many records at once.

        Args:
            seconds: its length, above 0.
            done: records.
            in_hand: at its end.
            cost_seconds: time in hand per record lately; 0: not known.
        """
        before = self._flows[-1].in_hand if self._flows else 0
        self._flows.append(_Flow(seconds, max(0, done + in_hand - before), done, in_hand))
        if cost_seconds > 0.0:
            # Records that wait inside take longer and longer: what they take without that is the least lately.
            self._cost_least = min(cost_seconds, self._cost_least * 2.0 ** (seconds / PROVEN_HALF_LIFE_SECONDS))
        least = self._cost_least if self._cost_least < math.inf else 0.0
        window_seconds = max(GROWTH_SECONDS, GROWTH_COSTS * least)
        while (window := self._window(window_seconds)) is not None:
            if _grows(window):
                if done * cost_seconds > 0.0:  # else it stands still, which tells nothing of what it can give
                    self._learn(seconds, done * cost_seconds, done)
                return
            window_seconds *= 2.0  # slow growth shows in longer ones

    def _window(self, seconds: float) -> list[_Flow] | None:
        """Return the newest flows that cover so many seconds; None: there are too few."""
        found: list[_Flow] = []
        for flow in reversed(self._flows):
            found.append(flow)
            seconds -= flow.seconds
            if seconds <= 0.0:
                return found[::-1] if len(found) < len(self._flows) else None
        return None

    def _learn(self, seconds: float, busy_seconds: float, done: int) -> None:
        self._busy_seconds.add(seconds, busy_seconds)
        self._records.add(seconds, done)
        self._seen_seconds += seconds

    @property
    def known(self) -> bool:
        """Return whether the member was saturated for long enough."""
        return self._seen_seconds >= KNOWN_SECONDS

    def value(self, *, one_by_one: bool, untold: bool = False, cost_seconds: float = 0.0) -> Capacity:
        """Return what the member can give, as far as is known.

        Args:
            one_by_one: user code works on one record, or one batch, at a time: nothing but that can be given.
            untold: user code works on records beyond the next call. What is taken for their cost is the time between
                calls, which falls to nothing when there is little to do: only records per second tell something.
            cost_seconds: time in hand per record lately; 0: not known.
        """
        if not self.known:
            return self._guess(one_by_one=one_by_one)
        if (one_by_one and not untold) or not cost_seconds or not self._records.amount:
            learnt, value = self._busy_seconds, self._busy_seconds.value
        else:
            learnt, value = self._records, self._records.value * cost_seconds
        return Capacity(value, value * learnt.error_share)

    def _guess(self, *, one_by_one: bool) -> Capacity:
        value = self._hint if one_by_one else max(self._hint, ROOM * self._proven)
        return Capacity(value, max(0.0, value - self._proven), known=False)


def _grows(flows: Sequence[_Flow]) -> bool:
    """Return whether what is in hand grows by more than chance, while no more is done than before."""
    if len(flows) < FLOWS_MIN:
        return False
    taken = sum(flow.taken for flow in flows)
    growth = flows[-1].in_hand - flows[0].in_hand
    half = len(flows) // 2
    first, second = flows[:half], flows[-half:]
    before = sum(flow.done for flow in first) / sum(flow.seconds for flow in first)
    after = sum(flow.done for flow in second) / sum(flow.seconds for flow in second)
    return growth > GROWTH_SDS * math.sqrt(taken) and after <= before * (1.0 + GROWTH_SDS / math.sqrt(max(1, taken)))


class MemberWork:
    """The work that one member gives, and can give.

    Args:
        concurrency: hint of the user, see :class:`LearntCapacity`.
    """

    def __init__(self, concurrency: float) -> None:
        self.busy = BusyRing(concurrency)
        self._learnt = LearntCapacity(concurrency)
        self._error = 0.0
        self._hand: Working | None = None
        self._in_hand_max = 0
        self._told = (0.0, 0.0, 0)
        """Busy seconds, seconds asleep and records done, up to the last report."""
        self._done = 0

    @property
    def capacity(self) -> Capacity:
        """Return what can be given, as far as is known."""
        hand = self._hand
        if self._learnt.known or (hand is not None and (hand.tells or hand.untold)):
            return Capacity(self.busy.capacity, self._error, self._learnt.known)
        return Capacity(self.busy.capacity)  # one record at a time, or what the user says, is taken as it is

    @property
    def untold(self) -> Untold:
        """Return why nobody knows when a record is done."""
        return Untold.NOTHING if self._hand is None else self._hand.untold

    def done(self, now: float, busy_seconds: float, records: int) -> None:
        """Take in what was done."""
        self.busy.add(now, busy_seconds)
        self._done += records

    def working(self, now: float, hand: Working) -> None:
        """Take in what is in hand."""
        self._hand = hand
        self._in_hand_max = max(self._in_hand_max, hand.records)
        self.busy.working(now, hand.open_seconds)

    def hand_seconds(self, cost_seconds: float) -> float:
        """Return how long what is in hand should take in all, at so much a record.

        Infinite before the member's first record is done; 0 where nothing is in hand.
        """
        records = self._hand.records if self._hand is not None else 0
        if not records:
            return 0.0
        return records * cost_seconds / self.busy.capacity if self._done else math.inf

    def close(self, interval: float, lag_least: int, cost_seconds: float) -> float:
        """End an interval, and learn from it.

        Args:
            interval: its length, seconds.
            lag_least: fewest records of it at any moment that were not done.
            cost_seconds: time in hand per record lately; 0: not known.

        Returns:
            The busy seconds that were given in it.
        """
        busy_told, asleep_told, done_told = self._told
        busy_seconds, done = self.busy.accrued - busy_told, self._done - done_told
        asleep_seconds = self._hand.asleep_seconds if self._hand is not None else 0.0
        self._told = (self.busy.accrued, asleep_seconds, self._done)
        hand = self._hand
        if hand is not None:
            # What was not taken with a batch that had room came later: it waits where it is as much again.
            in_hand = self._in_hand_max * (1 if hand.batches_filled else 2)
            asleep = asleep_seconds - asleep_told
            self._learnt.add(interval, busy_seconds, asleep, done=done, waited=lag_least > in_hand)
            if hand.tells:
                self._learnt.flowed(interval, done, hand.records, cost_seconds)
            self._in_hand_max = hand.records
            learnt = self._learnt.value(one_by_one=not hand.tells, untold=bool(hand.untold), cost_seconds=cost_seconds)
            self.busy.capacity, self._error = max(CAPACITY_LEAST, learnt.value), learnt.error
        return busy_seconds
