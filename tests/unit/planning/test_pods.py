"""What names of pods tell: numbers, templates, and that a rollout is under way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from loadtrim_agent.planning.planner import Planner, scale_request
from loadtrim_agent.planning.pods import are_of_two_templates, place_in_line, template_of, workload_beside
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from unit.planning.virtual_group import Fleet, even

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=3.0, templated="pod")


@pytest.mark.parametrize(
    ("instance", "numbered", "place"),
    [
        ("pod-0", "pod", 0),
        ("pod-12", "pod", 12),
        ("pod-x", "pod", -1),
        ("other-3", "pod", -1),
        ("pod-3", "", -1),
        pytest.param(f"pod-{'9' * 5000}", "pod", -1, id="more digits than Python takes for a number"),
    ],
)
def test_the_number_of_a_pod_is_its_place_in_line(instance: str, numbered: str, place: int) -> None:
    assert place_in_line(instance, numbered) == place


@pytest.mark.parametrize(
    ("instance", "templated", "template"),
    [
        ("payments-7d9c5b6f4d-x2x8k", "payments", "7d9c5b6f4d"),
        ("pay-ments-7d9c5b6f4d-x2x8k", "pay-ments", "7d9c5b6f4d"),
        ("payments-3", "payments", ""),
        ("orders-7d9c5b6f4d-x2x8k", "payments", ""),
        ("payments-7d9c5b6f4d-x2x8k", "", ""),
        ("", "payments", ""),
    ],
)
def test_the_name_of_a_pod_tells_its_template(instance: str, templated: str, template: str) -> None:
    assert template_of(instance, templated) == template


@pytest.mark.parametrize(
    ("instance", "templated", "workload"),
    [
        ("payments-canary-7d9c5b6f4d-x2x8k", "payments", "payments-canary"),
        ("payments-7d9c5b6f4d-x2x8k", "payments", ""),
        ("payments-canary-7d9c5b6f4d-x2x8k", "", ""),
        pytest.param("ip-10-0-0-1", "payments", "", id="a node, which a pod of the workload may have named instead"),
        ("", "payments", ""),
    ],
)
def test_the_name_of_a_pod_tells_another_workload(instance: str, templated: str, workload: str) -> None:
    assert workload_beside(instance, templated) == workload


@pytest.mark.parametrize(
    ("instances", "rollout"),
    [
        (("pod-bbbbbb-bbbbb", "pod-cccccc-bbbbb"), True),
        (("pod-bbbbbb-bbbbb", "pod-bbbbbb-ccccc"), False),
        (("pod-bbbbbb-bbbbb", "laptop", "", "pod-3", "pod-worker-0", "pod-eu-west-1a-3"), False),
        (("pod-bbbbbb-bbbbb", "pod-canary-cccccc-bbbbb"), False),
        ((), False),
    ],
)
def test_pods_of_two_templates_are_a_rollout(instances: tuple[str, ...], rollout: bool) -> None:
    """A name that only begins as the workload's is none of its pods'."""
    assert are_of_two_templates(instances, "pod") == rollout
    assert not are_of_two_templates(instances, "")


def test_a_pod_of_another_workload_is_spared_while_the_scaled_one_has_others() -> None:
    """Nobody lowers the replicas of its workload, so a canary that was chosen stood idle for good."""
    group = Fleet(structs.replace(CONFIG, min_replicas=2), even(8, 150.0), members=0)
    for name in (old(0), old(1), old(2), "pod-canary-bbbbbb-bbbbb"):
        group.join(name)
    names = sorted(group.members)
    # The canary has the least: of one workload it would be the cheapest to empty.
    group.owners = {entry: names[number % 3] for number, entry in enumerate(group.partitions)}
    decision = group.run(60)
    assert decision.replicas_wanted == 2
    assert len(decision.victims) == 2
    assert names[3] not in decision.victims


def old(number: int) -> str:
    return f"pod-bbbbbb-bbbb{'bcdfghjk'[number]}"


def new(number: int) -> str:
    return f"pod-cccccc-cccc{'bcdfghjk'[number]}"


def rolling(load: float = 250.0, replicas: int = 3, surge: int = 1, **settings: Any) -> Fleet:
    """A group of so many replicas, and new pods of another template beside it."""
    group = Fleet(structs.replace(CONFIG, **({"min_replicas": replicas} | settings)), even(8, load), members=0)
    for number in range(replicas):
        group.join(old(number))
    names = sorted(group.members)
    group.owners = {entry: names[number % replicas] for number, entry in enumerate(group.partitions)}
    group.run_scaled(10)
    assert group.history[-1].replicas_wanted == replicas
    for number in range(surge):
        group.join(new(number))
    return group


@pytest.mark.parametrize("surge", [1, 3])
def test_a_new_pod_of_a_rollout_is_no_victim_and_no_replica_is_asked_for(surge: int) -> None:
    """The new pod owned least, so it went not ready as the victim, and the controllers waited for it for ever."""
    group = rolling(surge=surge)
    for _ in range(60):
        decision = group.step()
        request = scale_request(decision, group.state(), group.config)
        assert (decision.victims, decision.replicas_wanted) == ((), 3)
        assert (request.replicas, request.victims, request.ask, request.rollout) == (3, (), True, True)
        assert "a rollout is under way" in decision.reason or decision.outcome == "hold"


def test_a_leader_that_sees_too_little_does_not_ask_for_the_surplus() -> None:
    """A decision that holds never asks for fewer than there are, so each hold made the workload larger."""
    group = rolling()
    group.silent = {"m02"}
    for _ in range(8):
        group.tick()
        decision = group.decide()
        request = scale_request(decision, group.state(), group.config)
        assert request.replicas == 3
    assert (decision.outcome, request.ask) == ("hold", False), "fewer than there are would be asked for"


def asked_in(group: Fleet, seconds: int = 20) -> tuple[str, int, tuple[str, ...]]:
    """Reason, replicas that are asked for, and victims, after so many seconds of a rollout."""
    decision = group.run(seconds)
    request = scale_request(decision, group.state(), group.config)
    assert request.rollout
    return decision.reason_code, request.replicas, decision.victims


def test_a_policy_that_leaves_the_number_alone_does_not_take_the_surplus_for_it() -> None:
    """It asked for one more at every decision: each brought one more pod of the surplus."""
    assert asked_in(rolling(policy="fixed", min_replicas=1)) == ("rollout", 3, ())


def test_what_the_command_line_fixes_counts_at_once_where_it_is_more() -> None:
    group = rolling(policy="fixed", min_replicas=1)
    for replicas, asked in ((2, ("rollout", 3, ())), (6, ("fixed", 6, ()))):
        group.manual_override = ManualOverrideRecord(group="g", member="cli", at=1.0, action="scale", replicas=replicas)
        assert asked_in(group) == asked


def test_the_maximum_of_a_new_template_waits_for_the_end_of_the_rollout() -> None:
    """Its first pod may lead. What was wanted is more than its settings allow, and all of that works."""
    group = rolling(replicas=4, load=700.0)
    settings = {"max_replicas": 2, "min_replicas": 1}
    decision = successor(group, **settings).decide(group.now, group.state())
    assert scale_request(decision, group.state(), structs.replace(group.config, **settings)).replicas == 4


def successor(group: Fleet, **settings: Any) -> Planner:
    """The leader of the new template, which has heard what the one before it told."""
    leader = make_planner(structs.replace(group.config, **settings))
    leader.remember(group.history[-1])
    for report, received_at in group.reports[-40:]:
        leader.observe(report, received_at)
    return leader


def test_more_than_the_maximum_is_not_asked_for_where_it_never_was_there() -> None:
    """The cluster was full, or the leader before had nobody to ask: only as many as are there have to stay."""
    group = rolling(replicas=4, load=700.0)
    settings = {"max_replicas": 6, "min_replicas": 1}
    group.history.append(structs.replace(group.history[-1], state=group.history[-1].state | {"wanted": 24.0}))
    decision = successor(group, **settings).decide(group.now, group.state())
    assert decision.replicas_wanted == 6
    assert scale_request(decision, group.state(), structs.replace(group.config, **settings)).replicas == 6


@pytest.mark.parametrize("before", [{"mode": "shadow"}, {"can_scale": False}])
def test_what_was_advice_before_is_asked_of_nobody_in_a_rollout(before: dict[str, Any]) -> None:
    """Six work, the advice was three. The first new pod asks, and with the metric three would be ended at once."""
    group = rolling(replicas=6, load=250.0)
    advice = make_planner(structs.replace(group.config, min_replicas=3, **before))
    for report, received_at in group.reports[-40:]:
        advice.observe(report, received_at)
    group.history.append(advice.decide(group.now, group.state()))
    assert not group.history[-1].scales
    group.requested = None
    decision = successor(group, min_replicas=1).decide(group.now + 1.0, group.state())
    assert not scale_request(decision, group.state(), group.config).ask


def test_a_rollout_does_not_keep_a_group_from_what_it_needs() -> None:
    group = rolling()
    group.rates = even(8, 900.0)
    group.run(20)
    request = scale_request(group.history[-1], group.state(), group.config)
    assert request.replicas >= 5
    assert (request.victims, request.rollout) == ((), True)


def test_a_leader_that_knows_nothing_asks_for_nothing_in_a_rollout_but_for_more_than_there_are() -> None:
    """It cannot tell the surplus from what was wanted."""
    group = Fleet(CONFIG, even(8, 250.0), members=0)
    for name in (old(0), old(1), new(0)):
        group.join(name)
    names = sorted(group.members)
    group.owners = {entry: names[number % 3] for number, entry in enumerate(group.partitions)}
    decision = group.run(20)
    assert (decision.replicas_wanted, decision.victims, decision.reason_code) == (3, (), "rollout")
    assert not scale_request(decision, group.state(), group.config).ask
    group.rates = even(8, 900.0)
    request = scale_request(group.run(10), group.state(), group.config)
    assert request.ask
    assert request.replicas >= 5


def test_a_smaller_group_waits_for_the_end_of_the_rollout() -> None:
    group = Fleet(CONFIG, even(8, 700.0), members=0)
    for number in range(4):
        group.join(old(number))
    before_it = sorted(group.members)
    group.owners = {entry: before_it[number % 4] for number, entry in enumerate(group.partitions)}
    before = group.run(10).replicas_wanted
    newcomer = group.join(new(0))
    group.rates = even(8, 40.0)
    decision = group.run(120)
    assert (decision.replicas_wanted, decision.reason_code, decision.victims) == (before, "rollout", ())
    assert "down_at" not in decision.state, "none was let go"
    for member in before_it:
        group.remove(member)
    group.owners = dict.fromkeys(group.owners, newcomer)
    assert group.run(30).replicas_wanted == 1
