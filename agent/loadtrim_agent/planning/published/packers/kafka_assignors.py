"""Kafka's own assignors as packers: they look at counts only, and use every member that stays.

``range`` and ``roundrobin`` deal everything out anew; ``kd_n`` deals round-robin over ``n`` members once and never
again (what Landau'24 compares with): a partition that has an owner keeps it. Silent members keep what they have and are
dealt nothing. ``sticky`` is in :mod:`...placement.sticky`.

Source: ``org.apache.kafka.clients.consumer.RangeAssignor``, ``RoundRobinAssignor``; Landau'24, section VI-C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from loadtrim_agent.common.assignors.standard import range_assign, roundrobin_assign
from loadtrim_agent.common.partition import Partition

from ...parameters import Parameters
from ...placement.problem import Bin, Item, Problem
from ...placement.result import placement
from ...placement.victims import going
from ...values import Placement

__all__ = ["Dealt", "KafkaOnce"]

Deal = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], dict[str, list[Partition]]]


class Dealt:
    """The packers ``range`` and ``roundrobin``."""

    kind = Parameters

    def __init__(self, name: str) -> None:
        self.name = name
        self._deal = range_assign if name == "range" else roundrobin_assign

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`."""
        victims = going(problem)
        receivers = [entry for entry in problem.staying if entry.member not in victims]
        owners = _kept(problem, receivers, dealt_anew=problem.may_move)
        dealt = _dealt(self._deal, problem.items, [entry for entry in receivers if not entry.silent])
        owners = {**dealt, **owners}
        return placement(problem, owners, victims, f"dealt out by {self.name}")


class KafkaOnceParameters(Parameters, frozen=True, kw_only=True):
    """The paper says n with each run."""

    n: Annotated[int, Meta(ge=1, le=100_000, description="members that are dealt to (default: all)")] | None = None


class KafkaOnce:
    """The packer ``kd_n``."""

    name = "kd_n"
    kind = KafkaOnceParameters

    def __init__(self, given: KafkaOnceParameters | None = None) -> None:
        self._count = (given or KafkaOnceParameters()).n

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`. In a group the first ``n`` members are dealt to; the others stay
        idle."""
        victims = going(problem)
        receivers = [entry for entry in problem.staying if entry.member not in victims]
        owners = _kept(problem, receivers, dealt_anew=False)
        speaking = [entry for entry in receivers if not entry.silent]
        dealt = _dealt(roundrobin_assign, problem.items, speaking[: self._count])
        if len(dealt) < len(problem.items):  # what only others may own goes to them
            dealt = {**_dealt(roundrobin_assign, problem.items, speaking), **dealt}
        return placement(problem, {**dealt, **owners}, victims, "dealt out once")


def _dealt(deal: Deal, items: Sequence[Item], receivers: Sequence[Bin]) -> dict[Partition, str]:
    """Owners by an assignor that knows topics and how many partitions they have."""
    numbers: dict[str, list[int]] = {}
    for partition in sorted(item.partition for item in items):
        numbers.setdefault(partition.topic, []).append(partition.partition)
    if not receivers:
        return {}
    subscribed = {entry.member: sorted(numbers if entry.topics is None else entry.topics) for entry in receivers}
    dealt = deal(subscribed, {topic: len(listed) for topic, listed in numbers.items()})
    return {
        Partition(place.topic, numbers[place.topic][place.partition]): member
        for member, places in dealt.items()
        for place in places
    }


def _kept(problem: Problem, receivers: Sequence[Bin], *, dealt_anew: bool) -> dict[Partition, str]:
    """Partitions that keep their owner: all, or only those that may not move and those of silent members."""
    members = {entry.member: entry for entry in receivers}
    kept: dict[Partition, str] = {}
    for item in problem.items:
        entry = members.get(item.owner) if item.owner is not None else None
        if entry is not None and entry.may_have(item) and (entry.silent or not (dealt_anew and item.movable)):
            kept[item.partition] = entry.member
    return kept
