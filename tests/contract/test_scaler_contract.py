"""Every implementation of the scaling port keeps this contract: fake, none, the template to copy, the webhook
against a real server, and Kubernetes against one in memory (a real one: ``tests/kubernetes``).

``SCALER=<path> pytest tests/contract/test_scaler_contract.py`` judges a copy of ``docs/templates/scaler.py`` instead of
the template itself.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from contract import webhook_receiver as receiver
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.none import NoneScaler
from loadtrim_agent.leader.scaling.port import DETAIL_MAX, Answer, ScaleOutcome, Scaler, ScaleRequest
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
from unit.leader.scaling.fake import FakeScaler
from unit.leader.scaling.fake_group import FakeGroup
from unit.leader.scaling.kubernetes.fake_cluster import FakeCluster, OpenFence

TOKEN = "s3cret-t0ken"
AGENT = "loadtrim_agent"
TEMPLATE = Path(__file__).parents[2] / "docs" / "templates" / "scaler.py"


@dataclass
class Harness:
    """One implementation with its other side."""

    scaler: Scaler
    state: Callable[[], tuple[int, tuple[str, ...]] | None]
    """What the other side holds: (replicas, victims)."""
    fail_next: Callable[[], None]
    hang_next: Callable[[], None]
    arrived: Callable[[], AbstractAsyncContextManager[None]]
    names_victims: bool = True
    """The other side is told who is to go. False: it sees by itself."""
    hanging: Callable[[ScaleRequest], ScaleRequest] = lambda wanted: wanted
    """Makes a request one that waits, where that is a matter of the request itself."""

    def holds(self, replicas: int, victims: tuple[str, ...] = ()) -> bool:
        """Whether the other side has this wanted state; nothing, where there is none to ask."""
        told = victims if self.names_victims else ()
        return self.state() == ((replicas, told) if self.scaler.scales else None)


@asynccontextmanager
async def at_once() -> AsyncIterator[None]:
    await asyncio.sleep(0)
    yield


@asynccontextmanager
async def none_harness() -> AsyncIterator[Harness]:
    yield Harness(NoneScaler(), lambda: None, lambda: None, lambda: None, at_once)


@asynccontextmanager
async def fake_harness() -> AsyncIterator[Harness]:
    fake = FakeScaler()

    def hang() -> None:
        fake.seconds = 3600.0

    yield Harness(
        fake,
        lambda: (fake.state.replicas, fake.state.victims) if fake.state else None,
        lambda: fake.answer_next(Answer.FAILED),
        hang,
        at_once,
    )


@asynccontextmanager
async def webhook_harness() -> AsyncIterator[Harness]:
    with receiver.Receiver() as server:

        @asynccontextmanager
        async def arrived() -> AsyncIterator[None]:
            assert await asyncio.to_thread(server.arrived.wait, receiver.WAIT_SECONDS)
            yield

        def state() -> Any:
            return (server.state["replicas"], tuple(server.state["victims"])) if server.state else None

        scaler = WebhookScaler(server.url, TOKEN, timeout=30.0)
        yield Harness(
            scaler,
            state,
            lambda: server.behaviours.append(receiver.answer(500, f"no: {TOKEN[:3]}\nsecond line")),
            lambda: server.behaviours.append(receiver.hang),
            arrived,
        )
        await scaler.close()


@asynccontextmanager
async def template_harness() -> AsyncIterator[Harness]:
    scaler, orchestrator = load_template().template()
    yield Harness(
        scaler,
        lambda: orchestrator.state,
        lambda: setattr(orchestrator, "fails_next", True),
        lambda: setattr(orchestrator, "hangs_next", True),
        at_once,
    )
    await scaler.close()


@asynccontextmanager
async def kubernetes_harness() -> AsyncIterator[Harness]:
    cluster = FakeCluster(replicas=1, ready=0)

    def hang() -> None:
        cluster.hangs_next = True

    scaler = KubernetesScaler(parse_target("deployment/payments"), cluster, OpenFence())
    yield Harness(
        scaler,
        lambda: (cluster.writes[-1], ()) if cluster.writes else None,
        lambda: cluster.fails.append(ApiError(500, f"no: {TOKEN[:3]}\nsecond line")),
        hang,
        at_once,
        names_victims=False,
    )
    await scaler.close()


@asynccontextmanager
async def metric_harness() -> AsyncIterator[Harness]:
    group = FakeGroup()
    scaler = MetricScaler(group, group)
    yield Harness(
        scaler,
        lambda: None if (published := scaler.published()) is None else (published, ()),
        lambda: setattr(group, "fails_next", True),
        lambda: None,
        at_once,
        names_victims=False,
        # No victim is named, so ten that work keep the number up.
        hanging=lambda wanted: structs.replace(wanted, staying=tuple(f"pod-{number}" for number in range(10))),
    )
    await scaler.close()


def load_template() -> Any:
    """Load the file as a module; a copy in the agent as the module that it is, for its imports are relative."""
    path = Path(os.environ.get("SCALER", TEMPLATE))
    if AGENT in path.parts:
        parts = path.with_suffix("").parts
        return importlib.import_module(".".join(parts[len(parts) - parts[::-1].index(AGENT) - 1 :]))
    spec = importlib.util.spec_from_file_location("scaler_template", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HARNESSES = {
    "fake": fake_harness,
    "kubernetes": kubernetes_harness,
    "metric": metric_harness,
    "none": none_harness,
    "template": template_harness,
    "webhook": webhook_harness,
}


@pytest.fixture(params=HARNESSES.values(), ids=HARNESSES)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with request.param() as made:
        yield made


def wanted(replicas: int = 3, victims: tuple[str, ...] = (), sequence: int = 1) -> ScaleRequest:
    return ScaleRequest(
        group="payments", replicas=replicas, victims=victims, generation=7, sequence=sequence, reason="More load."
    )


def check(outcome: ScaleOutcome) -> None:
    """What holds for every outcome."""
    assert isinstance(outcome.answer, Answer)
    assert len(outcome.detail) <= DETAIL_MAX
    assert outcome.detail.isprintable()
    assert TOKEN not in outcome.detail
    assert outcome.accepted or outcome.detail, "what was not accepted says why"


async def test_the_other_side_has_what_was_accepted(harness: Harness) -> None:
    outcome = await harness.scaler.request(wanted(3, ("pod-b",)))
    check(outcome)
    assert outcome.accepted is harness.scaler.scales
    assert harness.holds(3, ("pod-b",))


async def test_who_cannot_scale_refuses_and_who_can_accepts(harness: Harness) -> None:
    outcome = await harness.scaler.request(wanted())
    assert outcome.answer is (Answer.ACCEPTED if harness.scaler.scales else Answer.REFUSED)


async def test_the_same_request_again_changes_nothing(harness: Harness) -> None:
    first = await harness.scaler.request(wanted(4))
    before = harness.state()
    again = await harness.scaler.request(wanted(4, sequence=2))
    assert again.answer is first.answer
    assert harness.state() == before


async def test_the_newest_request_replaces_the_ones_before(harness: Harness) -> None:
    await harness.scaler.request(wanted(4, ("pod-a",)))
    await harness.scaler.request(wanted(2, sequence=2))
    assert harness.holds(2)


async def test_an_other_side_that_fails_is_an_outcome_and_the_next_request_works(harness: Harness) -> None:
    harness.fail_next()
    failed = await harness.scaler.request(wanted(5))
    check(failed)
    assert not failed.accepted
    assert harness.state() is None
    after = await harness.scaler.request(wanted(5))
    assert after.accepted is harness.scaler.scales


async def test_close_breaks_off_what_is_under_way(harness: Harness) -> None:
    harness.hang_next()
    async with asyncio.timeout(10):
        request = asyncio.create_task(harness.scaler.request(harness.hanging(wanted())))
        if harness.scaler.scales:
            async with harness.arrived():
                assert not request.done()
        await harness.scaler.close()
        outcome = await request
    check(outcome)
    assert not outcome.accepted
    assert harness.state() is None


async def test_after_close_nothing_is_sent(harness: Harness) -> None:
    await harness.scaler.close()
    await harness.scaler.close()
    outcome = await harness.scaler.request(wanted())
    check(outcome)
    assert not outcome.accepted
    assert harness.state() is None


async def test_a_cancelled_request_ends_at_once_and_the_next_one_works(harness: Harness) -> None:
    if not harness.scaler.scales:
        check(await harness.scaler.request(wanted()))
        return
    harness.hang_next()
    async with asyncio.timeout(10):
        request = asyncio.create_task(harness.scaler.request(harness.hanging(wanted(9))))
        async with harness.arrived():
            request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        if isinstance(harness.scaler, FakeScaler):
            harness.scaler.seconds = 0.0
        assert (await harness.scaler.request(wanted(2))).accepted
    assert harness.holds(2)


@pytest.mark.parametrize("scaler", [FakeScaler, NoneScaler, lambda: WebhookScaler("http://localhost:1")])
def test_names_are_those_of_the_setting(scaler: Callable[[], Scaler]) -> None:
    made = scaler()
    assert made.name in ("fake", "none", "webhook")
    assert made.scales is (made.name != "none")
