"""Range and round-robin equal what aiokafka's own assignors answer, whatever the subscriptions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtrim_agent.common.assignors.standard import range_assign, roundrobin_assign
from loadtrim_agent.common.partition import Partition

TOPICS = ("a", "b", "c.d", "zz")

subscriptions = st.dictionaries(
    st.text("abcXYZ09-", min_size=1, max_size=5),
    st.lists(st.sampled_from(TOPICS), unique=True, max_size=4),
    min_size=1,
    max_size=7,
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))


class _Cluster(ClusterMetadata):
    """aiokafka's own metadata class, told the partitions directly."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        super().__init__()
        self._sizes = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._sizes[topic])) if topic in self._sizes else None


def kafkas_answer(
    assignor: type[RangePartitionAssignor] | type[RoundRobinPartitionAssignor],
    members: Mapping[str, list[str]],
    partitions: Mapping[str, int],
) -> dict[str, list[Partition]]:
    metadata = {member: assignor.metadata(topics) for member, topics in members.items()}
    answer = assignor.assign(_Cluster(partitions), metadata)
    return {
        member: sorted(Partition(topic, number) for topic, numbers in given.assignment for number in numbers)
        for member, given in answer.items()
    }


@pytest.mark.slow
@given(members=subscriptions, partitions=counts)
@settings(max_examples=150, deadline=None)
def test_range_is_aiokafkas(members: dict[str, list[str]], partitions: dict[str, int]) -> None:
    assert range_assign(members, partitions) == kafkas_answer(RangePartitionAssignor, members, partitions)


@pytest.mark.slow
@given(members=subscriptions, partitions=counts)
@settings(max_examples=150, deadline=None)
def test_roundrobin_is_aiokafkas(members: dict[str, list[str]], partitions: dict[str, int]) -> None:
    assert roundrobin_assign(members, partitions) == kafkas_answer(RoundRobinPartitionAssignor, members, partitions)


def test_range_gives_the_first_members_one_more() -> None:
    """The example of Kafka's own documentation."""
    answer = range_assign({"C1": ["t0", "t1"], "C0": ["t0", "t1"]}, {"t0": 3, "t1": 3})
    assert answer == {
        "C0": [Partition("t0", 0), Partition("t0", 1), Partition("t1", 0), Partition("t1", 1)],
        "C1": [Partition("t0", 2), Partition("t1", 2)],
    }


def test_roundrobin_passes_over_who_does_not_subscribe() -> None:
    """The example of Kafka's own documentation."""
    answer = roundrobin_assign(
        {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}, {"t0": 1, "t1": 2, "t2": 3}
    )
    assert answer == {
        "C0": [Partition("t0", 0)],
        "C1": [Partition("t1", 0)],
        "C2": [Partition("t1", 1), Partition("t2", 0), Partition("t2", 1), Partition("t2", 2)],
    }


def test_members_come_sorted_and_nobody_is_left_out() -> None:
    members = {"b": ["t"], "a": [], "c": ["gone"]}
    assert list(range_assign(members, {"t": 1})) == ["a", "b", "c"]
    assert roundrobin_assign(members, {"t": 1}) == {"a": [], "b": [Partition("t", 0)], "c": []}
