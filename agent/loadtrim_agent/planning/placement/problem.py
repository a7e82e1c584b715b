"""Problems for packers, and the arithmetic of what fits a member."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Protocol

import msgspec
from msgspec import structs
from msgspec.structs import force_setattr

from loadtrim_agent.common.checks import is_positive, within
from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.partition import Partition

from ..forecast import dispersion_of
from ..parameters import Parameters
from ..values import DECISION_PHASE, TAUS_SECONDS, Estimate, LagMoment, Placement, PlanConfig
from .columns import Columns

__all__ = [
    "Bin",
    "Item",
    "Limits",
    "LoadError",
    "Packer",
    "Problem",
    "expected_by",
    "limits_of",
    "objective_of",
    "windows_of",
]

RATE_LIMIT = 1.0
"""Share of a member's capacity that the mean rate of its own partitions may take."""
WINDOW_MIN_SHARE = 0.25
"""Of the objective: what is left of it after the overhead, at least, where the overhead eats it up."""
CHEAP_SDS = 3.09
"""Records that cost so many standard deviations less than the mean are no reason for a replica: of a thousand one.
Chosen: as the share that is asked for where none is set."""
WINDOWS = len(TAUS_SECONDS)
NO_CURVE = (0.0,) * WINDOWS
"""Of an item whose windows were not measured."""


class LoadError(LoadtrimError, ValueError):
    """A load or a capacity that nothing can be packed by. Raised where the value is made; the planner contains it."""


class Bin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One member that partitions can be placed on, or one that could be added.

    Raises:
        LoadError: a capacity that is not above 0 and finite.
    """

    member: str
    unit: str
    """Its instance: instances come and go, not members. Empty: not known, so it is no victim."""
    capacity: float
    """Work per second."""
    topics: frozenset[str] | None = None
    """What it may own; None: everything (a replica that does not exist yet)."""
    leaving: bool = False
    silent: bool = False
    """It keeps what it has, but is given nothing."""
    name: str = ""
    """What people call it; empty: its instance's name."""

    def __post_init__(self) -> None:
        if not is_positive(self.capacity):
            raise LoadError(
                f"the capacity of {self.member!r} is {self.capacity}, so nothing can be placed on it; "
                "give it a finite one above 0, or leave the member out"
            )

    def may_own(self, partition: Partition) -> bool:
        """Does it subscribe the partition's topic?"""
        return self.topics is None or partition.topic in self.topics

    def may_have(self, item: Item) -> bool:
        """May it own the item after this plan? A silent one only what it has."""
        return self.may_own(item.partition) and (not self.silent or item.owner == self.member)

    @property
    def label(self) -> str:
        return self.name or self.unit

    def takes(self, topic: str) -> bool:
        """May it be given a partition of this topic?"""
        return not self.silent and (self.topics is None or topic in self.topics)


class Item(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition with its load. What was not measured weighs nothing (the defaults); it is placed all the same.

    A ``msgspec.Struct``, for every decision makes one a partition: 1.9 us, where a frozen dataclass takes 5.7.

    Raises:
        LoadError: a load that is negative, infinite, not a number or None, or windows that are not one for each of
            :data:`..values.TAUS_SECONDS`.
    """

    partition: Partition
    owner: str | None
    work: float = 0.0
    """Work per second."""
    mean: tuple[float, ...] = NO_CURVE
    """Work that arrives per window."""
    persistent_backlog: float = 0.0
    """Work that waits and belongs to every window."""
    stddev: tuple[float, ...] = NO_CURVE
    queue: float = 0.0
    """Work that waits now and would wait for the handoff as well."""
    rate: float = 0.0
    """Records/s (for the papers' packers, as is what follows)."""
    lag: int = 0
    """Records that waited when the member reported."""
    lag_low: int = 0
    lag_high: int = 0
    """Fewest and most that wait in an interval: before and after a burst."""
    cost: float = 0.0
    unsplittable: bool = False
    movable: bool = True
    """False: on its way to its owner already, paused, or at rest after a move that failed."""

    def __post_init__(self) -> None:
        try:
            numbers: tuple[float, ...] = (self.work, self.rate, self.cost, self.persistent_backlog, self.queue)
            numbers += (self.lag, self.lag_low, self.lag_high)
            if self.mean is not NO_CURVE or self.stddev is not NO_CURVE:
                numbers += (*self.mean, *self.stddev)
            # NaN and infinity survive a sum.
            good = min(numbers) >= 0.0 and sum(numbers) < math.inf
        except TypeError:
            good = False
        if not good:
            raise LoadError(
                f"the load of {self.partition} is negative or no finite number (work {self.work}, rate {self.rate}, "
                f"lag {self.lag}, {self.lag_low} to {self.lag_high}), so it cannot be packed; "
                "where nothing was measured leave the fields out"
            )
        if not len(self.mean) == len(self.stddev) == WINDOWS:
            raise LoadError(
                f"the load of {self.partition} has {len(self.mean)} means and {len(self.stddev)} standard deviations, "
                f"not one of each for the {WINDOWS} windows, so it cannot be packed; where nothing was measured leave "
                "the fields out"
            )


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a member must do within the objective.

    Raises:
        LoadError: an objective that is not above 0, another number that is negative, or any that is not finite.
    """

    objective_seconds: float
    overhead_seconds: float = 0.0
    z: float = 1.0
    correlation: float = 1.0
    handoff_seconds: float = 0.015
    restoring_seconds: float = 0.0
    """Time in which a new owner restores what it keeps about a partition."""
    load_factor: float = 1.0
    """What arrives is planned for as so many times what it is now."""
    reaction_seconds: float = math.inf
    """Until what waits on one member is on its way to another that has time. Infinite: nothing is moved."""
    dispersion: float = 0.0
    """Variance of the group's arriving work per second, per unit of it."""
    dispersion_apart: float = 0.0
    """The same of one member's part of it."""
    dispersion_even: float = math.inf
    """The same at most, without what comes in bursts, which the windows hold."""
    kept: tuple[int, ...] = tuple(range(WINDOWS))
    """Indices of the windows that can bind; see :meth:`.columns.Asks.binding`."""

    windows: tuple[float, ...] = ()
    """Seconds that a member of capacity 1 may take for the work of each window. Worked out, whatever is given."""
    by_chance: float = 0.0
    """The dispersion that makes a queue beside what the windows hold. Worked out likewise."""

    def __post_init__(self) -> None:
        others = (self.overhead_seconds, self.z, self.correlation, self.handoff_seconds, self.load_factor)
        # NaN and infinity survive a sum.
        if not (self.objective_seconds > 0.0 <= min(others) and self.objective_seconds + sum(others) < math.inf):
            raise LoadError(
                f"no member can be held to an objective of {self.objective_seconds} s with an overhead of "
                f"{self.overhead_seconds} s, z {self.z}, correlation {self.correlation}, a handoff of "
                f"{self.handoff_seconds} s and {self.load_factor} times the load, so nothing can be packed by it; give "
                "a finite objective above 0, and of the others finite numbers of at least 0"
            )
        force_setattr(self, "windows", windows_of(self.objective_seconds, self.overhead_seconds))
        force_setattr(self, "by_chance", min(self.dispersion_apart, self.dispersion_even))

    def flat(self, items: Sequence[Item]) -> bool:
        """Does no item ask for more in a window that is kept than by its mean rate? Then nor does any sum of them."""
        factor, z, handoff = self.load_factor, self.z, self.handoff_seconds
        windows = [(index, self.windows[index]) for index in self.kept]
        for item in items:
            base, work = item.persistent_backlog + item.work * handoff, item.work * factor * (1.0 + 1e-12)
            for index, window in windows:
                if base + (item.mean[index] + z * item.stddev[index]) * factor > work * window:
                    return False
        return True


@lru_cache(maxsize=16)  # every number of members and every load that one decision looks at has the same
def windows_of(objective_seconds: float, overhead_seconds: float) -> tuple[float, ...]:
    """Return :attr:`Limits.windows`."""
    spare = max(objective_seconds - overhead_seconds, objective_seconds * WINDOW_MIN_SHARE)
    return tuple([tau + spare for tau in TAUS_SECONDS])


def objective_of(estimate: Estimate, config: PlanConfig) -> float:
    """Return the objective that replicas can keep, seconds.

    Where a record takes longer than the objective, none is done within it, however many members there are. Then they
    have to keep up, and what waits is worked off within the time that is set for late work.
    """
    variance = estimate.cost * max(0.0, estimate.grain + estimate.dispersion - estimate.cost)
    fastest = max((member.speed for member in estimate.members.values()), default=1.0)
    least = (estimate.cost - CHEAP_SDS * math.sqrt(variance)) / fastest
    return config.sla_seconds if least < config.sla_seconds else max(config.sla_seconds, config.catchup_seconds)


def limits_of(estimate: Estimate, config: PlanConfig, load_factor: float = 1.0) -> Limits:
    """Return what a member of this group must do within its objective."""
    return Limits(
        objective_seconds=objective_of(estimate, config),
        overhead_seconds=estimate.overhead_seconds,
        z=config.z,
        correlation=estimate.correlation,
        handoff_seconds=estimate.handoff_seconds,
        restoring_seconds=estimate.restoring_seconds,
        load_factor=load_factor,
    )


def expected_by(limits: Limits, estimate: Estimate, config: PlanConfig) -> Limits:
    """The same to expect lateness by: to expect is not to keep free, what is judged is W, less the record in hand."""
    dispersion = dispersion_of(estimate, limits.objective_seconds)
    record = estimate.cost + estimate.dispersion
    # However even the whole comes, which partition a record is in is chance, unless they are seen to be dealt out.
    apart = max(dispersion, estimate.chance_share * estimate.cost + estimate.dispersion)
    # Bursts of so much work make a variance of no more than that per unit of it.
    burst = estimate.rate * estimate.cost * estimate.curve.mean[0]
    return structs.replace(
        limits,
        overhead_seconds=min(estimate.in_hand_seconds, estimate.overhead_seconds),
        # Reported, decided and moved.
        reaction_seconds=config.report_seconds + DECISION_PHASE * config.decision_seconds + estimate.handoff_seconds,
        dispersion=dispersion,
        dispersion_apart=apart,
        dispersion_even=max(record, apart - burst),
    )


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Items with their owners, an ordered supply of bins, and what is wanted.

    Raises:
        LoadError: a share, a length of time, a rate or a number of replicas that nothing can be packed by.
    """

    items: tuple[Item, ...]
    """In the order in which packers that do not sort take them; a group's are sorted by partition."""
    bins: tuple[Bin, ...]
    """The supply: bins are opened in this order. A group's are its members, sorted; a laboratory's may be as many as
    there are items."""
    limits: Limits = msgspec.field(default_factory=lambda: Limits(objective_seconds=1.0))
    replicas: int | None = None
    """How many instances may stay, at least 1; None: all that are not leaving."""
    fewest: bool = False
    """Open no more bins than are needed; the rest stay empty. Packers that open bins one by one always do."""
    victims: tuple[str, ...] = ()
    """Members that were to go already."""
    numbered: str = ""
    """As :attr:`..values.PlanConfig.numbered`."""
    templated: str = ""
    """As :attr:`..values.PlanConfig.templated`."""
    leader: str = ""
    may_move: bool = True
    """False: only what has to move does (no owner, owner leaves or is a victim)."""
    fill: float = 1.0
    """Share of a bin's capacity that the papers' packers fill."""
    extra_lag_seconds: float = 0.0
    """How long a rebalance will take, whose lag is packed too (CLOSER'24)."""
    lag: LagMoment = LagMoment.AFTER_BURST
    """The lag of a partition that the papers' packers take."""
    mu: float | None = None
    """Records/s that a member can do, as the policy was told; None: it was not, so a packer's own parameter counts."""
    drawn_up: Columns | None = None
    """Columns of the items, where they are drawn up already."""

    def __post_init__(self) -> None:
        wrong = ""
        if not is_positive(self.fill) or self.fill > 1.0:
            wrong = f"fill is {self.fill}; it is a share above 0 and of at most 1"
        elif not within(self.extra_lag_seconds, 0.0):
            wrong = f"extra_lag_seconds is {self.extra_lag_seconds}; it is a finite length of time, 0 or more"
        elif not (self.mu is None or is_positive(self.mu)):
            wrong = f"mu is {self.mu}; it is a finite number of records/s above 0, or None to have it measured"
        elif not (self.replicas is None or self.replicas >= 1):
            wrong = f"replicas is {self.replicas}; at least one instance stays, or all with None"
        if wrong:
            raise LoadError(f"nothing can be packed by this problem, for its {wrong}")

    @property
    def columns(self) -> Columns:
        """Return those of the items."""
        found = self.drawn_up
        return found if found is not None and found.items is self.items else Columns(self.items)

    @property
    def staying(self) -> list[Bin]:
        """Bins that are not leaving, in the order of the supply."""
        return [entry for entry in self.bins if not entry.leaving]

    def ownable(self) -> list[bool]:
        """Per item: may a bin that is not leaving have it? What nobody may have is placed nowhere. O(p + n)."""
        silent: dict[str, Bin] = {}
        topics: set[str] = set()
        for entry in self.staying:
            if entry.silent:
                silent[entry.member] = entry
            elif entry.topics is None:
                return [True] * len(self.items)
            else:
                topics |= entry.topics
        return [
            item.partition.topic in topics or (item.owner in silent and silent[item.owner].may_have(item))
            for item in self.items
        ]

    def onto(self, bins: Sequence[Bin]) -> Problem:
        """The same with these bins alone, and without what none of them may have."""
        onto = structs.replace(self, bins=tuple(bins))
        return structs.replace(onto, items=tuple(compress(self.items, onto.ownable())))


class Packer(Protocol):
    """Decides where. Deterministic: equal problems give equal placements, whatever the hash seed.

    The papers' packers open as many bins as they need. In a group that number is the policy's to decide: the supply is
    the members that are there, ``replicas`` of them stay, and :func:`.bin_source.opening` says how the two live
    together.
    The policy that wants what the packer would open (Landau'24's controller) asks it with :func:`.bin_source.wanted`.
    """

    name: str

    @property
    def kind(self) -> type[Parameters]:
        """What can be set about it: whoever makes it may give one of these."""
        ...

    def pack(self, problem: Problem) -> Placement:
        """Place every item that some bin may own.

        Never loses or doubles an item, never gives one to a leaving member or a victim, and always succeeds: what
        does not fit is placed all the same, and the member named as a misfit. A partition larger than any bin gets an
        empty one where one is left. No bins: an empty placement.
        """
        ...
