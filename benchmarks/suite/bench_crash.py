"""Measure how long a killed process of ``loadtrim up`` costs: the group is told of it, and need not wait."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable

from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import GroupFollower, following
from loadtrim.observer.group import ObservedGroup
from loadtrim_agent.common.host import process_id

from .results import Figure, percentile
from .suite import CONSUMER, Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
INSTANCES = 3
KILLS, KILLS_QUICK = 20, 4
SESSION_SECONDS = 10.0
"""The default of aiokafka."""
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.005
SERVICE = """
import asyncio, sys
from loadtrim import Consumer

async def main(bootstrap, group, topic):
    async with Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        async for message in consumer:
            pass

asyncio.run(main(*sys.argv[1:]))
"""


async def run(context: BenchmarkContext) -> Finding:
    """Kill one of three at random moments; the next is killed when all are there again."""
    bootstrap, group = context.cluster().bootstrap, f"crash-{uuid.uuid4().hex[:8]}"
    topic = await asyncio.to_thread(context.cluster().create_topic, partitions=PARTITIONS)
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "loadtrim", "up", "--json", "--replicas", str(INSTANCES), "--min", str(INSTANCES)],
        *["--group", group, "--bootstrap", bootstrap, "--", sys.executable, "-c", SERVICE, bootstrap, group, topic],
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with following(Connection(bootstrap=bootstrap, given_by="the benchmark"), group) as follower:
            took = [await _kill(follower) for _ in range(KILLS_QUICK if context.quick else KILLS)]
    finally:
        process.terminate()
        await process.wait()
    return Finding(
        setting=(
            f"{INSTANCES} instances of `loadtrim up` on this machine, {PARTITIONS} partitions, nothing to do. One of "
            f"them, drawn at random, is killed (SIGKILL) {len(took)} times, each time when all are there again. From "
            "the signal until the control topic tells an owner that lives for every partition."
        ),
        figures=(
            Figure(name="kill -9 until everything is owned again, p50", value=percentile(took, 0.5), unit="s"),
            Figure(
                name="kill -9 until everything is owned again, longest",
                value=max(took),
                unit="s",
                at_most=1.5,
                peer=f"{len(took)} kills; untold, a group waits for the session timeout, {SESSION_SECONDS:g} s",
            ),
        ),
    )


async def _kill(follower: GroupFollower) -> float:
    await _until(lambda: _complete(_seen(follower)), "all instances there")
    await asyncio.sleep(random.uniform(1.0, 2.0))
    victim = random.choice(_seen(follower).members)
    begun = time.perf_counter()
    os.kill(int(process_id(victim.process)), signal.SIGKILL)
    await _until(lambda: _owned_without(_seen(follower), victim.member), "everything owned again")
    return time.perf_counter() - begun


def _seen(follower: GroupFollower) -> ObservedGroup:
    return follower.state()


def _owned_without(state: ObservedGroup, member: str) -> bool:
    owners = {each.member for each in state.partitions}
    return len(state.partitions) == PARTITIONS and None not in owners and member not in owners


def _complete(state: ObservedGroup) -> bool:
    owners = {each.member for each in state.partitions}
    running = {each.member for each in state.members if each.state == "running"}
    return len(state.partitions) == PARTITIONS and owners == running and len(running) == INSTANCES


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_SECONDS:g} s: {what}")
        await asyncio.sleep(LOOK_SECONDS)


BENCHMARK = Benchmark(
    name="crash",
    title="A process that is killed",
    run=run,
    seconds=200,
    quick_seconds=50,
    measures=CONSUMER,
)
