"""The port of a policy: what it is, what it may need to know, and what it is given at each decision."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from statistics import fmean
from typing import Any, Protocol

import msgspec

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.partition import Partition

from ..parameters import Parameters
from ..placement.columns import Columns
from ..placement.lateness import LongestFirst
from ..placement.problem import Bin, Item, LoadError, Packer
from ..policy_state import PolicyState
from ..values import Estimate, Forecast, PlanConfig, Sizing

__all__ = [
    "MEASURED",
    "Future",
    "Measure",
    "Policy",
    "UnmeasuredError",
    "View",
]

_PAST = {name: attrgetter(name) for name in ("busy_seconds", "given_seconds", "latency_seconds")}
"""What is measured, not counted, in each of the last seconds."""


class Measure(enum.StrEnum):
    """What a policy may need to know, in words that read on from "it looks at"."""

    RATES = "arrival rates"
    LAG = "lag"
    LAG_SECONDS = "age of the oldest record"
    LATENCY = "latency of what is done"
    UTILIZATION = "busy share of the members"
    SERVICE_RATE = "records/s that a member can do"
    THROUGHPUT = "throughput"
    CURVES = "work curves"
    FUTURE = "what will arrive"


MEASURED = frozenset(Measure) - {Measure.FUTURE}
"""What members report: everything that can be known."""


class UnmeasuredError(LoadtrimError, ValueError):
    """A policy needs what is not measured here. The shell stops the start with its text."""


class Future(msgspec.Struct, frozen=True, kw_only=True):
    """What will arrive, second by second: for those who play a load that they know.

    Raises:
        LoadError: a number of records that is negative or not finite, or a second that is not about every partition.
    """

    begins_at: float
    """Of the first second, since the epoch."""
    partitions: tuple[Partition, ...]
    records: tuple[tuple[float, ...], ...]
    """Per second: how many arrive in each of the partitions."""
    needed: Callable[[bool, float], Sequence[int]] | None = None
    """The fewest replicas that have each second's records in time. None: nobody has worked it out.
    Arguments: whether partitions may be cut, and the share of a replica's capacity that is counted on."""

    def __post_init__(self) -> None:
        for second, row in enumerate(self.records):
            if len(row) != len(self.partitions) or not all(0.0 <= count < math.inf for count in row):
                raise LoadError(
                    f"second {second} of the future is {list(row)}, so nothing can be planned by it; "
                    f"give a finite number of records, 0 or more, for each of {len(self.partitions)} partitions"
                )

    def between(self, start: float, end: float) -> Sequence[tuple[float, ...]]:
        """The seconds that overlap ``start .. end`` (since the epoch), at least the one that ``start`` is in."""
        return self.records[self._seconds(start, end)]

    def replicas_needed(self, start: float, end: float, sliced: bool, counted: float) -> int | None:
        """Return the most replicas that a second needs which overlaps ``start .. end``; None: nobody has worked it out.

        Args:
            start: as in :meth:`between`.
            end: likewise.
            sliced: partitions may be cut.
            counted: share of a replica's capacity that is counted on.
        """
        return None if self.needed is None else max(self.needed(sliced, counted)[self._seconds(start, end)], default=1)

    def _seconds(self, start: float, end: float) -> slice:
        first = max(0, math.floor(start - self.begins_at))
        return slice(first, max(first + 1, math.ceil(end - self.begins_at)))


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a policy may know at one decision.

    Raises:
        LoadError: a capacity, a rate, a lag, a time or a number of replicas that nothing can be decided by.
    """

    now: float
    config: PlanConfig
    estimate: Estimate
    forecast: Forecast
    columns: Columns
    """Every sized partition at its present load, sorted."""
    replicas: int
    """Instances that are there and not leaving."""
    members_per_replica: int
    replicas_max: int
    """The smaller of what is configured and what there are partitions for."""
    capacity: Callable[[int], float]
    """Work per second of so many instances: those that would stay, then typical ones."""
    late: Callable[[int, float], float]
    """(instances, load factor) -> work per second that would be late with whole partitions dealt out over them."""
    longest_first: Callable[[float], LongestFirst]
    """Load factor -> who says what would be late where partitions lie otherwise."""
    packer: Packer
    """The packer that places what the policy decides."""
    supply: tuple[Bin, ...] = ()
    """Members that are there and not leaving, then as many typical ones as could be added."""
    generation: int = 0
    """Of the group: it changes when members come or go."""
    future: Future | None = None

    def __post_init__(self) -> None:
        estimate = self.estimate
        if self.replicas < 1 or self.replicas_max < 1:
            raise LoadError(f"a group of {self.replicas} replicas cannot be sized; with no member there is no leader")
        capacity = self.capacity(self.replicas)
        if not (0.0 < capacity < math.inf and 0.0 < estimate.capacity_typical < math.inf):
            raise LoadError(
                f"{self.replicas} replicas with a capacity of {capacity} (typically {estimate.capacity_typical}) "
                "cannot be planned with; it has to be finite and above 0"
            )
        values = (estimate.rate, estimate.backlog, estimate.late, estimate.cost, estimate.throughput)
        if not all(0.0 <= value < math.inf for value in (*values, *estimate.series)):
            raise LoadError(
                "the load of the group (rate, backlog, late work, cost, throughput: "
                f"{', '.join(map(str, values))}) is negative or no finite number, so nothing can be decided by it"
            )
        self._check_times()

    def _check_times(self) -> None:
        """Sums, because three minutes and every partition are looked at in each decision."""
        estimate = self.estimate
        told: dict[str, Sequence[float]] = {
            "the start-up time": (estimate.startup_seconds,),
            "the age of a partition's oldest record": [entry.lag_seconds for entry in estimate.partitions.values()],
        }
        told |= {f"{name} of one of the last seconds": [*map(of, estimate.past)] for name, of in _PAST.items()}
        for what, values in told.items():
            if not math.isfinite(sum(values)):
                wrong = next((value for value in values if not math.isfinite(value)), sum(values))
                raise LoadError(f"{what} is {wrong}, so nothing can be decided by it; give a finite number")

    @property
    def items(self) -> tuple[Item, ...]:
        """Return every sized partition at its present load, sorted."""
        return self.columns.items

    @property
    def replicas_min(self) -> int:
        return min(self.config.min_replicas, self.replicas_max)

    def bounded(self, replicas: float) -> int:
        """Within the bounds of the configuration; what is more than a whole number counts as one more."""
        return math.ceil(max(self.replicas_min, min(replicas, self.replicas_max)) - 1e-9)

    def service_rate(self, mu: float | None = None) -> float | None:
        """mu: records/s that a replica can do. None: not measured yet, for nothing was done.

        Args:
            mu: what a parameter says; it comes first.
        """
        if mu is not None or self.estimate.cost <= 0:
            return mu
        return self.capacity(self.replicas) / self.replicas / self.estimate.cost

    def arrival_rate(self, seconds: float) -> float | None:
        """Records/s of the group over the newest ``seconds``; None: nothing was done, so work tells no records."""
        newest = self.estimate.series[-max(1, round(seconds)) :]
        if self.estimate.cost > 0:
            return fmean(newest) / self.estimate.cost
        return None if any(newest) or self.estimate.rate > 0 else 0.0

    @property
    def lag(self) -> int:
        """Records that wait in the group, as reported last."""
        return sum(item.lag for item in self.items)

    @property
    def lag_seconds(self) -> float:
        """Age of the oldest record that is not done, the mean over the partitions (the papers' event-time lag)."""
        known = [self.estimate.partitions[item.partition] for item in self.items]
        return fmean(entry.lag_seconds for entry in known) if known else 0.0


class Policy(Protocol):
    """Decides how many, and when. An instance does not change: what must not be forgotten is its state.

    One that has ``needs`` (a frozenset of :class:`Measure`) is refused at the start where one of them is not measured.
    """

    name: str

    @property
    def kind(self) -> type[Parameters]:
        """What can be set about it."""
        ...

    @property
    def state(self) -> type[PolicyState]:
        """Form of what it must not forget; an empty one is the state of the first decision."""
        ...

    def decide(self, view: View, state: Any) -> Sizing:
        """Return the number of replicas wanted from now on, with its reason. Deterministic.

        Args:
            view: everything that may be known.
            state: of this policy, as its last answer had it, also under an earlier leader.
        """
        ...
