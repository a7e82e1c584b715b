"""A number of replicas that cannot be right is refused or warned about before it costs anything."""

from __future__ import annotations

import json

import pytest

from loadtrim.cli import main, manual_override
from loadtrim.cli.manual_override import refuse_above_maximum, too_many, without_effect
from loadtrim.errors import UsageError
from loadtrim.observer.group import ObservedGroup
from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from unit.planning.virtual_group import Fleet, even
from unit.sdk.observer.control_records import base, decision, report, view


def scale(replicas: int | None, forced: bool = False) -> ManualOverrideRecord:
    action = "hold" if replicas is None else "scale"
    return ManualOverrideRecord(group="g", member="cli", at=0.0, action=action, replicas=replicas, forced=forced)


def test_more_than_the_maximum_is_refused() -> None:
    with pytest.raises(UsageError, match="LOADTRIM_MAX_REPLICAS=2"):
        refuse_above_maximum(scale(3), decision(replicas_max=2))


@pytest.mark.parametrize(
    ("replicas", "forced", "most"), [(2, False, 2), (99, True, 2), (99, False, None), (None, False, 2)]
)
def test_all_else_is_not(replicas: int | None, forced: bool, most: int | None) -> None:
    refuse_above_maximum(scale(replicas, forced), decision(replicas_max=most))
    refuse_above_maximum(scale(replicas, forced), None)


@pytest.mark.parametrize(
    ("replicas", "forced", "warning"),
    [
        (4, False, ""),
        (5, False, "more than the group's 4 partitions, and some would own nothing: 4 are asked for at most, all"),
        (6, True, "more than the group's 4 partitions: 2 or more will own nothing."),
        (None, False, ""),
    ],
)  # fmt: skip
def test_more_than_the_partitions_is_warned_about(replicas: int | None, forced: bool, warning: str) -> None:
    told = too_many(scale(replicas, forced), decision(partition_count=4))
    assert warning in told
    assert bool(warning) == bool(told)
    assert too_many(scale(replicas, forced), None) == ""


@pytest.mark.parametrize(
    ("replicas", "fields", "said"),
    [
        (3, {"scales": False}, "no scaler (LOADTRIM_SCALER)"),
        (3, {"scales": False, "mode": "shadow"}, "LOADTRIM_MODE=active"),
        (3, {"scales": True}, ""),
        (None, {"scales": False}, ""),
    ],
)
def test_an_order_that_nobody_carries_out_is_said_to_be_one(
    replicas: int | None, fields: dict[str, object], said: str
) -> None:
    """The group was said to have 3 replicas from now on, and nothing came of it."""
    state = view(base(1, {"a": (0,)}), decision("a", **fields)).state(1.0)
    told = without_effect(scale(replicas), state)
    assert said in told
    assert bool(said) == bool(told)


@pytest.mark.parametrize("replicas", [3, None])
def test_in_a_mixed_group_no_order_has_an_effect(replicas: int | None) -> None:
    folded = view(base(1, {"a": (0,)}), decision("a"))
    for at in (1.0, 2.0, 3.0):
        folded.apply(report("a", at=at, generation=2))
    assert "This is a mixed group" in without_effect(scale(replicas), folded.state(3.0))


@pytest.mark.parametrize("words", [["scale", "g", "5"], ["hold", "g"]])
@pytest.mark.parametrize("alive", [False, True])
def test_nobody_to_heed_it_is_said_beside_the_json_too(
    words: list[str], alive: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def written(*_: object) -> tuple[bool, ObservedGroup]:
        return alive, view().state(0.0)

    monkeypatch.setattr(manual_override, "_write", written)
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["action"] == words[0]
    assert ("Nobody is in the group now" in told.err) is not alive


def test_a_maximum_above_the_partitions_is_what_is_asked_for() -> None:
    """It was told that no more are asked for than there are partitions, and the leader asked for all of them."""
    told = too_many(scale(5), decision(partition_count=4, replicas_max=6))
    assert told == "5 replicas are more than the group's 4 partitions: 1 or more will own nothing."
    group = Fleet(PlanConfig(group="g", max_replicas=6), even(4, 100.0))
    group.run(5)
    group.manual_override = scale(5)
    assert scale_request(group.step(), group.state(), group.config).replicas == 5
