"""The name of a group's changes: one the API server takes, of that group alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.leader.scaling.kubernetes.manager import field_manager, group_of_manager


def test_a_group_is_read_from_its_own_name() -> None:
    assert field_manager("payments-service") == "loadtrim-payments-service"
    assert group_of_manager("loadtrim-payments-service") == "payments-service"


@pytest.mark.parametrize("manager", ["loadtrim", "kubectl", "kube-controller-manager", "my-loadtrim-payments", ""])
def test_other_writers_are_no_group(manager: str) -> None:
    assert group_of_manager(manager) == ""


def test_the_longest_id_that_fits_stands_as_it_is() -> None:
    assert field_manager("g" * 119) == "loadtrim-" + "g" * 119
    assert "~" in field_manager("g" * 120)


@pytest.mark.parametrize("group", ["g" * 120, "größe", "two\nlines", "nul\0", "a~b", "🙂" * 60])
def test_an_id_that_the_api_does_not_take_is_cut_and_hashed(group: str) -> None:
    name = field_manager(group)
    assert name.startswith("loadtrim-")
    assert name.count("~") == 1
    assert len(name) <= 128


def test_ids_that_are_alike_where_they_are_cut_have_names_of_their_own() -> None:
    assert field_manager("g" * 200) != field_manager("g" * 201)
    assert field_manager("größe") != field_manager("grüße")
    hashed = field_manager("größe")
    assert field_manager(hashed.removeprefix("loadtrim-")) != hashed, "also where a group is called as another's hash"


@given(st.text(), st.text())
def test_each_name_is_printable_short_and_of_one_group(one: str, other: str) -> None:
    name = field_manager(one)
    assert name.isascii()
    assert name.isprintable()
    assert len(name.encode()) <= 128
    assert (name == field_manager(other)) == (one == other)
