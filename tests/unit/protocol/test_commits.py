"""The queue of commits (rule 13)."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.commands import SendCommitCommand
from loadtrim_agent.protocol.commits import CommitFailure, CommitOutcome, CommitQueue, failure_of
from loadtrim_agent.protocol.events import CommitAnsweredEvent, OffsetCommit
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.missing_partitions import GONE_SECONDS

P0, P1 = Partition("orders", 0), Partition("orders", 1)
BACKOFF = 0.1
TOPIC_AUTHORIZATION_FAILED = 29


class Queue:
    """A queue with a member in generation 1 that holds both partitions by take 1."""

    def __init__(self) -> None:
        self.queue = CommitQueue(BACKOFF)
        self.acquisitions: dict[Partition, int] = {P0: 1, P1: 1}
        self.now = 100.0

    def want(self, request: int = 0, acquisition_id: int = 1, **offsets: int) -> None:
        names = {"p0": P0, "p1": P1}
        self.queue.want(
            request, {names[n]: OffsetCommit(acquisition_id=acquisition_id, offset=o) for n, o in offsets.items()}
        )

    def send(self, generation: int = 1) -> SendCommitCommand | None:
        return self.queue.next(self.now, "m1", generation)

    def answer(self, sent: SendCommitCommand | None, *codes: int) -> CommitOutcome:
        assert sent is not None
        answered = dict(zip(sorted(sent.offsets), codes, strict=True))
        event = CommitAnsweredEvent(
            now=self.now, commit=sent.commit, member=sent.member, generation=sent.generation, codes=answered
        )
        return self.queue.answered(event, self.acquisitions.get)


@pytest.fixture
def q() -> Queue:
    return Queue()


def test_nothing_to_send(q: Queue) -> None:
    assert q.queue.idle
    assert q.send() is None


def test_everything_queued_goes_as_one_request(q: Queue) -> None:
    q.want(p0=5)
    q.want(p1=7)
    sent = q.send()
    assert sent == SendCommitCommand(commit=1, member="m1", generation=1, offsets={P0: (5, ""), P1: (7, "")})
    outcome = q.answer(sent, 0, 0)
    assert outcome.acknowledged == {
        P0: OffsetCommit(acquisition_id=1, offset=5),
        P1: OffsetCommit(acquisition_id=1, offset=7),
    }
    assert q.queue.idle


def test_one_request_in_flight(q: Queue) -> None:
    q.want(p0=5)
    first = q.send()
    q.want(p0=6)
    assert q.send() is None
    assert q.queue.busy(P0, 1)
    q.answer(first, 0)
    second = q.send()
    assert second is not None
    assert second.offsets == {P0: (6, "")}


def test_the_latest_offset_is_of_the_commit_that_was_wanted_last(q: Queue) -> None:
    def latest(acquisition_id: int = 1) -> int | None:
        return q.queue.latest_offsets({P0: acquisition_id}.get).get(P0)

    assert latest() is None
    q.want(p0=5)
    sent = q.send()
    assert latest() == 5
    q.want(p0=4)
    assert latest() == 4, "user code went back"
    assert latest(2) is None, "of another acquisition"
    q.answer(sent, 0)
    q.answer(q.send(), 0)
    assert latest() is None


def test_answer_to_an_earlier_request_means_nothing(q: Queue) -> None:
    q.want(p0=5)
    first = q.send()
    q.answer(first, 0)
    q.want(p0=6)
    q.send()
    assert q.answer(first, 0).acknowledged == {}
    assert q.queue.busy(P0, 1)


def test_later_offset_replaces_an_earlier_one_and_answers_for_it(q: Queue) -> None:
    q.want(request=1, p0=5)
    q.want(request=2, p0=6, p1=1)
    sent = q.send()
    assert sent is not None
    assert sent.offsets[P0] == (6, "")
    assert q.answer(sent, 0, 0).finished == {1: 0, 2: 0}


def test_refused_around_a_barrier_is_sent_again_in_the_next_generation(q: Queue) -> None:
    q.want(request=1, p0=5)
    outcome = q.answer(q.send(), Code.ILLEGAL_GENERATION)
    assert outcome.refused == [P0]
    assert outcome.finished == {}
    assert q.send() is None, "the same member in the same generation is refused for ever"
    assert q.queue.wakeup("m1", 1) == float("inf")
    again = q.send(generation=2)
    assert again is not None
    assert q.answer(again, 0).finished == {1: 0}


@pytest.mark.parametrize(
    "code",
    [
        Code.REBALANCE_IN_PROGRESS,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.NOT_COORDINATOR,
        Code.DISCONNECTED,
        Code.REQUEST_TIMED_OUT,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_refused_for_now_waits_a_moment(q: Queue, code: Code) -> None:
    """A follower that was away, or a coordinator that had just started, ended a commit for good."""
    q.want(p0=5)
    q.answer(q.send(), code)
    assert q.send() is None
    assert q.queue.wakeup("m1", 1) == pytest.approx(q.now + BACKOFF)
    q.now += BACKOFF
    assert q.send() is not None


def test_newer_offset_survives_the_refusal_of_an_older(q: Queue) -> None:
    q.want(request=1, p0=5)
    first = q.send()
    q.want(request=2, p0=9)
    q.answer(first, Code.ILLEGAL_GENERATION)
    again = q.send(generation=2)
    assert again is not None
    assert again.offsets == {P0: (9, "")}
    assert q.answer(again, 0).finished == {1: 0, 2: 0}


def test_refused_for_good_is_told_and_forgotten(q: Queue) -> None:
    q.want(request=1, p0=5, p1=6)
    outcome = q.answer(q.send(), TOPIC_AUTHORIZATION_FAILED, 0)
    assert outcome.refused == [P0]
    assert list(outcome.acknowledged) == [P1]
    assert outcome.finished == {1: TOPIC_AUTHORIZATION_FAILED}
    assert q.queue.idle


def test_losing_a_partition_empties_its_entry(q: Queue) -> None:
    q.want(request=1, p0=5, p1=6)
    assert q.queue.lose(P0) == {1: Code.ILLEGAL_GENERATION}
    assert q.queue.lose(P0) == {}
    sent = q.send()
    assert sent is not None
    assert list(sent.offsets) == [P1]
    assert q.answer(sent, 0).finished == {}, "the caller was answered when its partition was lost"


def test_lost_while_in_flight_is_not_sent_again(q: Queue) -> None:
    q.want(request=1, p0=5)
    sent = q.send()
    del q.acquisitions[P0]
    outcome = q.answer(sent, Code.ILLEGAL_GENERATION)
    assert outcome.finished == {1: Code.ILLEGAL_GENERATION}
    assert outcome.refused == []
    assert q.queue.idle


def test_taken_again_while_in_flight_is_another_acquisition(q: Queue) -> None:
    q.want(p0=5)
    sent = q.send()
    q.acquisitions[P0] = 2
    assert q.answer(sent, 0).acknowledged == {}


def test_partition_missing_in_the_answer_was_not_answered(q: Queue) -> None:
    q.want(p0=5)
    sent = q.send()
    assert sent is not None
    event = CommitAnsweredEvent(now=q.now, commit=sent.commit, member="m1", generation=1, codes={})
    assert q.queue.answered(event, q.acquisitions.get).refused == [P0]
    assert q.queue.busy(P0, 1)


def test_numbers_go_on_in_the_next_queue(q: Queue) -> None:
    q.want(p0=5)
    q.send()
    later = CommitQueue(BACKOFF)
    later.continue_from(q.queue)
    later.want(0, {P0: OffsetCommit(acquisition_id=2, offset=1)})
    sent = later.next(q.now, "m2", 1)
    assert sent is not None
    assert sent.commit == 2


@pytest.mark.parametrize(
    ("codes", "failure"),
    [
        ((), None),
        ((Code.NONE, Code.NONE), None),
        ((Code.NONE, Code.REBALANCE_IN_PROGRESS), CommitFailure.REBALANCE),
        ((Code.ILLEGAL_GENERATION,), CommitFailure.REBALANCE),
        ((Code.ILLEGAL_GENERATION, Code.DISCONNECTED), CommitFailure.COORDINATOR),
        ((Code.NOT_COORDINATOR,), CommitFailure.COORDINATOR),
        ((Code.REQUEST_TIMED_OUT, Code.REBALANCE_IN_PROGRESS), CommitFailure.COORDINATOR),
        ((Code.REBALANCE_IN_PROGRESS, Code.UNKNOWN_MEMBER_ID), CommitFailure.FENCED),
        ((Code.FENCED_INSTANCE_ID,), CommitFailure.FENCED),
        ((Code.UNKNOWN_MEMBER_ID, TOPIC_AUTHORIZATION_FAILED), CommitFailure.REFUSED),
        ((12345,), CommitFailure.REFUSED),
    ],
)
def test_a_request_failed_by_the_worst_of_its_answers(codes: tuple[int, ...], failure: CommitFailure | None) -> None:
    assert failure_of(codes) is failure


def test_a_topic_that_stays_unknown_is_refused_for_good(q: Queue) -> None:
    """One that was deleted: its last commit was tried for as long as a member may take to leave."""
    q.want(1, p0=5)
    outcome = q.answer(q.send(), Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert (outcome.refused, outcome.finished) == ([P0], {})
    q.now += GONE_SECONDS
    outcome = q.answer(q.send(), Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert outcome.finished == {1: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert q.queue.idle
    q.now += BACKOFF
    q.want(2, p0=6)
    assert q.answer(q.send(), Code.NONE).finished == {2: Code.NONE}
    q.want(3, p0=7)
    assert q.answer(q.send(), Code.UNKNOWN_TOPIC_OR_PARTITION).finished == {}, "it is known again meanwhile"
