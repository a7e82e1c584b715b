"""A test file without its module is found, in every room."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture.mirror import without_module

NAMES = [
    "loadtrim_agent.protocol.lease",
    "loadtrim_agent.kafka.fetch.chunk",
    "loadtrim.settings",
    "loadtrim_spark.learning.days",
    "demo.checker",
]


@pytest.mark.parametrize(
    "path",
    [
        "unit/protocol/test_lease.py",
        "unit/protocol/test_lease_expiry.py",
        "unit/kafka/fetch/test_chunk.py",
        "unit/kafka/test_fetch.py",
        "unit/sdk/test_settings.py",
        "unit/examples/test_checker.py",
        "spark/learning/test_days.py",
        "integration/test_anything.py",
    ],
)
def test_a_test_in_its_place(tmp_path: Path, path: str) -> None:
    assert found(tmp_path, path) == {}


@pytest.mark.parametrize(
    "path",
    [
        "unit/protocol/test_leases.py",
        "unit/kafka/test_lease.py",
        "unit/kafka/test_chunk.py",
        "unit/sdk/test_lease.py",
        "unit/examples/test_lease.py",
        "spark/learning/test_settings.py",
    ],
)
def test_a_test_elsewhere(tmp_path: Path, path: str) -> None:
    assert found(tmp_path, path) == {path: 1}


def found(tests: Path, path: str) -> dict[str, int]:
    (tests / path).parent.mkdir(parents=True)
    (tests / path).touch()
    return without_module(tests, [*NAMES, "loadtrim_agent.kafka.fetch"])
