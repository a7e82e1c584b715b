"""Mixed groups: rolling migration under load from plain aiokafka to loadtrim and back, and what else makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.checker import Verdict
from demo.journal import clock_ns, read_run
from integration.harness import Group, eventually, group_of_processes
from loadtrim.testing import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

PLAIN = {"client": "aiokafka", "auto_commit_interval_ms": 200, "metadata_max_age_ms": 5_000}


async def replace(group: Group, old: str, new: str, **options: object) -> None:
    """One step of a rolling update: the new one first, then the old one goes."""
    await group.start_all(new, **options)
    assert await group.end(old) == 0


def repeats_outside(group: Group, verdict: Verdict, windows: list[tuple[int, int]]) -> list[str]:
    """What was repeated or owned twice at a time when the group was not a mixed one."""
    origin_ns = min(sent.sent_ns for sent in read_run(group.directory).sent.values())
    spans = [((begin - origin_ns) / 1e9, (end - origin_ns) / 1e9) for begin, end in windows]

    def mixed(at: float) -> bool:
        return any(begin <= at <= end for begin, end in spans)

    found = [
        str(repeat)
        for repeat in (*verdict.repeated, *verdict.handed_out_again)
        if not any(mixed(touch.handed_at) for touch in repeat.handed_out)
    ]
    return found + [str(two) for two in verdict.double_owners if not mixed(two.intruder.handed_at)]


async def test_rolling_migration_there_and_back(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Nothing is lost; what is repeated is repeated while both kinds are in the group."""
    async with group_of_processes(quick_kafka, tmp_path, session_ms=4_000) as group:
        await group.start_all("p1", "p2", **PLAIN)
        windows = []
        began = clock_ns()
        await replace(group, "p1", "l1")
        await group.until_stable("l1", state="mixed")
        await replace(group, "p2", "l2")
        await group.until_stable("l1", "l2", members=2)
        windows.append((began, clock_ns()))
        await group.until_consuming()
        # All ours for a while: members come and go without a trace.
        await group.start_all("l3")
        await group.until_stable("l1", "l2", "l3", members=3)
        assert await group.end("l3") == 0
        await group.until_stable("l1", "l2", members=2)
        await group.until_consuming()
        began = clock_ns()
        await replace(group, "l1", "p3", **PLAIN)
        await group.until_stable("l2", state="mixed")
        await replace(group, "l2", "p4", **PLAIN)
        windows.append((began, clock_ns()))
        await group.until_consuming()
        verdict = await group.finish()
    assert not verdict.lost, str(verdict)
    assert not verdict.left_over, str(verdict)
    assert not verdict.foreign, str(verdict)
    # The plain clients' own rebalances at the end of each window repeat a little, as they do without us.
    late = int(2e9)
    assert not repeats_outside(group, verdict, [(begin, end + late) for begin, end in windows])


async def test_one_replica_disabled_makes_the_group_mixed(quick_kafka: Cluster, tmp_path: Path) -> None:
    """LOADTRIM_ENABLED=false is a plain aiokafka consumer under the same code: the group works, and moves nothing."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a")
        await group.until_stable("a", members=1)
        await group.start_all("off", env={"LOADTRIM_ENABLED": "false"})
        (mixed,) = await group.until_stable("a", state="mixed")
        assert mixed["protocol"] in ("range", "roundrobin")
        member = group.members["a"]

        async def shares() -> bool:
            return 0 < len((await member.status())["partitions"]) < 6

        await eventually(shares, "both have a part")
        await group.until_consuming()
        assert await group.end("off") == 0
        await group.until_stable("a", members=1)
        await group.until_consuming()
        verdict = await group.finish()
    assert not verdict.lost, str(verdict)
    assert not verdict.foreign, str(verdict)


async def test_member_without_a_log_makes_the_group_mixed(quick_kafka: Cluster, tmp_path: Path) -> None:
    """A control topic that is somebody else's, with one partition: said with what to do, and the group goes on."""
    foreign = quick_kafka.create_topic(partitions=1)
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a")
        await group.start_all("b", env={"LOADTRIM_CONTROL_TOPIC": foreign})
        await group.until_stable("a", "b", state="mixed")
        await group.until_owned("a", "b", everybody=True)
        said = [line for line in group.members["b"].log.splitlines() if "fewer than 2 partitions" in line]
        assert len(said) == 1
        assert "--partitions 2" in said[0]
        await group.until_consuming()
        assert await group.end("b") == 0
        await group.until_stable("a", members=1)
        verdict = await group.finish()
    assert not verdict.lost, str(verdict)
    assert not verdict.foreign, str(verdict)
