"""How soon a step of the load makes the leader ask for replicas."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from demo.telemetry import fold, read_control_topic
from loadtrim.orchestrator.supervisor import WantedState
from loadtrim.orchestrator.webhook import Reply, Webhook
from loadtrim_agent.wire.topic_names import control_topic
from payments.service import clock_ns

from .group import Group, running_group, until
from .results import Figure, percentile
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
BUSY_SECONDS = 0.0059
BEFORE, AFTER = 110.0, 240.0
"""Records/s: 0.65 and 1.4 busy seconds a second, one member and two."""
STEPS, STEPS_QUICK = 20, 2
AT_ONCE = 2
"""Groups measured beside each other: one of them uses about a fifth of a core."""
CALM_SECONDS = 14.0
FIRST_SECONDS = 8.0
"""Of the calm: the load began then, which is a step too."""
GIVEN_UP_SECONDS = 15.0
TOKEN = "bench"


class Orchestrator:
    """Takes what the leader asks for, writes down when, and starts nobody."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, str]] = []
        """(clock ns, replicas, reason)."""
        self.webhook = Webhook(TOKEN, self)

    def take_plan(self, request: WantedState) -> Reply:
        self.asked.append((clock_ns(), request.replicas, request.reason))
        return Reply(HTTPStatus.OK, {})

    def describe(self) -> dict[str, Any]:
        return {}

    def first_above(self, replicas: int, since_ns: int) -> int | None:
        return next((at for at, count, _ in self.asked if at >= since_ns and count > replicas), None)

    def wanted(self) -> int:
        """What was asked for last; 1 before anything was."""
        return self.asked[-1][1] if self.asked else 1


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """One step."""

    seconds: float
    """From the step to the request; :data:`GIVEN_UP_SECONDS` where none came."""
    early: tuple[str, ...] = ()
    """Reasons of requests for more in the calm before the step."""
    reason: str = ""
    decisions: tuple[str, ...] = ()
    """What the leader decided from two seconds before the step on."""


async def run(context: BenchmarkContext) -> Finding:
    """Every step has a group of its own: nothing that an earlier one taught the leader helps or hinders."""
    steps = STEPS_QUICK if context.quick else STEPS
    outcomes: list[StepOutcome] = []
    for first in range(0, steps, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, steps))
        outcomes += await asyncio.gather(*(_step(context, number) for number in numbers))
    took = [outcome.seconds for outcome in outcomes]
    return Finding(
        setting=(
            f"{PARTITIONS} partitions, evenly spread arrivals, {BUSY_SECONDS * 1e3:g} ms a record, W = 0.5 s: after "
            f"{CALM_SECONDS:g} s or more {BEFORE:g} records/s become {AFTER:g}, at a random moment of the leader's "
            f"second. Time from the first record at the new rate until the webhook has the request; {steps} steps, "
            f"each in a group of its own. Thrown away: requests in the first {FIRST_SECONDS:g} s, for the load's "
            "beginning is a step too."
        ),
        figures=(
            Figure(name="steps", value=len(took), at_least=steps),
            Figure(name="step to scaling request, p50", value=percentile(took, 0.5), unit="s", at_most=2.0),
            Figure(name="step to scaling request, p95", value=percentile(took, 0.95), unit="s", at_most=3.5),
            Figure(
                name="steps with a request for more before the step",
                value=sum(bool(outcome.early) for outcome in outcomes),
                at_most=0,
            ),
        ),
        details={"steps": [asdict(outcome) for outcome in outcomes]},
    )


async def _step(context: BenchmarkContext, number: int) -> StepOutcome:
    orchestrator = Orchestrator()
    await orchestrator.webhook.start()
    try:
        env = {
            "LOADTRIM_SLA_SECONDS": "0.5",
            "LOADTRIM_SCALER": "webhook",
            "LOADTRIM_SCALER_URL": orchestrator.webhook.url,
            "LOADTRIM_SCALER_TOKEN": TOKEN,
        }
        async with running_group(
            context.cluster(),
            context.scratch,
            (f"step-{number}",),
            partitions=PARTITIONS,
            rate=BEFORE,
            env=env,
            busy_seconds=BUSY_SECONDS,
        ) as group:
            return await _measure(group, orchestrator, number)
    finally:
        await orchestrator.webhook.close()


async def _measure(group: Group, orchestrator: Orchestrator, number: int) -> StepOutcome:
    calm_ns = clock_ns() + int(FIRST_SECONDS * 1e9)
    await asyncio.sleep(CALM_SECONDS + (number * 0.618) % 1.0)
    early = tuple(sorted({reason for at, count, reason in orchestrator.asked if count > 1 and at >= calm_ns}))
    wanted = orchestrator.wanted()  # 1, unless something was asked for too early
    assert group.feed is not None
    step_ns: int = (await group.feed.ask("rate", rate=AFTER))["at_ns"]

    async def asked() -> bool:
        return orchestrator.first_above(wanted, step_ns) is not None

    try:
        await until(asked, "a request for more replicas", GIVEN_UP_SECONDS)
    except TimeoutError:
        return StepOutcome(GIVEN_UP_SECONDS, early)
    at = orchestrator.first_above(wanted, step_ns)
    assert at is not None
    reason = next(why for when, _, why in orchestrator.asked if when == at)
    return StepOutcome((at - step_ns) / 1e9, early, reason, await _decisions(group, step_ns))


async def _decisions(group: Group, step_ns: int) -> tuple[str, ...]:
    step_at = (step_ns - clock_ns()) / 1e9 + time.time()
    entries = await read_control_topic(group.kafka.bootstrap, control_topic(group.group))
    return tuple(
        f"{d.at - step_at:+.2f} s: {d.outcome}, {d.rate:.0f} records/s, work {d.work:.2f}, forecast {d.forecast:.2f}, "
        f"backlog {d.backlog:.2f} s: {d.reason}"
        for d in fold(entries).decisions
        if d.at > step_at - 2.0
    )


BENCHMARK = Benchmark(name="step", title="A step of the load", run=run, seconds=260, quick_seconds=37)
