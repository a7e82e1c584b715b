"""Members are shown by names that people know."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.member_names import client_of, member_names, short_member

RANDOM = "6f1d2c34-0000-1111-2222-333344445555"
LONG = "a-very-long-member-id-that-somebody-has-written-by-hand"


@pytest.mark.parametrize(
    ("member", "client", "short"),
    [
        (f"orders-{RANDOM}", "orders", "orders-6f1d2c"),
        (f"aiokafka-0.14.0-{RANDOM}", "aiokafka-0.14.0", "aiokafka-0.14.0-6f1d2c"),
        ("m1", "m1", "m1"),
        (f"-{RANDOM}", f"-{RANDOM}", f"-{RANDOM}"),
        (LONG, LONG, LONG),
    ],
)  # fmt: skip
def test_the_client_is_what_stands_before_the_random_part(member: str, client: str, short: str) -> None:
    assert (client_of(member), short_member(member)) == (client, short)


def test_a_member_is_called_by_its_instance() -> None:
    assert member_names({f"orders-{RANDOM}": "pod-a", "b": "pod-b"}) == {f"orders-{RANDOM}": "pod-a", "b": "pod-b"}


def test_members_of_one_instance_have_their_client_id_behind_it() -> None:
    one, other = f"orders-{RANDOM}", f"refunds-{RANDOM}"
    assert member_names({one: "pod-a", other: "pod-a"}) == {one: "pod-a/orders", other: "pod-a/refunds"}


def test_members_of_one_client_id_are_told_apart() -> None:
    one, other = f"orders-{RANDOM}", f"orders-7{RANDOM[1:]}"
    names = member_names({one: "pod-a", other: "pod-a"})
    assert names == {one: "pod-a/orders-6f1d2c", other: "pod-a/orders-7f1d2c"}
    assert member_names({one: "pod-a", other: "pod-b"}) == {one: "pod-a", other: "pod-b"}


def test_of_an_unknown_instance_the_member_id_is_left() -> None:
    assert member_names({f"orders-{RANDOM}": None, "b": ""}) == {f"orders-{RANDOM}": "orders-6f1d2c", "b": "b"}
