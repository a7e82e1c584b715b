"""Which version is sent to whom."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.request import NO_SESSION, SessionFetchRequest

from .batches import request


@pytest.mark.parametrize(
    ("rack", "known", "version"),
    [("", (0, 18), 10), ("near", (0, 18), 11), ("", (4, 8), 8), ("near", (4, 8), 8), ("", (11, 18), 11)],
)
def test_a_follower_is_asked_only_by_who_names_a_rack(rack: str, known: tuple[int, int], version: int) -> None:
    """From version 11 on followers answer consumers: one that was the leader would be read on unnoticed."""
    assert version == request(rack).prepare({1: known}).API_VERSION


def test_each_partition_has_a_limit_of_its_own() -> None:
    one, two = Partition("topic", 0), Partition("topic", 1)
    fields = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session": NO_SESSION,
        "fetch": [(one, 7), (two, 8)],
    }
    for version in range(4, 12):
        made = SessionFetchRequest(partition_max_bytes={one: 100, two: 200}, rack="near", **fields).prepare(
            {1: (4, version)}
        )
        assert version == made.API_VERSION
        ((_, entries),) = made.topics
        assert [(entry[0], entry[-1]) for entry in entries] == [(0, 100), (1, 200)]
