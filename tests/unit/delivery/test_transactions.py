"""What offsets in a transaction carry: the acquisition that they belong to, and a generation that the broker takes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from aiokafka.errors import CommitFailedError, IllegalStateError

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.transactions import Fence, Transactions
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import GroupConfig
from loadtrim_agent.protocol.snapshot import AssignedView

ONE, TWO = Partition("orders", 0), Partition("orders", 1)


def held(acquisition_id: int, state: AssignedState = AssignedState.RUNNING) -> AssignedView:
    return AssignedView(acquisition_id=acquisition_id, state=state, committed=None, held_up=False)


@dataclass(frozen=True)
class Snapshot:
    """As much of a snapshot as transactions look at."""

    config: GroupConfig = GroupConfig(group="g", topics=(), auto_commit=False)  # noqa: RUF009 - it is frozen
    assigned: dict[Partition, AssignedView] = field(default_factory=lambda: {ONE: held(4), TWO: held(5)})
    member: str = "m1"
    generation: int = 3


class Member:
    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot
        self.fed: list[e.Event] = []

    def snapshot(self) -> Snapshot:
        return self.now

    def feed(self, event: e.Event) -> None:
        self.fed.append(event)


def made(**changes: object) -> tuple[Transactions, Member]:
    member = Member(replace(Snapshot(), **changes))  # type: ignore[arg-type]
    return Transactions(member, 5.0), member  # type: ignore[arg-type]


async def test_offsets_are_of_the_acquisitions_that_are_held() -> None:
    transactions, member = made()
    acquisitions = await transactions.begin([TWO, ONE])
    assert acquisitions == {ONE: 4, TWO: 5}
    transactions.end(acquisitions)
    assert [type(event) for event in member.fed] == [e.TransactionSendsEvent, e.TransactionSentEvent]
    assert await transactions.fence(acquisitions, None) == Fence("m1", 3)


async def test_what_is_not_held_and_auto_commit_have_no_transaction() -> None:
    transactions, member = made()
    with pytest.raises(IllegalStateError, match="not assigned"):
        await transactions.begin([Partition("orders", 9)])
    member.now = replace(member.now, config=GroupConfig(group="g", topics=()))
    with pytest.raises(IllegalStateError, match="auto-commit"):
        await transactions.begin([ONE])
    assert member.fed == []


@pytest.mark.parametrize(
    "now",
    [
        {},
        {ONE: held(6)},
        {ONE: held(4, AssignedState.TRANSFERRED)},
        {ONE: held(4, AssignedState.FETCHING)},
    ],
    ids=["lost", "acquired again", "released", "not opened"],
)
async def test_offsets_of_what_was_given_away_are_not_sent(now: dict[Partition, AssignedView]) -> None:
    """Its owner since may have committed more: these offsets would set it back."""
    transactions, member = made()
    acquisitions = await transactions.begin([ONE])
    member.now = replace(member.now, assigned=now)
    with pytest.raises(CommitFailedError, match="orders-0 was given to another member"):
        await transactions.fence(acquisitions, None)


@pytest.mark.looptime
async def test_a_generation_that_the_broker_refused_is_waited_out(looptime: object) -> None:
    transactions, member = made()
    acquisitions = await transactions.begin([ONE])
    waiting = asyncio.ensure_future(transactions.fence(acquisitions, 3))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    member.now = replace(member.now, generation=4)
    transactions.generation_changed()
    assert await waiting == Fence("m1", 4)
    with pytest.raises(CommitFailedError, match="shut out"):
        await transactions.fence(acquisitions, 4)
