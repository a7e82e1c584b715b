"""Offsets sent through transactions: no handoff overtakes them, and what is still open is waited for."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.wire.ownership_records import ReleaseRecord
from sim.driver import Driver

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def fetched(d: Driver, fetch: int, offsets: dict[Partition, int], *unstable: Partition) -> None:
    d.feed(e.CommittedFetchedEvent, fetch=fetch, code=0, offsets=offsets, unstable=frozenset(unstable))


def drained(d: Driver) -> Driver:
    """P0 on its way to the other member, drained."""
    d.give(P0)
    d.drained(P0, 9)
    return d


def test_an_open_transaction_holds_up_its_own_partitions_only() -> None:
    d = Driver().entered()
    fetched(d, d.only(c.FetchCommittedCommand).fetch, {P1: 7}, P0)
    assert [(o.partition, o.offset) for o in d.all(c.OpenCommand)] == [(P1, 7)]
    d.feed(e.OpenedEvent, partition=P1, acquisition_id=d.acquisition_of(P1), position=7)
    assert d.machine.snapshot().settled, "how long the transaction lasts is not ours: the start does not wait for it"
    d.after(0.1)
    again = d.only(c.FetchCommittedCommand)
    assert again.partitions == (P0,)
    fetched(d, again.fetch, {P0: 4})
    assert [(o.partition, o.offset) for o in d.all(c.OpenCommand)] == [(P0, 4)]
    assert not d.machine.snapshot().settled


def test_a_handoff_starts_at_the_offset_that_is_stable() -> None:
    d = drained(Driver(auto_commit=False).running(0))
    fetched(d, d.only(c.FetchCommittedCommand).fetch, {}, P0)
    assert d.kinds() == []
    d.after(0.1)
    fetched(d, d.only(c.FetchCommittedCommand).fetch, {P0: 9})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_a_transaction_that_stays_open_ends_the_move() -> None:
    d = drained(Driver(auto_commit=False).running(0))
    fetched(d, d.only(c.FetchCommittedCommand).fetch, {}, P0)
    d.after(d.machine.config.drain_seconds)
    assert "Resume" in d.kinds()
    assert d.machine.partitions.assigned[P0].state is AssignedState.RUNNING


def test_offsets_on_their_way_come_before_the_look_at_the_broker() -> None:
    d = Driver(auto_commit=False).running(0)
    acquisitions = {P0: d.acquisition_of(P0)}
    for _ in range(2):
        d.feed(e.TransactionSendsEvent, acquisitions=acquisitions)
    drained(d)
    assert d.kinds() == [], "what it would find may be older than what is on its way"
    d.feed(e.TransactionSentEvent, acquisitions=acquisitions)
    assert d.kinds() == [], "there is another"
    d.feed(e.TransactionSentEvent, acquisitions=acquisitions)
    assert d.kinds() == ["FetchCommitted"]


def test_offsets_sent_after_the_look_make_it_stale() -> None:
    d = drained(Driver(auto_commit=False).running(0))
    first = d.only(c.FetchCommittedCommand)
    acquisitions = {P0: d.acquisition_of(P0)}
    d.feed(e.TransactionSendsEvent, acquisitions=acquisitions)
    fetched(d, first.fetch, {P0: 5})
    assert d.kinds() == [], "no release at an offset that the transaction moves"
    d.feed(e.TransactionSentEvent, acquisitions=acquisitions)
    fetched(d, d.only(c.FetchCommittedCommand).fetch, {P0: 9})
    record = d.only(c.AppendCommand).record
    assert isinstance(record, ReleaseRecord)
    assert record.offset == 9


def test_what_an_earlier_acquisition_sends_concerns_no_later_one() -> None:
    d = Driver(auto_commit=False).running(0)
    d.feed(e.TransactionSendsEvent, acquisitions={P0: d.acquisition_of(P0) - 1})
    drained(d)
    assert d.kinds() == ["FetchCommitted"]
    assert d.feed(e.TransactionSentEvent, acquisitions={P0: d.acquisition_of(P0) - 1}) == []
