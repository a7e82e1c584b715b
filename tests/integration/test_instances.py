"""Replicas are processes, whatever number of consumers each of them has, and whatever they are called."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from integration import twofold
from integration.harness import committed_offsets, eventually
from integration.harness_consumers import new_group
from loadtrim.cli import main
from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import GroupFollower, following
from loadtrim.observer.group import ObservedGroup
from loadtrim.orchestrator.instances import EventKind, OrchestratorEvent, OrchestratorOptions
from loadtrim.orchestrator.orchestrator import LocalOrchestrator
from loadtrim.testing import Cluster
from loadtrim_agent.common.host import process_id
from pages.scaler import serving

pytestmark = pytest.mark.kafka

PARTITIONS = 6
RATE = 150.0
SERVICE = [sys.executable, twofold.__file__]


class Load:
    """Records at an even rate, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.sent = 0

    async def play(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            while True:
                await producer.send(self._topic, b"x", partition=self.sent % PARTITIONS)
                self.sent += 1
                await asyncio.sleep(1.0 / RATE)


def done(journal: Path) -> Counter[tuple[int, int]]:
    """(partition, offset) -> how often it was done."""
    lines = [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []
    return Counter((int(partition), int(offset)) for _, offset, partition in lines)


def settled(state: ObservedGroup, replicas: int, members: int) -> bool:
    """Whether so many instances own everything, and nobody else is there."""
    running = [each for each in state.members if each.state == "running"]
    owned = sum(len(each.partitions) for each in running)
    return (state.replicas, len(state.members), len(running), owned) == (replicas, members, members, PARTITIONS)


def seen(follower: GroupFollower) -> ObservedGroup:
    return follower.state()


async def command(*words: str) -> int:
    return await asyncio.to_thread(main, list(words))


async def test_two_consumers_in_each_process_are_scaled_by_the_webhook(kafka: Cluster, tmp_path: Path) -> None:
    """Under load whole processes come and go, by the names that the orchestrator gave, and nothing is lost."""
    topic, group, journal = kafka.create_topic(partitions=PARTITIONS), new_group(), tmp_path / "journal"
    events: list[OrchestratorEvent] = []
    load = Load(kafka.bootstrap, topic)
    env = {**os.environ, "LOADTRIM_DECISION_SECONDS": "0.5"}
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, env=env)
    service = [*SERVICE, kafka.bootstrap, group, topic, str(journal)]
    playing = asyncio.create_task(load.play())
    try:
        async with (
            LocalOrchestrator(service, options, events.append) as up,
            following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower,
        ):
            await eventually(lambda: settled(seen(follower), 1, 2), "one process with two members owns everything")
            for replicas in (2, 3, 1):
                assert await command("scale", group, str(replicas), "--bootstrap", kafka.bootstrap) == 0
                await eventually(
                    lambda n=replicas: settled(seen(follower), n, 2 * n) and up.replicas == n,
                    f"{replicas} processes",
                )
                assert seen(follower).replicas_wanted == replicas
            state = seen(follower)
            (left,) = {each.instance for each in state.members}
            assert set(state.called.values()) == {f"{left}/orders", f"{left}/refunds"}
            assert state.shared == {}
            playing.cancel()
            await eventually(lambda: len(done(journal)) == load.sent, "everything is done")
    finally:
        playing.cancel()
    # Without the reason, which may name the member whose load is spread.
    asked = [event.text.partition(": ")[0] for event in events if event.kind is EventKind.PLAN]
    named = {event.instance for event in events if event.kind is EventKind.STOPPING and "named" in event.text}
    assert named <= {"pay-1", "pay-2", "pay-3"}
    assert len(named) == 2, f"{events}"
    assert not [text for text in asked if "orders" in text or "refunds" in text], "a member is no victim"
    assert set(done(journal).values()) == {1}, "nothing is done twice"
    assert up.killed == 0
    assert sum((await committed_offsets(kafka.bootstrap, group)).values()) == load.sent


@pytest.mark.parametrize("asked", ["scale", "least"])
async def test_replicas_are_there_before_the_first_record(kafka: Cluster, tmp_path: Path, asked: str) -> None:
    """Nothing was asked for until a record was done, whatever the command line or the settings said."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    env = {**os.environ, "LOADTRIM_MIN_REPLICAS": "2" if asked == "least" else "1"}
    options = OrchestratorOptions(name="pay", log_directory=tmp_path, env=env)
    service = [*SERVICE, kafka.bootstrap, group, topic, str(tmp_path / "journal")]
    async with (
        LocalOrchestrator(service, options) as up,
        following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower,
    ):
        await eventually(lambda: settled(seen(follower), 1, 2), "one process owns everything")
        if asked == "scale":
            assert await command("scale", group, "2", "--bootstrap", kafka.bootstrap) == 0
        await eventually(lambda: settled(seen(follower), 2, 4) and up.replicas == 2, "two processes")
        if asked == "scale":
            assert await command("scale", group, "1", "--bootstrap", kafka.bootstrap) == 0
            await eventually(lambda: settled(seen(follower), 1, 2) and up.replicas == 1, "one process, drained first")
            assert up.killed == 0
        assert done(tmp_path / "journal") == {}


async def test_a_real_group_scales_itself_by_the_server_of_the_page(kafka: Cluster, tmp_path: Path) -> None:
    """Whom docs/webhook.md's server starts, and ends as a victim, hands everything over: nothing is done twice."""
    topic, group, journal = kafka.create_topic(partitions=PARTITIONS), new_group(), tmp_path / "journal"
    load = Load(kafka.bootstrap, topic)
    service = [*SERVICE, kafka.bootstrap, group, topic, str(journal)]
    playing = asyncio.create_task(load.play())
    async with (
        serving(tmp_path, *service, env={"LOADTRIM_DECISION_SECONDS": "0.5"}),
        following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower,
    ):
        await eventually(lambda: settled(seen(follower), 1, 2), "the server has started one")
        for replicas in (2, 1):
            assert await command("scale", group, str(replicas), "--bootstrap", kafka.bootstrap) == 0
            await eventually(lambda n=replicas: settled(seen(follower), n, 2 * n), f"{replicas} processes")
        (left,) = {each.instance for each in seen(follower).members}
        assert left.startswith("replica-")
        assert left.endswith(("-1", "-2"))
        playing.cancel()
        await eventually(lambda: len(done(journal)) == load.sent, "everything is done")
    assert set(done(journal).values()) == {1}, "nothing is done twice"


async def test_up_tells_the_group_of_a_process_that_was_killed(kafka: Cluster, tmp_path: Path) -> None:
    """Its partitions go to others at once: the session timeout is longer than what is waited for here."""
    topic, group, journal = kafka.create_topic(partitions=PARTITIONS), new_group(), tmp_path / "journal"
    load = Load(kafka.bootstrap, topic)
    playing = asyncio.create_task(load.play())
    options = ["--json", "--replicas", "3", "--min", "3", "--group", group, "--bootstrap", kafka.bootstrap]
    up = await start(
        *[
            sys.executable,
            "-m",
            "loadtrim",
            "up",
            *options,
            "--",
            *SERVICE,
            kafka.bootstrap,
            group,
            topic,
            str(journal),
        ],
        MEMBER_SESSION_MS="90000",
    )
    try:
        async with following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower:
            await eventually(lambda: settled(seen(follower), 3, 6), "three processes own everything")
            killed = process_id(seen(follower).members[0].process)
            os.kill(int(killed), signal.SIGKILL)
            await eventually(
                lambda: (
                    settled(seen(follower), 3, 6)
                    and killed not in {process_id(each.process) for each in seen(follower).members}
                ),
                "the others, and the one that is started for it, own everything",
            )
            playing.cancel()
            await eventually(lambda: len(done(journal)) == load.sent, "everything is done")
    finally:
        playing.cancel()
        log = await ended(up)
    assert "Traceback" not in log


async def start(*words: str, **env: str) -> asyncio.subprocess.Process:
    own = {name: value for name, value in os.environ.items() if not name.startswith("LOADTRIM_")}
    return await asyncio.create_subprocess_exec(
        *words, env={**own, **env}, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )


async def ended(process: asyncio.subprocess.Process) -> str:
    """End a process with all that it forked; return what they logged."""
    os.killpg(process.pid, signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 30.0)
    return log.decode()


async def test_two_processes_of_one_host_are_two_replicas(kafka: Cluster, tmp_path: Path) -> None:
    """Nobody gave them names, and both had the host's: one replica with the capacity of two."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    service = [*SERVICE, kafka.bootstrap, group, topic, str(tmp_path / "journal")]
    async with following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower:
        processes = [await start(*service, MEMBER_HOST="bare") for _ in range(2)]
        try:
            await eventually(lambda: settled(seen(follower), 2, 4), "two processes with two members each")
            names = {each.instance for each in seen(follower).members}
            assert {name.rpartition("-")[2] for name in names} == {str(each.pid) for each in processes}
        finally:
            for process in processes:
                await ended(process)


@pytest.mark.parametrize(("host", "replicas"), [("bare", 2), ("container", 1)])
async def test_a_server_that_forks_its_workers(kafka: Cluster, tmp_path: Path, host: str, replicas: int) -> None:
    """On a host each worker is a replica of its own; in a container, which comes and goes as a whole, all are one."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_group()
    service = [*SERVICE, kafka.bootstrap, group, topic, str(tmp_path / "journal")]
    env = {"MEMBER_HOST": host, "MEMBER_FORKS": "2"} | ({"container": "podman"} if host == "container" else {})
    async with following(Connection(bootstrap=kafka.bootstrap, given_by="the test"), group) as follower:
        server = await start(*service, **env)
        try:
            await eventually(lambda: settled(seen(follower), replicas, 2), f"{replicas} replicas")
            shared = seen(follower).shared
            assert {len(processes) for processes in shared.values()} == ({2} if replicas == 1 else set())
            decided: Callable[[], bool] = lambda: seen(follower).decision is not None  # noqa: E731
            await eventually(decided, "the leader has decided")
        finally:
            log = await ended(server)
    assert ("2 processes (" in log) == (replicas == 1), "told once, by the leader"
