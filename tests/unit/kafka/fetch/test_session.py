"""Fetch sessions against a broker that follows KIP-227 to the letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.session import EPOCH_MAX, FetchSession, SessionRequest

PARTITIONS = [Partition("a", 0), Partition("a", 1), Partition("b", 0)]


class Broker:
    """Remembers one session."""

    def __init__(self) -> None:
        self.id, self.epoch = 0, 0
        self.fetched: dict[Partition, int] = {}
        self.created = 0

    def answer(self, request: SessionRequest, slots: bool) -> tuple[int, int]:
        """(error code, session id)."""
        if request.epoch == 0:
            self.fetched = dict(request.fetch)
            if not slots:
                return 0, 0
            self.created += 1
            self.id, self.epoch = self.created, 1
            return 0, self.id
        if request.session != self.id:
            return 70, 0
        if request.epoch != self.epoch:
            return 71, 0
        self.epoch += 1
        self.fetched.update(request.fetch)
        for partition in request.forget:
            del self.fetched[partition]
        return 0, self.id


steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(PARTITIONS), st.integers(0, 3)),
        st.tuples(st.just("unwant"), st.sampled_from(PARTITIONS), st.just(0)),
        st.tuples(st.just("ask"), st.just(PARTITIONS[0]), st.integers(0, 4)),
    ),
    max_size=40,
)


@given(steps)
def test_the_broker_fetches_what_is_wanted(steps: list[tuple[str, Partition, int]]) -> None:
    """Whatever is lost on the way: once a request is answered, the broker fetches exactly what was wanted."""
    session, broker = FetchSession(), Broker()
    for what, partition, number in steps:
        if what == "want":
            session.want(partition, (number, 1))
        elif what == "unwant":
            session.unwant(partition)
        else:
            request = session.request()
            assert (request is None) == (not session.wanted)
            if request is None:
                continue
            if number == 1:  # lost before the broker saw it
                session.lost(known=True)
                continue
            if number == 2:  # the broker was restarted
                broker.id = -1
            code, told = broker.answer(request, slots=number != 3)
            if number == 4:  # the answer is lost
                session.lost(known=True)
            elif code:
                session.lost(known=code != 70)
            else:
                session.answered(told)
                assert broker.fetched == {p: offset for p, (offset, _) in session.wanted.items()}
                assert session.sent == session.wanted


def test_a_request_carries_only_what_changed() -> None:
    session, broker = FetchSession(), Broker()
    for partition in PARTITIONS:
        session.want(partition, (0, 1))
    first = session.request()
    assert first is not None
    session.answered(broker.answer(first, slots=True)[1])
    session.want(PARTITIONS[0], (7, 1))
    session.unwant(PARTITIONS[2])
    second = session.request()
    assert second == SessionRequest(session=1, epoch=1, fetch=[(PARTITIONS[0], 7)], forget=[PARTITIONS[2]])
    assert session.answered(broker.answer(second, slots=True)[1]) == [PARTITIONS[0]]
    third = session.request()
    assert third == SessionRequest(session=1, epoch=2, fetch=[], forget=[])


def test_a_full_request_puts_who_was_given_records_behind_the_others() -> None:
    """Only the first of a request may be answered above its limit (KIP-74): each has its turn."""
    session, broker = FetchSession(), Broker()
    for partition in PARTITIONS:
        session.want(partition, (0, 1))
    for _ in PARTITIONS:
        request = session.request()
        assert request is not None
        assert request.epoch == 0, "no slot, so each request is a full one"
        first, offset = request.fetch[0]
        session.answered(broker.answer(request, slots=False)[1])
        session.want(first, (offset + 1, 1))
    assert [wanted for wanted, _ in session.wanted.values()] == [1, 1, 1]


def test_a_throttled_answer_tells_nothing() -> None:
    session, broker = FetchSession(), Broker()
    session.want(PARTITIONS[0], (0, 1))
    request = session.request()
    assert request is not None
    assert session.answered(broker.answer(request, slots=True)[1]) == [PARTITIONS[0]]
    session.want(PARTITIONS[1], (0, 1))
    request = session.request()
    assert request is not None
    assert session.answered(broker.answer(request, slots=True)[1], told=False) == []
    request = session.request()
    assert request is not None
    assert session.answered(broker.answer(request, slots=True)[1]) == [PARTITIONS[1]]


def test_epochs_begin_anew_at_one_behind_the_largest() -> None:
    """0 would begin another session, and a number above the largest cannot be sent."""
    session, broker = FetchSession(), Broker()
    session.want(PARTITIONS[0], (0, 1))
    request = session.request()
    assert request is not None
    session.answered(broker.answer(request, slots=True)[1])
    session.epoch = EPOCH_MAX
    for epoch in (EPOCH_MAX, 1, 2):
        request = session.request()
        assert request is not None
        assert (request.session, request.epoch) == (1, epoch)
        session.answered(1)


@pytest.mark.parametrize("known", [True, False])
def test_only_a_session_that_the_broker_may_have_is_named_when_another_begins(known: bool) -> None:
    """Naming it closes it (KIP-227); one that the broker does not know was not closed, but refused again."""
    session, broker = FetchSession(), Broker()
    session.want(PARTITIONS[0], (0, 1))
    request = session.request()
    assert request is not None
    session.answered(broker.answer(request, slots=True)[1])
    session.lost(known=known)
    again = session.request()
    assert again == SessionRequest(session=1 if known else 0, epoch=0, fetch=[(PARTITIONS[0], 0)], forget=[])
