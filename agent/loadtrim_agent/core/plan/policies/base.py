"""What a policy is given, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..packers.problem import Bin, Item
from ..values import Estimate, Forecast, PlanConfig, Sizing

__all__ = ["Policy", "View"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a policy may know at one decision."""

    now: float
    config: PlanConfig
    estimate: Estimate
    forecast: Forecast
    items: tuple[Item, ...]
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
    supply: tuple[Bin, ...] = ()
    """Members that are there and not leaving, then as many typical ones as could be added."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """What this policy asked to be remembered with the last decision; empty at first."""

    @property
    def replicas_min(self) -> int:
        return min(self.config.min_replicas, self.replicas_max)

    def bounded(self, replicas: int) -> int:
        """Within the bounds of the configuration."""
        return max(self.replicas_min, min(replicas, self.replicas_max))


class Policy(Protocol):
    """Decides how many, and when. Holds no state: what it must not forget it puts into ``Sizing.memory``."""

    name: str
    parameters: frozenset[str]
    """Names of the parameters it takes."""

    def decide(self, view: View) -> Sizing:
        """The number of replicas wanted from now on, with its reason. Deterministic."""
        ...
