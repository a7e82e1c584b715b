"""Members that come, go, die and freeze under load, on a real broker: nothing lost, nothing owned twice."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from demo.journal import clock_ns
from integration.harness import Group, Member, committed_offsets, eventually, group_of_processes
from loadtrim.testing import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

SESSION_SECONDS = 3.0


async def test_join_and_graceful_leave(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Nobody dies: nothing may be repeated, out of order or owned twice, whoever comes and goes."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a")
        await group.start_all("b", "c")
        statuses = await group.until_stable("a", "b", "c", members=3)
        assert {s["state"] for s in statuses} == {"stable"}

        await group.until_owned("a", "b", "c")
        leader, _ = await group.leader()
        assert await group.end(leader) == 0
        await group.until_stable(*group.members, members=2)
        assert await group.end(sorted(group.members)[0]) == 0
        await group.until_stable(*group.members, members=1)
        await group.start_all("d")
        await group.until_stable(*group.members, members=2)
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)
    assert verdict.processes == 4


async def kill(group: Group, name: str) -> tuple[Member, float]:
    """Kill a member and wait until its partitions are consumed again. Returns it and the seconds without an owner."""
    member = group.members[name]
    began = time.monotonic()
    assert await group.end(name, signal.SIGKILL) == -signal.SIGKILL
    await group.until_consuming()
    return member, time.monotonic() - began


async def test_kill_of_a_member_and_of_the_leader(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Owned again within the session timeout plus a second; repeated at most what was done since the last commit."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b", "c", auto_commit_interval_ms=200)
        await group.until_stable("a", "b", "c", members=3)
        leader, _ = await group.leader()
        follower = next(name for name in sorted(group.members) if name != leader)
        killed = []
        for name in (follower, leader):
            member, seconds = await kill(group, name)
            killed.append(member.pid)
            # A record done again after that comes on top: the next of each partition is 0.1 s away.
            assert seconds <= SESSION_SECONDS + 1.0 + 0.5, f"{name}: {seconds:.2f} s"
            await group.until_stable(*group.members, members=len(group.members))
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    assert not verdict.after_lost_lease
    pids = {f"/{pid}" for pid in killed}
    for found in (*verdict.repeated, *verdict.handed_out_again):
        first = found.handed_out[0]
        assert any(first.process.endswith(pid) for pid in pids), str(found)


async def test_frozen_past_the_session_timeout(quick_kafka: Cluster, tmp_path: Path) -> None:
    """SIGSTOP, the others take over, SIGCONT: the sleeper hands out nothing it lost and commits nothing."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b", "c", auto_commit_interval_ms=100)
        before = {s["instance"]: s for s in await group.until_stable("a", "b", "c", members=3)}
        sleeper = group.members["b"]
        await group.until_owned("a", "b", "c", everybody=True)
        frozen_ns = clock_ns()
        await group.send_signal("b", signal.SIGSTOP)
        group.supervisor.lease_lost(sleeper.pid, frozen_ns + round((SESSION_SECONDS - 1.0) * 1e9))
        del group.members["b"]
        await group.until_stable("a", "c", members=2)
        await group.until_consuming()
        taken_over = await committed_offsets(quick_kafka.bootstrap, group.group)
        group.members["b"] = sleeper
        thawed_ns = clock_ns()
        await group.send_signal("b", signal.SIGCONT)
        await group.until_stable("a", "b", "c", members=3)
        rejoined = await committed_offsets(quick_kafka.bootstrap, group.group)
        assert all(rejoined[at] >= offset for at, offset in taken_over.items()), "an old commit was accepted"
        after = {s["instance"]: s for s in await group.until_stable("a", "b", "c", members=3)}
        assert after["b"]["member"] != before["b"]["member"], "it had been evicted, so it has a new id"
        assert after["b"]["errors"].get("forgotten") == 1
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    # What it was handed after it woke up belongs to it: nobody else was handed it later or at the same time.
    for found in (*verdict.repeated, *verdict.handed_out_again):
        at = [touch for touch in found.handed_out if touch.process.startswith("b/")]
        assert at, str(found)
        assert found.handed_out[0].process.startswith("b/"), str(found)
    assert thawed_ns > frozen_ns


async def test_frozen_within_the_session_timeout(quick_kafka: Cluster, tmp_path: Path) -> None:
    """A pause shorter than the lease costs time and nothing else."""
    async with group_of_processes(quick_kafka, tmp_path, session_ms=6_000) as group:
        await group.start_all("a", "b")
        (before, _) = await group.until_stable("a", "b", members=2)
        await group.send_signal("b", signal.SIGSTOP)
        mark = len(group.seen().done)
        await group.until(lambda seen: len(seen.done) > mark + 60, "a second passes by the records of the other")
        await group.send_signal("b", signal.SIGCONT)
        await group.until_consuming()
        (after, _) = await group.until_stable("a", "b", members=2)
        assert after["generation"] == before["generation"]
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_second_sigterm_leaves_at_once(quick_kafka: Cluster, tmp_path: Path) -> None:
    """The first SIGTERM waits for the record in hand, the second does not; the record is handed out again elsewhere."""
    async with group_of_processes(quick_kafka, tmp_path, rate=20.0) as group:
        await group.start("a", fault={"kind": "silent", "at": 5, "seconds": 3600})
        await group.until(lambda seen: len(seen.done) >= 4 and seen.in_hand, "a record is in hand for ever")
        member = group.members["a"]
        await group.send_signal("a", signal.SIGTERM)
        await eventually(lambda: "SIGTERM: handing over" in member.log, "the first SIGTERM is heard")
        await group.send_signal("a", signal.SIGTERM)
        # From here on it has no lease, of its own will; the record in hand runs on.
        group.supervisor.lease_lost(member.pid)
        await eventually(lambda: "leaving at once" in member.log, "the second SIGTERM is heard")
        await group.start_all("b")
        await group.until_stable("b", members=1)
        await group.end("a", signal.SIGKILL)
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    assert [found.times_done for found in verdict.handed_out_again] == [1]
    assert not verdict.repeated


async def test_several_leave_at_once(quick_kafka: Cluster, tmp_path: Path) -> None:
    """A rolling restart's worst moment: all but one are told to go in the same instant."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b", "c", "d")
        await group.until_stable("a", "b", "c", "d", members=4)
        codes = await asyncio.gather(group.end("a"), group.end("b"), group.end("c"))
        assert codes == [0, 0, 0]
        await group.until_stable("d", members=1)
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)
