"""Members that come, go, die and freeze under load, on a real broker: nothing lost, nothing owned twice."""

from __future__ import annotations

import asyncio
import datetime
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from demo.checker import CheckerVerdict
from demo.journal import clock_ns
from integration.harness import Commit, Group, Member, accepted_commits, eventually, group_of_processes
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
    """Kill a member that owns something, and wait until each of its partitions is consumed by another. Returns it and
    the seconds until the last of them was."""
    member = group.members[name]
    owned = {p["partition"] for p in (await member.status())["partitions"]}
    assert owned, f"{name} owns nothing"
    killed_ns = clock_ns()
    assert await group.end(name, signal.SIGKILL) == -signal.SIGKILL

    def first_handed_out() -> dict[int, int]:
        first: dict[int, int] = {}
        for other in group.members.values():
            for line in group.journal_of(other):
                partition, handed_ns = int(line[2]) if line[0] == "H" else -1, int(line[5]) if line[0] == "H" else 0
                if partition in owned and handed_ns > killed_ns:
                    first[partition] = min(handed_ns, first.get(partition, handed_ns))
        return first

    await eventually(lambda: owned <= first_handed_out().keys(), f"{sorted(owned)} of {name} are consumed again")
    return member, (max(first_handed_out().values()) - killed_ns) / 1e9


async def test_kill_of_a_member_and_of_the_leader(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Owned again within the session timeout plus a second; repeated at most what was done since the last commit that
    the coordinator took before the kill."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b", "c", auto_commit_interval_ms=200)
        await group.until_stable("a", "b", "c", members=3)
        await group.until_owned("a", "b", "c", everybody=True)
        leader, _ = await group.leader()
        follower = next(name for name in sorted(group.members) if name != leader)
        killed: dict[int, float] = {}
        for name in (follower, leader):
            killed_at = time.time()
            member, seconds = await kill(group, name)
            killed[member.pid] = killed_at
            assert seconds <= SESSION_SECONDS + 1.0, f"{name}: {seconds:.2f} s"
            await group.until_stable(*group.members, members=len(group.members))
            await group.until_consuming()
        verdict = await group.finish()
        commits = await accepted_commits(quick_kafka.bootstrap, group.group, group.topic)
    assert verdict.ok, str(verdict)
    assert not verdict.after_lost_lease
    assert {commit.partition for commit in commits} == set(range(group.partitions))
    assert_only_what_was_not_committed(verdict, commits, killed)


def assert_only_what_was_not_committed(verdict: CheckerVerdict, commits: list[Commit], ended: dict[int, float]) -> None:
    """What was repeated is of these processes, and lies above what was committed when they ended (seconds since the
    epoch, by process id)."""
    for found in (*verdict.repeated, *verdict.handed_out_again):
        pid = int(found.handed_out[0].process.rpartition("/")[2])
        assert pid in ended, str(found)
        partition = int(found.partition.rpartition("-")[2])
        before = [each.offset for each in commits if each.partition == partition and each.at <= ended[pid]]
        assert found.offset >= max(before, default=0), f"{found}, committed up to {max(before)}"


async def test_frozen_past_the_session_timeout(quick_kafka: Cluster, tmp_path: Path) -> None:
    """SIGSTOP, the others take over, SIGCONT: the sleeper hands out nothing it lost and commits nothing."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b", "c", auto_commit_interval_ms=100)
        before = {s["instance"]: s for s in await group.until_stable("a", "b", "c", members=3)}
        sleeper = group.members["b"]
        await group.until_owned("a", "b", "c", everybody=True)
        frozen_ns, frozen_at = clock_ns(), time.time()
        await group.send_signal("b", signal.SIGSTOP)
        group.supervisor.lease_lost(sleeper.pid, frozen_ns + round((SESSION_SECONDS - 1.0) * 1e9))
        del group.members["b"]
        await group.until_stable("a", "c", members=2)
        await group.until_consuming()
        group.members["b"] = sleeper
        thawed_ns = clock_ns()
        await group.send_signal("b", signal.SIGCONT)
        await group.until_stable("a", "b", "c", members=3)
        after = {s["instance"]: s for s in await group.until_stable("a", "b", "c", members=3)}
        assert after["b"]["member"] != before["b"]["member"], "it had been evicted, so it has a new id"
        assert after["b"]["errors"].get("forgotten") == 1
        back_ns = entered_after(sleeper, thawed_ns)
        await eventually(
            lambda: any(line[0] == "H" and int(line[5]) >= back_ns for line in group.journal_of(sleeper)),
            "it takes part again",
        )
        verdict = await group.finish()
        accepted = await accepted_commits(quick_kafka.bootstrap, group.group, group.topic)
        handed_out = [line for line in group.journal_of(sleeper) if line[0] == "H"]
    assert verdict.ok, str(verdict)
    assert not [line for line in handed_out if thawed_ns <= int(line[5]) < back_ns], "handed out while evicted"
    # A commit of what it had done before would put the offset back behind the new owner's.
    for partition in range(group.partitions):
        offsets = [commit.offset for commit in accepted if commit.partition == partition]
        assert len(offsets) > 1
        assert offsets == sorted(offsets), f"an old commit of partition {partition} was accepted: {offsets}"
    outcomes = commit_outcomes(sleeper, before["b"]["member"])
    assert outcomes, "commits are logged"
    late = [codes for at_ns, codes in outcomes if at_ns >= thawed_ns]
    assert not any("=0" in codes for codes in late), late
    # What was handed out twice was in its hand when it froze; nobody was handed anything after it that it had taken.
    for found in (*verdict.repeated, *verdict.handed_out_again):
        first, *others = found.handed_out
        assert first.process.startswith("b/"), str(found)
        assert not any(touch.process.startswith("b/") for touch in others), str(found)
    assert_only_what_was_not_committed(verdict, accepted, {sleeper.pid: frozen_at})


def entered_after(member: Member, since_ns: int) -> int:
    """When a member entered its first generation after a time."""
    lines = [line for line in member.log.splitlines() if " INFO Group " in line and ": generation " in line]
    return min(at for at in map(logged_ns, lines) if at >= since_ns)


def commit_outcomes(member: Member, as_member: str) -> list[tuple[int, str]]:
    """(when, codes by partition) of each commit that was answered to this member id."""
    lines = [line for line in member.log.splitlines() if "Commit answered" in line and as_member in line]
    return [(logged_ns(line), line.rpartition(": ")[2]) for line in lines]


def logged_ns(line: str) -> int:
    """The time of a log line on the journals' clock; within a day."""
    hours, minutes, seconds = line.split(" ", 1)[0].split(":")
    now = datetime.datetime.now()
    of_day = (int(hours) * 60 + int(minutes)) * 60 + float(seconds)
    ago = ((now.hour * 60 + now.minute) * 60 + now.second + now.microsecond / 1e6 - of_day) % 86_400
    return clock_ns() - round(ago * 1e9)


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


RECORDS = 50
"""Of each partition; five seconds of the load."""
GAP_SECONDS_MAX = 2.5
"""Longest time without a record of a partition that is sent ten a second. Chosen: half of what is looked at of the
rebalance; a busy machine may stand still, too."""


def longest_gap(journal: list[list[str]], since_ns: int) -> float:
    """Return the longest time between two records of a partition that a member was handed, from then on."""
    times: dict[str, list[int]] = {}
    for line in journal:
        if line[0] == "H":
            times.setdefault(line[2], []).append(int(line[5]))
    gaps = [after - before for each in times.values() for before, after in pairwise(each) if after > since_ns]
    return max(gaps) / 1e9


async def test_what_does_not_move_goes_on_while_a_rebalance_waits(quick_kafka: Cluster, tmp_path: Path) -> None:
    """The coordinator waits for a frozen member; the others are handed records of all that they own meanwhile, and
    never none for long."""
    async with group_of_processes(quick_kafka, tmp_path, session_ms=15_000) as group:
        await group.start_all("a", "b", "c")
        (before, *_) = await group.until_stable("a", "b", "c", members=3)
        owned = await group.until_owned("a", "b", "c", everybody=True)
        await group.send_signal("c", signal.SIGSTOP)
        asked_ns = clock_ns()
        await group.start("d")
        await group.until_stable("a", "b", state="joining")
        began_ns = clock_ns()

        def handed_out() -> bool:
            counts = {name: group.handed_out(group.members[name], began_ns) for name in ("a", "b")}
            return all(counts[name].get(partition, 0) >= RECORDS for name in counts for partition in owned[name])

        await eventually(handed_out, "records of each partition of the members that wait")
        for name in ("a", "b"):
            assert longest_gap(group.journal_of(group.members[name]), asked_ns) < GAP_SECONDS_MAX, name
        for name in ("a", "b"):
            status = await group.members[name].status()
            assert (status["state"], status["generation"]) == ("joining", before["generation"]), "it still waits"
        assert await group.end("c", signal.SIGKILL) == -signal.SIGKILL
        await group.until_stable("a", "b", "d", members=3)
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    for found in (*verdict.repeated, *verdict.handed_out_again):
        assert found.handed_out[0].process.startswith("c/"), str(found)


async def test_second_sigterm_leaves_at_once(quick_kafka: Cluster, tmp_path: Path) -> None:
    """The first SIGTERM waits for the record in hand, the second does not; the record is handed out again elsewhere."""
    async with group_of_processes(quick_kafka, tmp_path, rate=20.0) as group:
        # Its drain time is longer than anything here waits, so that no first SIGTERM makes it leave.
        patient = {"LOADTRIM_DRAIN_SECONDS": "3600", "LOADTRIM_EXIT_SECONDS": "3600"}
        await group.start("a", fault={"kind": "silent", "at": 5, "seconds": 3600}, env=patient)
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
