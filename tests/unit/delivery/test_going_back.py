"""A topic that is made anew, or whose log an election has cut: what was done of the old log says nothing of the new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.positions import StreamPositions
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.state import FetchPosition, Reset

from .test_record_buffer import ONE, chunk


class Log:
    """One partition, fetched and handed out; a reset leads elsewhere in it."""

    def __init__(self, start: int, records: int, *, by_hand: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.buffer = RecordBuffer(loop, loop)
        self.buffer.lease_until = boot_time() + 1_000.0
        self.at = FetchPosition(start)
        self.positions = StreamPositions(self.buffer, self)  # type: ignore[arg-type]
        self.stream = Stream(ONE, 1, start, by_hand=by_hand)
        self.stream.running = True
        self.buffer.put(self.stream)
        self.fetch(records)

    def position(self, partition: Partition) -> FetchPosition:
        return self.at

    def fetch(self, records: int, stamp: int = 1_000) -> None:
        framed = chunk(ONE, self.at.offset, records, stamp)
        self.at = FetchPosition(framed.end)
        self.buffer.feed(self.stream, framed)

    def reset(self, offset: int) -> None:
        self.at = FetchPosition(offset, Reset(first=False))

    def take(self, records: int) -> list[int]:
        return [self.buffer.take_one().offset for _ in range(records)]

    def work_on(self, records: int) -> list[Any]:
        """User code says itself what is done."""
        taken = []
        for _ in range(records):
            taken.append(self.buffer.take_one())
            self.buffer.hand.telling.work_on(taken[-1])
        return taken

    def commit(self) -> int:
        """User code commits what it was handed out."""
        self.stream.commits.called(self.stream.handed_out, self.stream.position, boot_time())
        return self.positions.behind(self.stream, self.stream.handed_out)

    @property
    def done(self) -> int | None:
        return self.positions.done_offset(self.stream)


@pytest.mark.parametrize("own", [False, True], ids=["by auto-commit", "by user code as well"])
async def test_a_new_log_is_committed_from_its_beginning(*, own: bool) -> None:
    """What user code had committed of the old one stayed committed, until the new one had as many records."""
    log = Log(50, 3)
    assert log.take(3) == [50, 51, 52]
    assert log.buffer.take_one() is None
    assert not own or log.commit() == 53
    log.reset(0)
    assert (log.done, log.positions.position(log.stream)) == (0, 0), "where it goes on is known"
    log.fetch(3)
    assert (log.done, log.positions.position(log.stream)) == (0, 0), "its records wait, of a partition paused, say"
    assert [(*log.take(1), log.done) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    assert not own or log.commit() == 3


async def test_commits_by_hand_are_of_the_new_log() -> None:
    log = Log(50, 3, by_hand=True)
    log.take(3)
    assert log.commit() == 53
    log.reset(0)
    assert log.commit() == 0
    log.fetch(3)
    assert log.commit() == 0
    log.take(2)
    assert log.commit() == 2
    assert [offset for offset, _ in log.stream.commits.take()] == [53, 2]


async def test_what_is_left_of_the_old_log_is_handed_out_and_committed_nowhere() -> None:
    log = Log(50, 3)
    log.take(1)
    log.reset(0)
    log.fetch(3)
    assert log.take(2) == [51, 52]
    assert log.done == 0
    assert log.take(2) == [0, 1]
    assert log.done == 1


async def test_a_batch_is_of_one_log() -> None:
    """What is done, and what may be committed, is told by the end of a batch."""
    log = Log(50, 3)
    log.reset(0)
    log.fetch(3)
    batches = [[record.offset for record in log.buffer.take_many((), None)[ONE]] for _ in range(2)]
    assert batches == [[50, 51, 52], [0, 1, 2]]
    assert log.done == 0
    assert not log.buffer.take_many((), None)
    assert log.done == 3


@pytest.mark.parametrize("failed", [False, True], ids=["worked on", "given up"])
async def test_what_is_not_done_of_the_old_log_holds_up_no_commit_of_the_new_one(*, failed: bool) -> None:
    log = Log(50, 3)
    telling = log.buffer.hand.telling
    records = log.work_on(3)
    if failed:
        telling.give_up(records[0])
    log.reset(0)
    log.fetch(3)
    record = log.buffer.take_one()
    assert (record.offset, log.done, log.stream.in_hand) == (0, 0, 0)
    assert not telling.done(records[1]), "it says nothing of the new log"
    assert telling.done(record)
    assert (log.done, log.stream.in_hand, log.stream.open_work(boot_time())[0]) == (1, None, 0)


async def test_a_record_of_the_old_log_is_not_the_one_of_its_offset_in_the_new_one() -> None:
    """A topic that is made anew may have as many records by then, and user code still works on those of before."""
    log = Log(0, 3)
    telling = log.buffer.hand.telling
    old = log.work_on(3)
    log.reset(0)
    log.fetch(3, stamp=2_000)
    new = log.work_on(3)
    assert [(before.offset, telling.done(before)) for before in old] == [(0, False), (1, False), (2, False)]
    assert log.done == 0
    assert telling.done(new[0])
    assert log.done == 1


async def test_what_is_not_done_below_where_a_log_was_cut_stays_so() -> None:
    """An election has lost the end of the log. The records before it are there, and one of them failed."""
    log = Log(50, 10)
    telling = log.buffer.hand.telling
    records = log.work_on(10)
    for record in records[1:]:
        telling.done(record)
    telling.give_up(records[0])
    log.reset(55)
    assert log.done == 50
    log.fetch(3)
    assert log.done == 50
    assert log.take(1) == [55]
    assert log.done == 50


async def test_what_was_given_up_before_a_log_was_cut_is_not_done() -> None:
    log = Log(50, 10)
    log.take(4)
    log.buffer.abandon()
    log.take(6)
    log.buffer.abandon()
    assert log.done == 59
    log.reset(57)
    log.fetch(3)
    assert log.take(1) == [57]
    assert log.done == 57


async def test_what_held_no_records_in_the_old_log_may_hold_some_in_the_new_one() -> None:
    """Behind its last record lay an aborted transaction. The new log had records there, which were passed over."""
    log = Log(0, 3)
    log.take(3)
    assert log.buffer.take_one() is None
    log.at = FetchPosition(20)
    assert (log.done, log.commit()) == (20, 20)
    log.reset(0)
    log.fetch(10)
    log.take(4)
    assert log.done == 3
    log = Log(0, 3, by_hand=True)
    log.take(3)
    log.at = FetchPosition(20)
    assert log.commit() == 20
    log.reset(0)
    log.fetch(10)
    log.take(3)
    assert log.commit() == 3


async def test_a_seek_is_not_held_up_by_what_comes_of_a_new_log() -> None:
    log = Log(50, 3)
    log.take(3)
    log.reset(0)
    log.fetch(3)
    log.buffer.seek(log.stream, 60)
    assert (log.done, log.positions.position(log.stream)) == (60, 60)
    assert log.buffer.take_one() is None
    assert log.stream.position == 60
