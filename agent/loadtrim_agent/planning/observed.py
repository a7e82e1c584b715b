"""Observations of a group, its members and partitions: facts, from which nothing is concluded yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import Capacity

from .history import Second

__all__ = ["Given", "MemberObservation", "Observation", "PartitionObservation"]


class Given(NamedTuple):
    """Work of a member and its records, per second. More is more busy seconds."""

    busy_seconds: float
    """At what records cost then: of cheaper ones it does more."""
    records: float


class MemberObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A member's last report, as far as it matters beyond its partitions."""

    received_at: float
    instance: str
    instance_type: str
    interval_seconds: float
    capacity: Capacity
    """As it says, at its own speed."""
    untold: str
    """Reason why nobody knows when its records are done; empty: it is known."""
    batch_seconds: float | None = None
    """Seconds that a batch takes however few its records are; None: it takes what they cost, or not enough is known."""
    arrival_delay: float | None = None
    """Seconds from a record's time stamp until it can be fetched, smoothed; None: not measured."""
    slicing_off: str | None = None
    """Reason why it passes nothing on by its own decision; empty: it does; None: it cannot."""
    speed: float
    busy_seconds: float
    slots_end: float | None
    work_rate: float
    """Busy seconds/s that arrived for it, smoothed."""
    behind: Given | None = None
    """Given while more came than it did; None: that never was."""
    shown_busy_seconds: float = 0.0
    """Busy seconds per second that it ever gave, the most of any interval."""


class PartitionObservation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition, smoothed over its reports."""

    reporter: str
    at: float
    rate_slow: float
    """Records/s over the last 20 s or so."""
    rate_fast: float
    """The same over the last 2 s."""
    rate_last: float
    """The same in the last interval."""
    rate_sd: float
    """Standard deviation of the rate over one report's interval."""
    done_rate: float
    cost: float | None
    """Busy seconds per record on the reporter."""
    cost_variance: float
    lag: int
    standing_records: float
    lag_seconds: float
    shape: tuple[float, ...]
    """Seconds' worth of its mean work that arrive in a window of each of ``TAUS_SECONDS``. Empty: not measured."""
    shape_rate: float
    """Busy seconds per second on the reporter in the longest of these windows."""
    state: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one moment, nothing concluded yet."""

    now: float
    slots: tuple[float, ...]
    """Work that arrived in the group per slot, oldest first; every owner has told it."""
    second_halves: tuple[float, ...] = ()
    """The same in the second half of each slot."""
    members: Mapping[str, MemberObservation]
    partitions: Mapping[Partition, PartitionObservation]
    handoffs_seconds: tuple[float, ...]
    startups_seconds: tuple[float, ...]
    stale: tuple[tuple[str, float | None], ...]
    """Owners without a recent report and how old their last one is; sorted by member."""
    silent: frozenset[str] = frozenset()
    """Members without a recent report, owners or not."""
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Reasons why reports of some of these count for nothing, by member."""
    begun: frozenset[str] = frozenset()
    """Members that have done a record since they came."""
    late_records: Mapping[str, int] = msgspec.field(default_factory=dict)
    past: tuple[Second, ...] = ()
    """What the group did in each of the last seconds, oldest first."""
    opening: float = 0.0
    """Work that is known to have arrived in the second after the last slot: there will be no less."""
    chance_share: float = 1.0
    """As in :class:`~.values.Variation`."""
