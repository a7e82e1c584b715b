"""Which version is sent to whom."""

from __future__ import annotations

import pytest

from loadtrim_agent.core.model import Partition
from loadtrim_agent.kafka.fetch.request import NO_SESSION, SessionFetchRequest


def request(rack: str) -> SessionFetchRequest:
    return SessionFetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
        isolation_level=0,
        session=NO_SESSION,
        fetch=[(Partition("topic", 0), 7)],
        rack=rack,
    )


@pytest.mark.parametrize(
    ("rack", "known", "version"),
    [("", (0, 18), 10), ("near", (0, 18), 11), ("", (4, 8), 8), ("near", (4, 8), 8), ("", (11, 18), 11)],
)
def test_a_follower_is_asked_only_by_who_names_a_rack(rack: str, known: tuple[int, int], version: int) -> None:
    """From version 11 on followers answer consumers: one that was the leader would be read on unnoticed."""
    assert version == request(rack).prepare({1: known}).API_VERSION
