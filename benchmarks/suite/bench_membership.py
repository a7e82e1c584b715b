"""Members that come, go and die in a group of ten with ninety partitions."""

from __future__ import annotations

import asyncio
from typing import Any

from payments.service import clock_ns

from .group import SESSION_OPTIONS, Group, running_group, until
from .results import Figure, percentile
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 90
RATE = 450.0
STAYING = tuple(f"member-{index}" for index in range(9))
GUEST = "guest"
CYCLES, CYCLES_QUICK = 50, 6
WARM_CYCLES, WARM_CYCLES_QUICK = 10, 1
"""Not counted: the broker's code is compiled meanwhile, on the cores that the members want."""
KILLS, KILLS_QUICK = 3, 1
SETTLE_SECONDS = 2.5
"""After a change: longer than a handoff of everything is meant to take, and than the leader's next decision."""


class Change:
    """One join or leave, seconds from its beginning; NaN: it did not happen within the wait."""

    def __init__(self, stories: dict[str, list[Any]], begun: float) -> None:
        self.begun = begun
        self.generation = -1
        self.entered: dict[str, float] = {}
        self.runs = sorted(at for story in stories.values() for kind, at, _ in story if kind == "RunCommand")
        for name, story in stories.items():
            for kind, at, _ in story:
                if kind == "EnteredCommand" and at > begun:
                    self.entered.setdefault(name, at)
                    break
        self.everybody = max(self.entered.values(), default=float("nan"))

    @property
    def last_run(self) -> float:
        """When the last partition that changed hands was running again; NaN: none did."""
        later = [at for at in self.runs if at > self.begun]
        return max(later, default=float("nan"))


async def run(context: BenchmarkContext) -> Finding:
    """Joins and leaves of a tenth member, then kills."""
    cycles = CYCLES_QUICK if context.quick else CYCLES
    warm = WARM_CYCLES_QUICK if context.quick else WARM_CYCLES
    joins: list[dict[str, float]] = []
    leaves: list[dict[str, float]] = []
    async with running_group(
        context.cluster(),
        context.scratch,
        STAYING,
        partitions=PARTITIONS,
        rate=RATE,
        env={"LOADTRIM_MODE": "shadow"},  # counts are balanced at every change: nine partitions or so move each time
    ) as group:
        await group.spawn(GUEST)
        await asyncio.sleep(3.0)
        for _ in range(warm):
            await _join(group)
            await _leave(group)
        for _ in range(cycles):
            joins.append(await _join(group))
            leaves.append(await _leave(group))
        kills = await _kills(group, KILLS_QUICK if context.quick else KILLS)
    return _judge(joins, leaves, kills, warm)


async def _stories(group: Group, *names: str) -> dict[str, list[Any]]:
    answers = await asyncio.gather(*(group.workers[name].ask("story") for name in names))
    return {name: answer["story"] for name, answer in zip(names, answers, strict=True)}


async def _join(group: Group) -> dict[str, float]:
    # At a random moment of the leader's and the members' seconds.
    await asyncio.sleep(group.random.uniform(0.0, 1.0))
    told = await group.workers[GUEST].ask("start")
    called = told["called_ns"] / 1e9
    await asyncio.sleep(SETTLE_SECONDS)
    first_ns: int | None = (await group.workers[GUEST].ask("count"))["first_ns"]
    stories = await _stories(group, *STAYING, GUEST)
    asked = min(at for kind, at, _ in stories[GUEST] if kind == "SendJoinCommand")
    change = Change(stories, asked)
    return {
        "barrier": change.everybody - asked,
        "entered": float(len(change.entered)),
        "start_to_everybody": change.everybody - called,
        "start_returned": told["started_ns"] / 1e9 - called,
        "last_handoff": change.last_run - asked,
        "plan_to_last_handoff": change.last_run - min((at for at in change.runs if at > asked), default=float("nan")),
        "first_record": first_ns / 1e9 - called if first_ns else float("nan"),
    }


async def _leave(group: Group) -> dict[str, float]:
    await asyncio.sleep(group.random.uniform(0.0, 1.0))
    told = await group.workers[GUEST].ask("stop")
    await asyncio.sleep(SETTLE_SECONDS)
    called = told["called_ns"] / 1e9
    asked = max((at for kind, at, _ in told["story"] if kind == "SendLeaveCommand"), default=float("nan"))
    stories = await _stories(group, *STAYING)
    change = Change(stories, asked)
    return {
        "barrier": change.everybody - asked,
        "entered": float(len(change.entered)),
        "stop_to_left": asked - called,
        "stop_to_everybody": change.everybody - called,
        "last_handoff": max((at for at in change.runs if at > called), default=float("nan")) - called,
    }


async def _kills(group: Group, count: int) -> list[float]:
    """Seconds from kill -9 until everything is handed out again by those who are left."""
    took: list[float] = []
    alive = list(STAYING)
    for _ in range(count):
        victim = group.random.choice(alive)
        alive.remove(victim)
        child = group.workers.pop(victim)
        begun = clock_ns() / 1e9
        child.kill()
        await child.process.wait()

        async def owned_again(alive: list[str] = alive) -> bool:
            states = await group.states(*alive)
            return sorted(p for state in states.values() for p in state["owned"]) == list(range(PARTITIONS))

        await until(owned_again, "everything owned again", 60.0)
        stories = await _stories(group, *alive)
        took.append(Change(stories, begun).last_run - begun)
        await asyncio.sleep(3.0)
    return took


def _known(changes: list[dict[str, float]], name: str) -> list[float]:
    """Return what a figure of each change is, of those that have it."""
    return [change[name] for change in changes if change[name] == change[name]]


def _judge(joins: list[dict[str, float]], leaves: list[dict[str, float]], kills: list[float], warm: int) -> Finding:
    barriers = [change["barrier"] for change in (*joins, *leaves)]
    session = SESSION_OPTIONS["session_timeout_ms"] / 1000
    complete = sum(join["entered"] == len(STAYING) + 1 for join in joins) + sum(
        leave["entered"] == len(STAYING) for leave in leaves
    )

    handoffs = _known(joins, "last_handoff") + _known(leaves, "last_handoff")
    firsts = [join["first_record"] if join["first_record"] == join["first_record"] else 99.0 for join in joins]
    return Finding(
        setting=(
            f"{len(STAYING)} members and one that comes and goes {len(joins)} times, each in a process of its own, all "
            f"on this machine; {PARTITIONS} partitions, {RATE:g} records/s, session timeout {session:g} s. A join "
            "begins with the newcomer's first JoinGroup, a leave with the LeaveGroup (its partitions are handed over "
            "before); everybody: every member has its SyncGroup answer. Thrown away: the first "
            f"{warm} joins and leaves, in which the broker's code is compiled."
        ),
        figures=(
            Figure(
                name="join or leave until everybody is in the new generation, p50",
                value=percentile(barriers, 0.5),
                unit="ms",
            ),
            Figure(
                name="join or leave until everybody is in the new generation, p99",
                value=percentile(barriers, 0.99),
                unit="ms",
                at_most=0.1,
                peer=f"joins {percentile(_known(joins, 'barrier'), 0.99) * 1e3:.0f} ms, leaves "
                f"{percentile(_known(leaves, 'barrier'), 0.99) * 1e3:.0f} ms",
            ),
            Figure(
                name="join (its JoinGroup) or leave (its stop) until the last handoff that follows, p50",
                value=percentile(handoffs, 0.5),
                unit="ms",
            ),
            Figure(
                name="the same, p99",
                value=percentile(handoffs, 0.99),
                unit="ms",
                at_most=1.0,
                peer=f"joins {percentile(_known(joins, 'last_handoff'), 0.99) * 1e3:.0f} ms, leaves "
                f"{percentile(_known(leaves, 'last_handoff'), 0.99) * 1e3:.0f} ms",
            ),
            Figure(
                name="first to last handoff of the plan that follows a join, p99",
                value=percentile(_known(joins, "plan_to_last_handoff"), 0.99),
                unit="ms",
            ),
            Figure(
                name="`start()` until the first record, p95",
                value=percentile(firsts, 0.95),
                unit="s",
                at_most=1.5,
                peer=f"p50 {percentile(firsts, 0.5):.2f} s; start() returns after "
                f"{percentile(_known(joins, 'start_returned'), 0.5):.2f} s",
            ),
            Figure(
                name="kill -9 of one until everything is owned again, longest",
                value=max(kills, default=float("nan")),
                unit="s",
                at_most=session + 1.0,
                peer=f"session timeout {session:g} s; {len(kills)} kills",
            ),
            Figure(name="changes that everybody was seen to enter", value=complete, at_least=len(joins) + len(leaves)),
        ),
        details={"joins": joins, "leaves": leaves, "kills": kills},
    )


BENCHMARK = Benchmark(name="membership", title="Members that come, go and die", run=run, seconds=470, quick_seconds=80)
