"""What names of pods tell: numbers, templates, and that a rollout is under way."""

from __future__ import annotations

import pytest
from msgspec import structs

from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.pods import ROLLOUT_SECONDS, is_rollout, place_in_line, template_of
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig
from unit.planning.virtual_group import Fleet, T, even

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=3.0, templated="pod")


@pytest.mark.parametrize(
    ("instance", "numbered", "place"),
    [("pod-0", "pod", 0), ("pod-12", "pod", 12), ("pod-x", "pod", -1), ("other-3", "pod", -1), ("pod-3", "", -1)],
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


def group_of(*instances: str | None, joined_at: float = T) -> GroupState:
    members = {
        f"m{number}": MemberState(instance=name, joined_at=joined_at - number) for number, name in enumerate(instances)
    }
    return GroupState(generation=1, leader="m0", members=members, owners={})


def test_pods_of_two_templates_are_a_rollout_for_as_long_as_some_come() -> None:
    assert is_rollout(T + 1.0, group_of("pod-a-1", "pod-b-1"), CONFIG)
    assert is_rollout(T + ROLLOUT_SECONDS - 1.0, group_of("pod-a-1", "pod-b-1"), CONFIG)
    assert not is_rollout(T + ROLLOUT_SECONDS, group_of("pod-a-1", "pod-b-1"), CONFIG), "it stands still"


def test_what_is_no_pod_of_the_workload_is_no_rollout() -> None:
    assert not is_rollout(T, group_of("pod-a-1", "pod-a-2"), CONFIG)
    assert not is_rollout(T, group_of("pod-a-1", "laptop", None, "pod-3"), CONFIG)
    assert not is_rollout(T, group_of("pod-a-1", "pod-b-1"), structs.replace(CONFIG, templated=""))
    assert not is_rollout(T, group_of(), CONFIG)


def rolling(load: float = 250.0, replicas: int = 3, surge: int = 1) -> Fleet:
    """A group of the size that its load takes, and new pods of another template beside it."""
    group = Fleet(structs.replace(CONFIG, min_replicas=replicas), even(8, load), members=0)
    for number in range(replicas):
        group.join(f"pod-old-{number}")
    names = sorted(group.members)
    group.owners = {entry: names[number % replicas] for number, entry in enumerate(group.partitions)}
    group.run_scaled(10)
    assert group.history[-1].replicas_wanted == replicas
    for number in range(surge):
        group.join(f"pod-new-{number}")
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
        assert scale_request(decision, group.state(), group.config).replicas == 3
    assert decision.outcome == "hold"


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
    for name in ("pod-old-0", "pod-old-1", "pod-new-0"):
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
        group.join(f"pod-old-{number}")
    old = sorted(group.members)
    group.owners = {entry: old[number % 4] for number, entry in enumerate(group.partitions)}
    before = group.run(10).replicas_wanted
    new = group.join("pod-new-0")
    group.rates = even(8, 40.0)
    decision = group.run(120)
    assert (decision.replicas_wanted, decision.reason_code, decision.victims) == (before, "rollout", ())
    for member in old:
        group.remove(member)
    group.owners = dict.fromkeys(group.owners, new)
    assert group.run(30).replicas_wanted == 1
