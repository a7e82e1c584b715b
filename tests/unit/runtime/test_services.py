"""What the services of a consumer say when they are made, and what they count of its group."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from loadtrim_agent import __version__
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.settings import MemberSettings
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.leader.instances import Instances
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from loadtrim_agent.protocol.commands import EnteredCommand
from loadtrim_agent.protocol.group_config import BROKER_ASSIGNS, LOADTRIM, Code
from loadtrim_agent.runtime.scaling import LeaseFence, numbered, templated
from loadtrim_agent.runtime.services import Services
from loadtrim_agent.wire.ownership_records import HelloRecord, ManualOverrideRecord

MEMBER = {"group": "g", "client_id": "c"}


@pytest.mark.parametrize(
    ("policy", "monitor", "said"),
    [("keda", "landau24", ["looks at no arrival rates"]), ("linear", "landau24", []), ("keda", "reports", [])],
)
def test_the_start_says_what_a_monitor_does_not_reach(
    policy: str, monitor: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "loadtrim"):
        Services(MemberSettings(policy=policy, monitor=monitor), group="g", client_id="c", registry=CollectorRegistry())
    assert len(caplog.messages) == len(said)
    assert all(text in message for text, message in zip(said, caplog.messages, strict=True))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def services(registry: CollectorRegistry) -> Services:
    settings = MemberSettings(policy="keda", packer="sticky", mode="shadow", sla_seconds=0.5, sla_share=0.99)
    return Services(settings, group="g", client_id="c", registry=registry)


def test_what_runs_is_shown_from_the_start(services: Services, registry: CollectorRegistry) -> None:
    about = {"version": __version__, "policy": "keda", "packer": "sticky", "mode": "shadow"}
    assert registry.get_sample_value("loadtrim_info", MEMBER | about) == 1
    assert registry.get_sample_value("loadtrim_objective_seconds", MEMBER) == 0.5
    assert registry.get_sample_value("loadtrim_objective_share_ratio", MEMBER) == 0.99


@pytest.mark.parametrize(
    ("protocol", "shown"),
    [(LOADTRIM, "loadtrim"), ("range", "mixed"), ("roundrobin", "mixed"), (BROKER_ASSIGNS, "consumer")],
)
def test_a_degraded_group_is_shown(services: Services, registry: CollectorRegistry, protocol: str, shown: str) -> None:
    services.entered(EnteredCommand(generation=3, member="m", leader="other", protocol=protocol))
    states = {
        state: registry.get_sample_value("loadtrim_group_protocol", MEMBER | {"protocol": state})
        for state in ("loadtrim", "mixed", "consumer")
    }
    assert states == {state: float(state == shown) for state in states}
    assert registry.get_sample_value("loadtrim_rebalances_total", MEMBER) == 1


def test_the_manual_override_is_shown_as_it_is_read_and_as_it_is_taken_over(
    services: Services, registry: CollectorRegistry
) -> None:
    def held() -> float | None:
        return registry.get_sample_value("loadtrim_manual_override", MEMBER | {"action": "hold"})

    def order(action: str) -> ManualOverrideRecord:
        return ManualOverrideRecord(group="g", member="cli", at=1.0, action=action)

    known: Any = SimpleNamespace(manual_override=None)
    services._agent = SimpleNamespace(snapshot=lambda: known)  # type: ignore[assignment]
    for action, shown in (("hold", 1.0), ("resume", 0.0)):
        known.manual_override = order(action)
        services.read(order(action))
        assert held() == shown
    known.manual_override = order("hold")  # told with the assignment, to a member that joins later
    services.entered(EnteredCommand(generation=3, member="m", leader="other", protocol=LOADTRIM))
    assert held() == 1.0


def test_a_commit_that_is_not_acknowledged_is_counted_by_reason(
    services: Services, registry: CollectorRegistry
) -> None:
    for codes in ((Code.NONE,), (Code.UNKNOWN_MEMBER_ID, Code.NONE), (Code.DISCONNECTED,)):
        services.commit_answered(codes)
    counted = {
        reason: registry.get_sample_value("loadtrim_commit_failures_total", MEMBER | {"reason": reason})
        for reason in ("rebalance", "coordinator", "fenced", "refused")
    }
    assert counted == {"rebalance": 0, "coordinator": 1, "fenced": 1, "refused": 0}


@pytest.mark.parametrize("answer", list(Answer))
def test_what_the_scaler_answered_is_counted(services: Services, registry: CollectorRegistry, answer: Answer) -> None:
    """The alert on a scaler that refuses reads it."""
    request = ScaleRequest(group="g", replicas=2, generation=1, sequence=1)
    services.scaled(request, ScaleOutcome(answer=answer, detail="a reason"))
    counted = {
        each: registry.get_sample_value("loadtrim_scaler_requests_total", {"group": "g", "outcome": each.value})
        for each in Answer
    }
    assert counted == {each: float(each is answer) for each in Answer}


def test_a_hello_tells_the_leader_an_instance() -> None:
    """A report comes a second later; until then the leader did not know what the orchestrator calls the newcomer."""
    services: Any = Services(MemberSettings(), group="g", client_id="c", registry=CollectorRegistry())
    services._leader = SimpleNamespace(instances=Instances("pod-1"))
    services.read(HelloRecord(group="g", member="m", at=0.0, instance="pod-2", process="17-aa"))
    assert services._leader.instances.of("m") == "pod-2"


async def test_the_scalers_fence_holds_as_long_as_the_lease() -> None:
    """By the boot-time clock; and not before there is an agent."""
    loop = asyncio.get_running_loop()
    fence, gate = LeaseFence(), DeliveryGate(RecordBuffer(loop, loop))
    assert not fence.holds()
    group: Any = SimpleNamespace(snapshot=lambda: SimpleNamespace(generation=7, is_leader=True))
    fence.watch(gate, group)
    gate.lease_until = boot_time() + 100.0
    assert fence.holds()
    gate.lease_until = boot_time()
    assert not fence.holds()


async def test_a_generation_is_led_while_the_lease_holds() -> None:
    """What a leader has published is shown by it: one that was frozen, or leads no longer, shows nothing."""
    loop = asyncio.get_running_loop()
    fence, gate = LeaseFence(), DeliveryGate(RecordBuffer(loop, loop))
    seen = SimpleNamespace(generation=7, is_leader=True)
    group: Any = SimpleNamespace(snapshot=lambda: seen)
    assert fence.generation() is None, "there is no agent yet"
    fence.watch(gate, group)
    gate.lease_until = boot_time() + 100.0
    assert fence.generation() == 7
    seen.is_leader = False
    assert fence.generation() is None
    seen.is_leader = True
    gate.lease_until = boot_time()
    assert fence.generation() is None


def test_an_ordered_workload_is_known_by_its_pod_where_pods_go_by_number() -> None:
    for scaler, name in (("metric", "payments"), ("kubernetes", "payments"), ("webhook", ""), ("none", "")):
        assert numbered(MemberSettings(scaler=scaler, instance="payments-3")) == name  # type: ignore[arg-type]
    assert numbered(MemberSettings(scaler="metric", instance="payments-7d9c5b6f4d-x2x8k")) == ""


def test_a_workload_with_templates_is_known_by_its_pod_where_controllers_choose() -> None:
    pod = "payments-7d9c5b6f4d-x2x8k"
    for scaler, name in (("metric", "payments"), ("kubernetes", "payments"), ("webhook", ""), ("none", "")):
        assert templated(MemberSettings(scaler=scaler, instance=pod)) == name  # type: ignore[arg-type]
    for target, name in (("rollout/payments", "payments"), ("cloneset/payments", ""), ("statefulset/payments", "")):
        assert templated(MemberSettings(scaler="metric", instance=pod, kubernetes_target=target)) == name


def test_the_published_replicas_are_shown_while_there_are_any(registry: CollectorRegistry) -> None:
    made: Any = Services(MemberSettings(scaler="metric", instance="pod-1"), group="g", client_id="c", registry=registry)
    requested = {"group": "g", "state": "requested"}
    assert registry.get_sample_value("loadtrim_replicas", requested) is None
    made._fence.generation = lambda: 7
    made._scaler._published = SimpleNamespace(generation=7, replicas=4)
    assert registry.get_sample_value("loadtrim_replicas", requested) == 4
    made._fence.generation = lambda: 8
    assert registry.get_sample_value("loadtrim_replicas", requested) is None
    made.metrics.close()
