"""Policies of the papers in a real group: what each of them looks at is measured there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration.harness import eventually, group_of_processes
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("flas:cooldown_seconds=0,upper_seconds=30,lower_seconds=1e-9", "a record takes"),
        ("hpa_cpu:sync_seconds=0.3", "the members are busy for"),
        ("varga_v1:sync_seconds=0.3,metric_seconds=10", "times what is done comes"),
        ("dhalion_adapted:metric_seconds=10", "the lag changes by"),
        ("li_ku", "the queueing model asks for"),
        ("ds2_modern:cooldown_seconds=0", "records/s arrive, a replica does"),
    ],
)
async def test_what_a_policy_looks_at_is_measured(
    quick_kafka: Cluster, tmp_path: Path, choice: str, words: str
) -> None:
    env = {"LOADTRIM_POLICY": choice, "LOADTRIM_PACKER": "sticky", "LOADTRIM_DECISION_SECONDS": "0.3"}
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", env=env)
        await group.until_stable("a", members=1)

        async def decided() -> Any:
            _, status = await group.leader()
            decision = status["last_decision"] or {}
            return decision.get("outcome") not in (None, "hold") and words in decision["reason"] and decision

        decision: dict[str, Any] = await eventually(decided, f"a decision that says {words!r}")
        assert decision["policy"] == choice
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)
