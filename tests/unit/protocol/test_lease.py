"""Until when a record may be handed out (rule 12)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.protocol.lease import Lease

SESSION, REBALANCE = 10.0, 20.0
times = st.floats(0.0, 100.0)


def test_none_before_the_first_answer() -> None:
    assert Lease(SESSION, REBALANCE).until == 0.0


def test_none_by_heartbeats_alone() -> None:
    lease = Lease(SESSION, REBALANCE)
    lease.renew_session(50.0)
    assert lease.until == 0.0


def test_ends_a_margin_before_the_session() -> None:
    lease = Lease(SESSION, REBALANCE)
    lease.renew(50.0)
    assert lease.until == 50.0 + SESSION - 0.5


def test_margin_grows_with_the_session() -> None:
    lease = Lease(60.0, 120.0)
    lease.renew(0.0)
    assert lease.until == 60.0 - 3.0


def test_a_barrier_that_waits_for_us_ends_it_whatever_heartbeats_say() -> None:
    lease = Lease(SESSION, REBALANCE)
    lease.renew(50.0)
    for sent_at in range(51, 80):
        lease.renew_session(float(sent_at))
    assert lease.until == 50.0 + REBALANCE - 0.5


def test_revoked() -> None:
    lease = Lease(SESSION, REBALANCE)
    lease.renew(50.0)
    lease.revoke()
    assert lease.until == 0.0
    lease.renew_session(60.0)
    assert lease.until == 0.0


def test_what_was_proved_before_it_was_revoked_is_forgotten() -> None:
    lease = Lease(SESSION, REBALANCE)
    lease.renew(50.0)
    lease.revoke()
    lease.renew(40.0)
    assert lease.until == 40.0 + SESSION - 0.5


@given(st.lists(st.tuples(times, st.booleans())))
def test_answers_in_any_order_give_the_same_lease(answers: list[tuple[float, bool]]) -> None:
    def until(given_answers: list[tuple[float, bool]]) -> float:
        lease = Lease(SESSION, REBALANCE)
        for sent_at, both in given_answers:
            (lease.renew if both else lease.renew_session)(sent_at)
        return lease.until

    assert until(answers) == until(sorted(answers))
