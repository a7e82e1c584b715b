"""How soon a step of the load makes the leader ask for replicas."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from loadtrim.cli.supervisor import WantedState
from loadtrim.cli.webhook import Reply, Webhook
from payments.service import clock_ns

from .group import Group, running_group, until
from .results import Figure, percentile
from .suite import Benchmark, Context, Finding

__all__ = ["BENCHMARK"]

PARTITIONS = 9
BUSY_SECONDS = 0.0059
BEFORE, AFTER = 110.0, 240.0
"""Records/s: 0.65 and 1.4 busy seconds a second, one member and two."""
STEPS, STEPS_QUICK = 20, 4
AT_ONCE = 2
"""Groups measured beside each other: one of them uses about a fifth of a core."""
CALM_SECONDS = 10.0
GIVEN_UP_SECONDS = 15.0
TOKEN = "bench"


class Orchestrator:
    """Takes what the leader asks for, writes down when, and starts nobody."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        """(clock ns, replicas)."""
        self.webhook = Webhook(TOKEN, self._take, dict)

    def _take(self, wanted: WantedState) -> Reply:
        self.asked.append((clock_ns(), wanted.replicas))
        return Reply(HTTPStatus.OK, {})

    def first_above(self, replicas: int, since_ns: int) -> int | None:
        return next((at for at, count in self.asked if at >= since_ns and count > replicas), None)


async def run(context: Context) -> Finding:
    """Every step has a group of its own: nothing that an earlier one taught the leader helps or hinders."""
    steps = STEPS_QUICK if context.quick else STEPS
    took: list[float] = []
    false_alarms = 0
    for first in range(0, steps, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, steps))
        outcomes = await asyncio.gather(*(_step(context, number) for number in numbers))
        took += [seconds for seconds, _ in outcomes]
        false_alarms += sum(early for _, early in outcomes)
    return Finding(
        setting=(
            f"{PARTITIONS} partitions, evenly spread arrivals, {BUSY_SECONDS * 1e3:g} ms a record, W = 0.5 s: after "
            f"{CALM_SECONDS:g} s or more {BEFORE:g} records/s become {AFTER:g}, at a random moment of the leader's "
            f"second. Time from the first record at the new rate until the webhook has the request; {steps} steps, "
            "each in a group of its own."
        ),
        figures=(
            Figure(name="steps", value=len(took), at_least=steps),
            Figure(name="step to scaling request, p50", value=percentile(took, 0.5), unit="s", at_most=2.0),
            Figure(name="step to scaling request, p95", value=percentile(took, 0.95), unit="s", at_most=3.5),
            Figure(name="requests for more before the step", value=false_alarms, at_most=0),
        ),
        details={"seconds": took},
    )


async def _step(context: Context, number: int) -> tuple[float, int]:
    """(seconds from step to request, whether more was asked for too early)."""
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


async def _measure(group: Group, orchestrator: Orchestrator, number: int) -> tuple[float, int]:
    calm_ns = clock_ns() + 3_000_000_000  # the first seconds catch up with what was sent before the member was there
    await asyncio.sleep(CALM_SECONDS + (number * 0.618) % 1.0)
    assert group.feed is not None
    step_ns: int = (await group.feed.ask("rate", rate=AFTER))["at_ns"]

    async def asked() -> bool:
        return orchestrator.first_above(1, step_ns) is not None

    try:
        await until(asked, "a request for more replicas", GIVEN_UP_SECONDS)
    except TimeoutError:
        return GIVEN_UP_SECONDS, 0
    early = orchestrator.first_above(1, calm_ns)
    at = orchestrator.first_above(1, step_ns)
    assert at is not None
    return (at - step_ns) / 1e9, int(early is not None and early < step_ns)


BENCHMARK = Benchmark(name="step", title="A step of the load", run=run, seconds=220, quick_seconds=45)
