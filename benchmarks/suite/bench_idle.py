"""What the agent costs when there is nothing to do, beside bare aiokafka."""

from __future__ import annotations

import asyncio

from .group import Group
from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS_EACH = 9
MEMBERS = ("one", "two")
SECONDS, SECONDS_QUICK = 120.0, 15.0
WARM_SECONDS, WARM_SECONDS_QUICK = 15.0, 5.0
MB = 1 << 20


async def run(context: BenchmarkContext) -> Finding:
    """Two members with nine partitions each, one of which leads; two of bare aiokafka in a group of their own."""
    warm = WARM_SECONDS_QUICK if context.quick else WARM_SECONDS
    length = SECONDS_QUICK if context.quick else SECONDS
    partitions = PARTITIONS_EACH * len(MEMBERS)
    env = {"LOADTRIM_HTTP": "127.0.0.1:0"}
    async with (
        Group(context.cluster(), context.scratch, partitions=partitions, env=env) as ours,
        Group(context.cluster(), context.scratch, partitions=partitions) as bare,
    ):
        await ours.spawn(*MEMBERS)
        await bare.spawn(*MEMBERS, client="aiokafka")
        for group in (ours, bare):
            for name in MEMBERS:
                await group.workers[name].ask("start")
        states = await ours.until_settled(*MEMBERS)
        # Nobody asks the processes anything from here on: an answer would be work too.
        await asyncio.sleep(warm)
        everybody = {
            (kind, name): group.workers[name] for kind, group in (("ours", ours), ("bare", bare)) for name in MEMBERS
        }
        before = {key: child.cpu_seconds for key, child in everybody.items()}
        await asyncio.sleep(length)
        cores = {key: (child.cpu_seconds - before[key]) / length for key, child in everybody.items()}
        memory = {key: child.resident_bytes for key, child in everybody.items()}
        owned = {name: len(state["owned"]) for name, state in states.items()}
    leader = next(name for name in MEMBERS if states[name]["member"] == states[name]["leader"])
    return _judge(leader, cores, memory, (warm, length), owned)


def _judge(
    leader: str,
    cores: dict[tuple[str, str], float],
    memory: dict[tuple[str, str], int],
    seconds: tuple[float, float],
    owned: dict[str, int],
) -> Finding:
    warm, length = seconds
    follower = next(name for name in MEMBERS if name != leader)
    bare_core = sum(cores["bare", name] for name in MEMBERS) / len(MEMBERS)
    bare_memory = sum(memory["bare", name] for name in MEMBERS) / len(MEMBERS)
    bare_cpu_words = f"bare aiokafka {bare_core:.2%}"
    bare_memory_words = f"bare aiokafka {bare_memory / MB:.1f} MB"
    return Finding(
        setting=(
            f"Two members with {PARTITIONS_EACH} partitions each and no records, over {length:g} s; above two members "
            "of bare aiokafka beside them, same settings. Memory is the resident set. Thrown away: the first "
            f"{warm:g} s after the group has settled."
        ),
        figures=(
            Figure(
                name="CPU of a member above bare aiokafka, of a core",
                value=(cores["ours", follower] - bare_core) * 100,
                unit="%",
                at_most=1.0,
                peer=f"{bare_cpu_words}, this one {cores['ours', follower]:.2%}",
            ),
            Figure(
                name="CPU of the leader above bare aiokafka, of a core",
                value=(cores["ours", leader] - bare_core) * 100,
                unit="%",
                at_most=1.0,
                peer=f"{bare_cpu_words}, this one {cores['ours', leader]:.2%}",
            ),
            Figure(
                name="memory of a member above bare aiokafka",
                value=(memory["ours", follower] - bare_memory) / MB,
                unit="MB",
                at_most=15.0,
                peer=bare_memory_words,
            ),
            Figure(
                name="memory of the leader above bare aiokafka",
                value=(memory["ours", leader] - bare_memory) / MB,
                unit="MB",
                at_most=35.0,
                peer=bare_memory_words,
            ),
        ),
        details={
            "cores": {f"{kind} {name}": value for (kind, name), value in cores.items()},
            "memory_bytes": {f"{kind} {name}": value for (kind, name), value in memory.items()},
            "owned": owned,
            "leader": leader,
        },
    )


BENCHMARK = Benchmark(name="idle", title="An idle agent", run=run, seconds=150, quick_seconds=35)
