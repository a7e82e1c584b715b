"""What is known of a member that may go."""

from __future__ import annotations

from random import Random

import pytest

from loadtrim_agent.planning.placement.problem import Bin, Item
from loadtrim_agent.planning.placement.victims import _owned, going
from loadtrim_agent.planning.registry import make_packer
from unit.planning.virtual_group import item, problem


def test_partitions_are_counted_and_their_work_with_what_waits_is_added_up() -> None:
    items = [item(0, "a", 0.25), item(1, "a", 0.5), item(2, "b", 1.0), item(3, None, 2.0)]
    assert _owned(items) == {"a": (2, 0.75), "b": (1, 1.0)}


def pod(number: int, member: str = "", capacity: float = 1.0, of: str = "payments") -> Bin:
    return Bin(member=member or f"m{number:02}", unit=f"{of}-{number}", capacity=capacity)


def dearest_last(*members: Bin) -> list[Item]:
    """Work for each member, the more the higher its number: whoever looks at it takes the lowest."""
    return [item(at, entry.member, 0.01 * (at + 1)) for at, entry in enumerate(members)]


def test_of_a_statefulset_the_highest_numbers_go_whatever_they_own() -> None:
    """Also in the order of numbers, not of names: 10 is above 9."""
    pods = [pod(number) for number in range(12)]
    given = problem(dearest_last(*pods), pods, replicas=9, numbered="payments", leader="m11")
    assert going(given) == ("m09", "m10", "m11")
    assert going(given, ["payments-11", "payments-10"]) == ("m09", "m10", "m11"), "also where others would be better"


def test_who_was_to_go_stays_where_a_higher_number_has_come() -> None:
    pods = [pod(number) for number in range(4)]
    assert going(problem([], pods, replicas=3, numbered="payments", victims=("m02",))) == ("m03",)


def test_a_pod_that_is_stronger_goes_all_the_same() -> None:
    pods = [pod(0), pod(1), pod(2, capacity=4.0)]
    assert going(problem([], pods, replicas=2, numbered="payments")) == ("m02",)


def test_all_members_of_the_highest_number_go() -> None:
    pods = [pod(0, "a"), pod(1, "b"), pod(1, "c"), pod(0, "d")]
    assert going(problem([], pods, replicas=1, numbered="payments")) == ("b", "c")


def test_an_instance_that_is_no_pod_of_the_statefulset_goes_last() -> None:
    strangers = [Bin(member="x", unit="laptop", capacity=1.0), Bin(member="y", unit="payments-x", capacity=1.0)]
    given = problem([], [*strangers, pod(0), pod(7, "z", of="other")], replicas=3, numbered="payments")
    assert going(given) == ("m00",)


@pytest.mark.parametrize("name", ["trim", "trim:spread=0", "sticky", "least_loaded", "bf", "range", "iccbdc22"])
def test_each_packer_empties_the_highest_numbers(name: str) -> None:
    draw = Random(7)
    for _ in range(20):
        pods = [pod(number) for number in range(draw.randint(2, 12))]
        items = [item(at, draw.choice(pods).member, draw.random() / 8) for at in range(16)]
        stay = draw.randint(1, len(pods) - 1)
        placed = make_packer(name).pack(problem(items, pods, replicas=stay, numbered="payments"))
        assert placed.victims == tuple(entry.member for entry in pods[stay:])
        assert set(placed.owners.values()).isdisjoint(placed.victims)
