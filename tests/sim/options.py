"""What a simulation is made of. Every figure has its unit in its name; everything has a default."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

__all__ = ["FaultOptions", "GroupOptions", "LoadOptions", "SimOptions", "drawn_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Settings of the group's members and of the broker."""

    session_timeout_seconds: float = 6.0
    heartbeat_interval_seconds: float = 1.0
    drain_seconds: float = 2.0
    auto_commit: bool = True
    auto_commit_seconds: float = 1.0
    inline_limit_bytes: int = 400_000
    """0: every map goes through the log."""
    reset_latest: bool = False
    """``auto_offset_reset``: latest instead of earliest."""

    @property
    def rebalance_timeout_seconds(self) -> float:
        return 2 * self.session_timeout_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the group is asked to do while faults happen. Rates are means of random intervals."""

    members: int = 3
    members_max: int = 5
    topics: tuple[tuple[str, int], ...] = (("orders", 4),)
    """Name and number of partitions at the start."""
    records_per_second: float = 8.0
    """Over all partitions."""
    cost_seconds_max: float = 0.15
    """Longest a record usually takes in user code."""
    slow_record_share: float = 0.02
    slow_record_seconds_max: float = 4.0
    moves_per_second: float = 1.0
    slices_per_second: float = 0.0
    """Partitions that a member gives away by its own decision, of the whole group."""
    plans_per_second: float = 0.2
    joins_per_second: float = 0.08
    leaves_per_second: float = 0.06
    enlargements_per_second: float = 0.0
    subscription_changes_per_second: float = 0.0
    mixed_subscriptions: bool = False
    foreign_joins_per_second: float = 0.0
    foreign_stay_seconds_max: float = 15.0
    network_seconds_max: float = 0.005
    """Longest that a request or an answer usually takes."""
    log_seconds_max: float = 0.004
    """Longest that an append, its acknowledgement or a read usually takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """What goes wrong, and how often. Rates are per second for the whole group, shares are per request or append."""

    crashes_per_second: float = 0.0
    freezes_per_second: float = 0.0
    """SIGSTOP: neither the agent nor user code runs."""
    stalls_per_second: float = 0.0
    """The agent hears nothing while user code runs on."""
    pause_seconds_max: float = 20.0
    """Of freezes and stalls."""
    removals_per_second: float = 0.0
    """An administrator (or the broker) removes a member that is well."""
    failovers_per_second: float = 0.0
    failover_seconds_max: float = 2.0
    break_share: float = 0.0
    """The connection breaks: before the request arrives, after it, or so that the request arrives late."""
    black_hole_share: float = 0.0
    """The connection swallows this request and all later ones until it is closed."""
    slow_share: float = 0.0
    slow_seconds_max: float = 1.0
    repeat_share: float = 0.0
    """A copy of the request arrives again, later (never of commits: see docs/protocol.md, known limits)."""
    late_seconds_max: float = 8.0
    """How late a request or a copy may arrive."""
    sync_refused_share: float = 0.0
    """The coordinator cannot store the leader's answer."""
    append_lost_share: float = 0.0
    append_unknown_share: float = 0.0
    """It lands, the acknowledgement is lost."""
    append_late_share: float = 0.0
    """Reported as failed, lands later."""
    append_repeated_share: float = 0.0
    """Lands twice, the second time later."""
    append_vanished_share: float = 0.0
    """Acknowledged, then lost by the log; readers that had not read it are told of a gap or find it missing."""
    reader_lags_per_second: float = 0.0
    reader_lag_seconds_max: float = 3.0
    gaps_per_second: float = 0.0
    """One reader misses the records between its position and the end, and is told."""
    log_failures_per_second: float = 0.0
    log_failure_seconds_max: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """One simulation: a phase with faults (safety), then one without (liveness)."""

    group: GroupOptions = field(default_factory=GroupOptions)
    load: LoadOptions = field(default_factory=LoadOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)
    fault_seconds: float = 25.0
    drain_out_seconds: float = 6.0
    """After healing: how long the group has to work off and commit everything."""


FAULT_RATES: dict[str, float] = {
    "crashes_per_second": 0.08,
    "freezes_per_second": 0.08,
    "stalls_per_second": 0.06,
    "removals_per_second": 0.05,
    "failovers_per_second": 0.08,
    "break_share": 0.03,
    "black_hole_share": 0.02,
    "slow_share": 0.1,
    "repeat_share": 0.05,
    "sync_refused_share": 0.1,
    "append_lost_share": 0.05,
    "append_unknown_share": 0.05,
    "append_late_share": 0.05,
    "append_repeated_share": 0.05,
    "append_vanished_share": 0.02,
    "reader_lags_per_second": 0.15,
    "gaps_per_second": 0.08,
    "log_failures_per_second": 0.05,
}
"""How often each fault happens in a run that has it."""


def drawn_options(seed: int) -> SimOptions:
    """Options for one seed: each kind of fault is in about every third run, so that each also happens alone."""
    rng = random.Random(seed * 7919 + 1)
    share = rng.choice((0.0, 0.15, 0.3, 0.6))
    storm = rng.choice((1.0, 1.0, 3.0))
    faults = {name: rate * storm * rng.uniform(0.5, 2.0) for name, rate in FAULT_RATES.items() if rng.random() < share}
    topics = rng.choice(((("orders", 1),), (("orders", 2),), (("orders", 5),), (("orders", 3), ("refunds", 2))))
    group = GroupOptions(
        session_timeout_seconds=rng.choice((3.0, 6.0, 10.0)),
        heartbeat_interval_seconds=rng.choice((0.3, 1.0, 1.0)),
        auto_commit=rng.random() < 0.8,
        inline_limit_bytes=rng.choice((400_000, 400_000, 0)),
        reset_latest=rng.random() < 0.3,
    )
    load = LoadOptions(
        members=rng.randint(1, 4),
        topics=topics,
        records_per_second=rng.choice((4.0, 12.0)),
        moves_per_second=rng.choice((0.0, 1.0, 4.0, 12.0)),
        joins_per_second=rng.choice((0.02, 0.12)),
        leaves_per_second=rng.choice((0.0, 0.1)),
        enlargements_per_second=rng.choice((0.0, 0.0, 0.1)),
        mixed_subscriptions=len(topics) > 1 and rng.random() < 0.5,
        subscription_changes_per_second=0.1 if len(topics) > 1 and rng.random() < 0.4 else 0.0,
        foreign_joins_per_second=0.08 if rng.random() < 0.12 else 0.0,
        network_seconds_max=rng.choice((0.005, 0.005, 0.1)),
        log_seconds_max=rng.choice((0.004, 0.004, 0.05, 0.4)),
    )
    # Drawn apart: what a seed had before there were slices it still has.
    slices = random.Random(f"slices {seed}").choice((0.0, 0.0, 3.0, 12.0, 30.0))
    load = replace(load, slices_per_second=slices)
    return SimOptions(group=group, load=load, faults=replace(FaultOptions(), **faults))
