"""One call of ``loadtrim simulate``: what is played, and what came of each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtrim.simulate import Load, Options, Outcome, PlanConfig, Summary
from loadtrim.simulate.study.fixed_group import seconds_until_joined
from loadtrim.simulate.study.price import Price

__all__ = ["PolicyResult", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One call of ``loadtrim simulate``."""

    load: Load
    options: Options
    configs: Sequence[PlanConfig]
    """One for each policy; they differ in policy and packer."""
    notes: Sequence[str]
    arguments: Mapping[str, Any]
    """Of the command line, by name, those that were not given included."""
    others: Sequence[str]
    """Arguments that were given and that the head does not tell in words."""
    price: Price | None = None
    """Of a replica; None: nobody asked for money."""

    @property
    def seconds_until_joined(self) -> int:
        """Seconds until the first replica that is asked for can be there."""
        return seconds_until_joined(self.configs[0], self.options)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The outcome of one policy."""

    name: str
    config: PlanConfig
    summary: Summary
    first: Outcome
    """Of the first seed."""
    worst: Outcome
    """Of the seed with the fewest records in time."""
    worst_seed: int
    share_later: float | None
    """Share in time of what arrived after the first seconds, the mean over the seeds; None: nothing did."""

    @property
    def holds(self) -> bool:
        """Is the objective's share held?"""
        return self.summary.share_in_time >= self.config.sla_share
