"""What ``LOADTRIM_POLICY`` and ``LOADTRIM_MONITOR`` may say in a real group."""

from __future__ import annotations

import contextlib

import pytest

from loadtrim.settings import Settings, SettingsError
from loadtrim_agent.planning.policy_registry import POLICIES


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"clairvoyant"}))
def test_every_policy_that_a_group_can_follow_may_be_chosen(name: str) -> None:
    assert Settings.from_env({"LOADTRIM_POLICY": name}).policy == name


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("clairvoyant", "what will arrive.*set LOADTRIM_POLICY to another"),
        (
            "keda:lag_threshold_records=-1",
            "lag_threshold_records of the policy 'keda' is -1.*allowed is a number above 0",
        ),
        ("li_kuu", "there is no policy 'li_kuu'.*nearest is 'li_ku'"),
    ],
)
def test_what_cannot_be_followed_stops_the_start_with_one_line(value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=f"LOADTRIM_POLICY={value} cannot be used: .*{message}") as caught:
        Settings.from_env({"LOADTRIM_POLICY": value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "good"), [("0.4", False), ("0.5", True), ("0.999", True), ("1", False)])
def test_a_share_that_nothing_can_be_sized_for_stops_the_start(value: str, good: bool) -> None:
    """It was taken, and refused by the planner later, in other words."""
    with contextlib.nullcontext() if good else pytest.raises(SettingsError, match="LOADTRIM_SLA_SHARE"):
        Settings.from_env({"LOADTRIM_SLA_SHARE": value})


@pytest.mark.parametrize("name", ["reports", "landau24", "iccbdc22"])
def test_a_monitor_is_chosen_by_name(name: str) -> None:
    assert Settings.from_env({"LOADTRIM_MONITOR": name}).monitor == name


def test_an_unknown_monitor_stops_the_start_with_those_there_are_and_the_nearest() -> None:
    said = "LOADTRIM_MONITOR=landau cannot be used: .*iccbdc22, landau24, reports .the nearest is 'landau24'"
    with pytest.raises(SettingsError, match=said):
        Settings.from_env({"LOADTRIM_MONITOR": "landau"})
