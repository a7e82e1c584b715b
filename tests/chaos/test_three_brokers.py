"""Three brokers under load: leaders are moved, brokers are killed. Data, offsets and control topic are replicated."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.harness import Group, accepted_commits, group_of_processes
from integration.harness_brokers import lead, leaders, replicated
from loadtrim.testing import LocalKafka
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

OFFSETS = "__consumer_offsets"
SESSION_MS = 15_000
"""Above what a broker's death costs: it is noticed after 3 s, then others lead."""


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    with LocalKafka(brokers=3, short_run=True, heap_mb=256) as kafka:
        yield kafka


async def until_fresh(group: Group) -> None:
    """Everything is consumed again, and all members are in one generation."""
    await group.until_consuming()
    await group.until_stable(*group.members, members=len(group.members))


async def test_leaders_are_moved(three: LocalKafka, tmp_path: Path) -> None:
    """Of the data, of the control topic and of the offsets (so the coordinator too), to each broker in turn, while a
    member comes and another goes: nobody died, so nothing may be lost, repeated or owned twice."""
    async with group_of_processes(three, tmp_path, session_ms=SESSION_MS) as group:
        await group.start_all("a", "b")
        await group.until_stable("a", "b", members=2)
        led = (group.topic, control_topic(group.group), OFFSETS)
        for first in (1, 2, 3):
            replicas = [first, *(broker for broker in (1, 2, 3) if broker != first)]
            for topic in led:
                await lead(three, topic, await leaders(three, topic), replicas)
            await until_fresh(group)
            if first == 2:
                await group.start_all("c")
        assert await group.end("a", signal.SIGTERM) == 0
        await until_fresh(group)
        for member in ("b", "c"):
            errors = (await group.members[member].status())["errors"]
            assert "log_gap" not in errors, "a new leader that has all records is no gap"
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_each_broker_is_killed_and_comes_back(three: LocalKafka, tmp_path: Path) -> None:
    """So the one that leads the control topic, the group's coordinator and the controller are each killed once."""
    async with group_of_processes(three, tmp_path, session_ms=SESSION_MS) as group:
        await group.start_all("a", "b", "c")
        before = await group.until_stable("a", "b", "c", members=3)
        for topic in (group.topic, control_topic(group.group), OFFSETS):
            assert await replicated(three, topic) == {1, 2, 3}, topic
        for broker in three.brokers:
            await asyncio.to_thread(broker.kill)
            await group.until_consuming()
            await asyncio.to_thread(broker.start)
            await until_fresh(group)
        after = await group.until_stable("a", "b", "c", members=3)
        assert [s["member"] for s in after] == [s["member"] for s in before], "nobody was evicted"
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_a_broker_and_a_member_are_killed_together(three: LocalKafka, tmp_path: Path) -> None:
    """The worst moment: the coordinator dies, and with it a member.

    Repeated is only what that member had done after its last acknowledged commit, and likewise a member that a busy
    machine kept from its heartbeats for a session: it comes back with another id.
    """
    async with group_of_processes(three, tmp_path, session_ms=6_000) as group:
        await group.start_all("a", "b", "c", auto_commit_interval_ms=200)
        before = dict(zip("abc", await group.until_stable("a", "b", "c", members=3), strict=True))
        await group.until_owned("a", "b", "c", everybody=True)
        log_leader = (await leaders(three, control_topic(group.group)))[0]
        broker = three.brokers[log_leader - 1]
        victim = group.members["b"]
        killed_at = time.time()
        _, code = await asyncio.gather(asyncio.to_thread(broker.kill), group.end("b", signal.SIGKILL))
        assert code == -signal.SIGKILL
        await group.until_consuming()
        await asyncio.to_thread(broker.start)
        await until_fresh(group)
        await group.start_all("d")
        await until_fresh(group)
        after = dict(zip("acd", await group.until_stable("a", "c", "d", members=3), strict=True))
        evicted = [name for name in "ac" if before[name]["member"] != after[name]["member"]]
        lost = {victim.pid, *(group.members[name].pid for name in evicted)}
        verdict = await group.finish()
        commits = await accepted_commits(three.bootstrap, group.group, group.topic)
    assert verdict.ok, str(verdict)
    assert not verdict.out_of_order, str(verdict)
    for found in (*verdict.repeated, *verdict.handed_out_again):
        first, *others = found.handed_out
        assert int(first.process.rpartition("/")[2]) in lost, str(found)
        assert not any(touch.process.endswith(f"/{victim.pid}") for touch in others), str(found)
        partition = int(found.partition.rpartition("-")[2])
        committed = [commit.offset for commit in commits if commit.partition == partition and commit.at <= killed_at]
        assert found.offset >= max(committed, default=0), f"{found}, committed {max(committed)}"
    for partition in range(group.partitions):
        offsets = [commit.offset for commit in commits if commit.partition == partition]
        assert offsets == sorted(offsets), f"partition {partition}: a commit went back: {offsets}"
