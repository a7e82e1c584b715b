"""Whatever a program does: what its commits are said to prove is no more, and no less, than they prove."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.delivery.commit_calls import CommitCalls
from loadtrim_agent.metering import commit_bounds
from loadtrim_agent.metering.commit_bounds import CommitBounds

W = 10


@dataclass
class Delivery:
    """One record that was handed out once, and the truth about it."""

    offset: int
    taken_at: int
    age: int
    done_at: int | None = None
    """The latest time that its program's word allows for: that of the first commit above it. None: it may be worked on
    still."""

    @property
    def in_time(self) -> bool:
        return self.done_at is not None and self.done_at - self.taken_at + max(0, self.age) <= W


@dataclass
class Program:
    """Any program that commits by hand. Whole numbers, so that nothing is rounded."""

    now: int = 100
    position: int = 0
    calls: CommitCalls = field(default_factory=lambda: CommitCalls(by_hand=True))
    bounds: CommitBounds = field(default_factory=lambda: CommitBounds(W))
    deliveries: list[Delivery] = field(default_factory=list)
    handed_on: int = 0
    gathered: int = 0
    in_time: int = 0
    unknown: int = 0

    def take(self, records: int, age: int) -> None:
        """Ask for records, which hands on those before."""
        self.handed_on = len(self.deliveries)
        for _ in range(records):
            self.deliveries.append(Delivery(self.position, self.now, age))
            self.position += 1

    def skip(self, offsets: int) -> None:
        """The log has a gap."""
        self.position += offsets

    def commit(self, ahead: int) -> None:
        """Commit an offset so far ahead of the position, or behind it."""
        offset = max(0, self.position + ahead)
        self.calls.called(offset, self.position, self.now)
        for each in self.deliveries:
            if each.done_at is None and each.offset < min(offset, self.position):
                each.done_at = self.now

    def seek(self, back: int) -> None:
        self.position = max(0, self.position - back)
        self.calls.moved(self.position)

    def wait(self, time: int) -> None:
        self.now += time

    def gather(self) -> None:
        for offset, at in self.calls.take():
            self.bounds.committed(offset, at)
        for each in self.deliveries[self.gathered : self.handed_on]:
            self.bounds.handed_on(each.offset, each.taken_at, each.age)
        self.gathered = self.handed_on
        self.bounds.expire(self.now)
        self._decide()

    def end(self) -> None:
        self.handed_on = len(self.deliveries)
        self.gather()
        self.bounds.close()
        self._decide()

    def _decide(self) -> None:
        latencies, unknown = self.bounds.take()
        assert all(0 <= latency <= W for latency in latencies)
        self.in_time += len(latencies)
        self.unknown += unknown


TAKE = st.tuples(st.just("take"), st.integers(1, 4), st.integers(-3, W + 3))
COMMIT = st.tuples(st.just("commit"), st.integers(-8, 3))
REST = (
    st.tuples(st.just("wait"), st.integers(0, 7)),
    st.tuples(st.just("gather")),
    st.tuples(st.just("skip"), st.integers(1, 3)),
)
STEPS = st.lists(st.one_of(TAKE, TAKE, COMMIT, COMMIT, *REST), max_size=40)
WITH_SEEKS = st.lists(st.one_of(TAKE, TAKE, COMMIT, COMMIT, st.tuples(st.just("seek"), st.integers(-4, 8)), *REST))


def played(steps: list[tuple[object, ...]]) -> Program:
    program = Program()
    for name, *arguments in steps:
        getattr(program, str(name))(*arguments)
    program.end()
    late = sum(each.age > W for each in program.deliveries)
    assert program.in_time + program.unknown + late == len(program.deliveries), "each record counts once"
    assert not any(each.in_time for each in program.deliveries if each.age > W)
    return program


@given(STEPS)
def test_what_commits_prove_is_what_is_said_to_be_in_time(steps: list[tuple[object, ...]]) -> None:
    program = played(steps)
    assert program.in_time == sum(each.in_time for each in program.deliveries)


@given(WITH_SEEKS)
def test_no_more_than_that_where_a_program_goes_back_and_forth(steps: list[tuple[object, ...]]) -> None:
    program = played(steps)
    assert program.in_time <= sum(each.in_time for each in program.deliveries)


@given(WITH_SEEKS, st.integers(2, 6))
def test_no_more_than_that_where_memory_is_short(steps: list[tuple[object, ...]], runs_max: int) -> None:
    with patch.object(commit_bounds, "RUNS_MAX", runs_max):
        program = played(steps)
    assert program.in_time <= sum(each.in_time for each in program.deliveries)
