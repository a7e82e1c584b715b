"""Mixed groups: rolling migration under load from plain aiokafka to loadtrim and back, and what else makes them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from demo.checker import CheckerVerdict, Touch
from demo.journal import clock_ns, read_run
from integration.harness import Commit, Group, accepted_commits, eventually, group_of_processes
from loadtrim.testing import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

PLAIN = {"client": "aiokafka", "auto_commit_interval_ms": 200, "metadata_max_age_ms": 5_000}

STARTS = 0.5
"""Seconds from the offset that an owner starts at being read until its first record is handed out."""


async def replace(group: Group, old: str, new: str, **options: object) -> None:
    """One step of a rolling update: the new one first, then the old one goes."""
    await group.start_all(new, **options)
    assert await group.end(old) == 0


class Evidence:
    """What was repeated, on the clock of the verdict: seconds from the first send."""

    def __init__(self, group: Group, verdict: CheckerVerdict, commits: list[Commit]) -> None:
        self.verdict = verdict
        self.repeats = (*verdict.repeated, *verdict.handed_out_again)
        self._origin_ns = min(sent.sent_ns for sent in read_run(group.directory).sent.values())
        origin = time.time() - (clock_ns() - self._origin_ns) / 1e9
        self._commits = [commit._replace(at=commit.at - origin) for commit in commits]

    def outside(self, windows: list[tuple[int, int]]) -> list[str]:
        """Repeats and double owners that one of ours had part in while the group was not a mixed one."""
        spans = [((begin - self._origin_ns) / 1e9, (end - self._origin_ns) / 1e9) for begin, end in windows]

        def ours_alone(touch: Touch) -> bool:
            mixed = any(begin <= touch.handed_at <= end for begin, end in spans)
            return touch.process.startswith("l") and not mixed

        found = [str(repeat) for repeat in self.repeats if any(map(ours_alone, repeat.handed_out))]
        return found + [str(two) for two in self.verdict.double_owners if ours_alone(two.intruder)]

    def of_what_was_committed(self) -> list[str]:
        """Records handed out again although a commit behind them had been acknowledged before."""
        found = []
        for repeat in self.repeats:
            partition = int(re.findall(r"\d+", repeat.partition)[-1])
            for touch in repeat.handed_out[1:]:
                before = [
                    c.offset for c in self._commits if c.partition == partition and c.at < touch.handed_at - STARTS
                ]
                if before and before[-1] > touch.offset:
                    found.append(f"{repeat}; committed: {before[-1]}")
        return found


async def test_rolling_migration_there_and_back(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Nothing is lost; what is repeated is repeated while both kinds are there, and was not committed yet."""
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
        evidence = Evidence(group, verdict, await accepted_commits(quick_kafka.bootstrap, group.group, group.topic))
    assert not verdict.lost, str(verdict)
    assert not verdict.left_over, str(verdict)
    assert not verdict.foreign, str(verdict)
    assert not evidence.outside(windows)
    assert not evidence.of_what_was_committed()


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
