"""A record of a batch is in hand for longer than it costs: less of the objective is left, and less of a lag waits."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.planning.in_hand import batch_seconds_of, waiting_shares
from loadtrim_agent.planning.values import MemberEstimate, PartitionEstimate
from unit.planning.virtual_group import partition

COST = 0.07
"""Of a record, of which twenty are worked on at once."""
BATCH = 1.3

IN_HAND = 1.0 + BATCH / COST


def entry(index: int, owner: str | None, rate: float = 10.0, records: float = 0.0, **more: Any) -> PartitionEstimate:
    return PartitionEstimate(
        partition=partition(index),
        owner=owner,
        rate=rate,
        curve=more.pop("curve", None),
        persistent_backlog=records * more.get("cost", COST),
        **{"cost": COST} | more,
    )


def test_a_record_that_is_worked_on_by_itself_waits_for_no_batch() -> None:
    assert batch_seconds_of([entry(0, "a")], {"a": MemberEstimate(capacity=1.0)}) == 0.0
    assert batch_seconds_of([], {}) == 0.0


def test_what_members_differ_by_counts_by_their_records() -> None:
    members = {"a": MemberEstimate(capacity=1.0, batch_seconds=BATCH), "b": MemberEstimate(capacity=1.0)}
    mixed = batch_seconds_of([entry(0, "a", rate=10.0), entry(1, "b", rate=30.0), entry(2, None)], members)
    assert mixed == pytest.approx(BATCH * 10.0 / 40.0), "what nobody owns will have an owner like these"


@pytest.mark.parametrize(("records", "waits"), [(10.0, 0.0), (IN_HAND, 0.0), (40.0, 1.0 - IN_HAND / 40.0)])
def test_a_batch_in_hand_is_no_backlog(records: float, waits: float) -> None:
    """A member that gives one busy second per second has as many in hand as a batch takes, and a record."""
    members = {"a": MemberEstimate(capacity=1.0, batch_seconds=BATCH)}
    shares = waiting_shares([entry(0, "a", records=records / 2), entry(1, "a", records=records / 2)], members)
    assert shares == {"a": pytest.approx(waits)}


def test_what_is_too_little_to_be_told_waits_no_less() -> None:
    """Records that cost next to nothing: the seconds of a lag vanish before its records do."""
    members = {"a": MemberEstimate(capacity=1.0, speed=1e9, batch_seconds=BATCH)}
    assert waiting_shares([entry(0, "a", records=1.0, cost=5e-324)], members) == {}


def test_one_record_in_hand_is_no_backlog_and_nobody_has_that_of_no_owner() -> None:
    members = {"a": MemberEstimate(capacity=1.0), "b": MemberEstimate(capacity=1.0)}
    sized = [entry(0, "a", records=4.0), entry(1, None, records=4.0), entry(2, "gone", records=4.0), entry(3, "b")]
    assert waiting_shares(sized, members) == {"a": 0.75}
