"""Names of control topics: legal, readable, and different by Kafka's own rule."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.wire.topic_names import (
    BASELINE_TOPIC,
    CONTROL_PREFIX,
    TOPIC_NAME_MAX,
    control_topic,
    group_of,
    is_internal,
)

LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")

any_group = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
tricky_group = st.text("._-a2e5fh", min_size=1, max_size=8)
"""Pieces of escapes and of the digest's mark: where a careless escaping collides."""
long_group = st.text("ab._é", min_size=200, max_size=400)
groups = any_group | tricky_group | long_group


def by_kafkas_rule(topic: str) -> str:
    """What must differ: ``org.apache.kafka.common.internals.Topic#unifyCollisionChars``."""
    return topic.replace(".", "_")


@pytest.mark.parametrize("group", ["payments-service", "a", "Team7-orders", "0"])
def test_plain_ids_stay_as_they_are(group: str) -> None:
    assert control_topic(group) == f"__loadtrim.{group}"


def test_special_characters_are_escaped() -> None:
    assert control_topic("payments.v2_eu") == "__loadtrim.payments_2ev2_5feu"
    assert control_topic("Zürich/ä b") == "__loadtrim.Z_c3_bcrich_2f_c3_a4_20b"


@given(groups)
@example("x" * 238)
@example("x" * 239)
@example("." * 80)
def test_every_name_is_legal(group: str) -> None:
    assert LEGAL.fullmatch(control_topic(group))


@given(groups, groups)
@example("a.b", "a_b")
@example("a_2eb", "a.b")
@example("x" * 239, "x" * 240)
def test_no_two_groups_collide(one: str, other: str) -> None:
    assume(one != other)
    assert by_kafkas_rule(control_topic(one)) != by_kafkas_rule(control_topic(other))


@given(long_group)
def test_a_hashed_name_is_never_the_name_of_a_group_that_spells_it(group: str) -> None:
    name = control_topic(group)
    assert control_topic(name.removeprefix(CONTROL_PREFIX)) != name


def test_a_long_id_keeps_its_beginning() -> None:
    name = control_topic("payments." * 60)
    assert len(name) <= TOPIC_NAME_MAX
    assert name.startswith("__loadtrim.payments_2epayments_2e")
    assert name != control_topic("payments." * 61)


@given(any_group | tricky_group)
def test_the_name_tells_the_group(group: str) -> None:
    name = control_topic(group)
    assert group_of(name) == (group if "_h" not in name else None)


@pytest.mark.parametrize(
    "topic",
    [
        "payments",
        "__loadtrim.",
        "__loadtrim._zz",
        "__loadtrim._ff",
        "__loadtrim.a.b",
        "__loadtrim._61",
        BASELINE_TOPIC,
    ],
)
def test_other_topics_tell_no_group(topic: str) -> None:
    assert group_of(topic) is None


@pytest.mark.parametrize("group", ["", "\ud800"])
def test_what_is_no_group_id_is_refused(group: str) -> None:
    with pytest.raises(LoadtrimError):
        control_topic(group)


@given(groups)
def test_every_control_topic_is_internal(group: str) -> None:
    assert is_internal(control_topic(group))


def test_what_a_pattern_may_match() -> None:
    assert is_internal(BASELINE_TOPIC)
    assert is_internal("ops.loadtrim", also=("ops.loadtrim",))
    assert not is_internal("ops.loadtrim")
    assert not is_internal("__loadtrim-backup")
    assert not is_internal("payments")
