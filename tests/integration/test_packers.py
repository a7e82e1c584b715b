"""Packers of the papers in a real group: what they plan is what the members do, and no record is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration.harness import Group, eventually, group_of_processes
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka


async def planned(group: Group, packer: str, policy: str) -> dict[str, Any]:
    """The leader's newest decision, once it sees the group."""

    async def look() -> Any:
        _, status = await group.leader()
        decision = status["last_decision"] or {}
        return decision.get("outcome") not in (None, "hold") and decision

    decision: dict[str, Any] = await eventually(look, "a decision that is no hold")
    assert (decision["packer"], decision["policy"]) == (packer, policy)
    return decision


async def test_landau_s_controller_and_packer_fill_one_member_first(quick_kafka: Cluster, tmp_path: Path) -> None:
    """A load that one member can carry: MWF opens one bin, and everything moves there while it goes on being read."""
    env = {
        "LOADTRIM_POLICY": "landau24:interval_seconds=1",
        "LOADTRIM_PACKER": "mwf",
        "LOADTRIM_DECISION_SECONDS": "0.3",
    }
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", env=env)
        await group.start("b", env=env)
        await group.until_stable("a", "b", members=2)
        await planned(group, "mwf", "landau24:interval_seconds=1")

        async def one_has_all() -> bool:
            statuses = [await member.status() for member in group.members.values()]
            return sorted(len(status["partitions"]) for status in statuses) == [0, group.partitions]

        await eventually(one_has_all, "one member owns everything")
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_range_deals_runs_of_neighbours(quick_kafka: Cluster, tmp_path: Path) -> None:
    env = {"LOADTRIM_PACKER": "range", "LOADTRIM_POLICY": "fixed", "LOADTRIM_DECISION_SECONDS": "0.3"}
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", env=env)
        await group.start("b", env=env)
        await group.until_stable("a", "b", members=2)
        await planned(group, "range", "fixed")

        async def in_runs() -> bool:
            owned = [
                sorted(entry["partition"] for entry in (await member.status())["partitions"])
                for member in group.members.values()
            ]
            runs = all(one and one == list(range(one[0], one[0] + len(one))) for one in owned)
            return runs and sorted(p for one in owned for p in one) == list(range(group.partitions))

        await eventually(in_runs, "each member owns a run of neighbouring partitions")
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)
