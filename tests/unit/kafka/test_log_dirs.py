"""Sizes in the broker's answer, and the answer that is a refusal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError
from aiokafka.structs import TopicPartition

from loadtrim_agent.kafka.log_dirs import LogDirsRequest, sizes_of


def test_sizes_of_all_directories_but_not_of_copies_on_their_way() -> None:
    answer = SimpleNamespace(
        log_dirs=[
            (0, "/a", [("t", [(0, 100, 0, False), (1, 7, 0, True)])]),
            (0, "/b", [("t", [(1, 50, 0, False)])]),
            (57, "/broken", []),
        ]
    )
    assert sizes_of(answer) == {TopicPartition("t", 0): 100, TopicPartition("t", 1): 50}


def test_an_empty_answer_names_the_acl() -> None:
    with pytest.raises(ClusterAuthorizationFailedError, match="Describe on the cluster"):
        sizes_of(SimpleNamespace(log_dirs=[]))


def test_the_request_names_the_partitions() -> None:
    request = LogDirsRequest({"t": [0, 1]}).prepare({35: (1, 4)})
    assert request.encode() == b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
