"""What is fetched before it is ours: used where it fits, thrown away where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery import prefetch as prefetching
from loadtrim_agent.delivery.prefetch import BEHIND_OFFSETS, Prefetching
from loadtrim_agent.kafka.fetch.chunk import Chunk, Reader, frame
from loadtrim_agent.kafka.fetch.offsets import EARLIEST
from loadtrim_agent.kafka.fetch.state import FetchPosition

FIRST, SECOND = (Partition("orders", index) for index in range(2))
END, BEGIN = 1_000, 900
START = END - BEHIND_OFFSETS


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetching, "COMMIT_SECONDS", 0.0)


class Logs:
    """What :class:`Prefetching` asks of a fetcher: every log reaches from ``begin`` to ``END``."""

    def __init__(self) -> None:
        self.takes: list[tuple[Partition, int]] = []
        self.dropped: list[Partition] = []
        self.kept: list[Partition] = []
        self.positions: dict[Partition, int] = {}
        self.reachable = True
        self.begin = BEGIN
        self.taken = asyncio.Event()

    @property
    def queries(self) -> Logs:
        return self

    async def look_up_once(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, None]]:
        if not self.reachable:
            raise KafkaConnectionError
        return {at: (self.begin if stamp == EARLIEST else END, None) for at, stamp in timestamps.items()}

    def keep(self, partition: Partition) -> None:
        self.kept.append(partition)

    def take_ahead(self, partition: Partition, offset: int) -> None:
        self.takes.append((partition, offset))
        self.taken.set()
        self.positions[partition] = offset

    def drop(self, partition: Partition) -> None:
        self.dropped.append(partition)
        self.positions.pop(partition)

    def position(self, partition: Partition) -> FetchPosition | None:
        return FetchPosition(self.positions[partition]) if partition in self.positions else None

    def fetched(self, partition: Partition, first: int, last: int) -> Chunk:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 10_000)
        for index in range(last + 1 - first):
            builder.append(index, index, None, b"%d" % (first + index), [])
        data = bytearray(builder.build())
        data[:8] = first.to_bytes(8)
        chunk = frame(partition, first, bytes(data), None, committed_only=False, check_crcs=True)
        assert chunk is not None
        self.positions[partition] = chunk.end
        return chunk


class House:
    """``commits``: what the group has committed, each time it is asked for; the last of them lasts."""

    def __init__(self, *commits: Mapping[Partition, int]) -> None:
        self.logs = Logs()
        self.tasks: list[asyncio.Task[None]] = []
        self.commits = list(commits) or [{}]
        self.prefetching = Prefetching(self.logs, self, self)  # type: ignore[arg-type]

    async def committed_or_none(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        commits = self.commits.pop(0) if len(self.commits) > 1 else self.commits[0]
        return {partition: commits[partition] for partition in partitions if partition in commits}

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def begun(self, *partitions: Partition) -> House:
        self.prefetching.begin(partitions)
        await asyncio.gather(*self.tasks)
        return self


def offsets(chunks: list[Chunk] | None) -> list[int]:
    assert chunks is not None
    found: list[int] = []
    for chunk in chunks:
        reader = Reader(chunk)
        while not reader.finished:
            found += [record.offset for record in reader.read(64)]
    return found


async def test_begins_shortly_before_the_logs_end() -> None:
    house = await House().begun(FIRST, SECOND)
    assert house.logs.takes == [(FIRST, START), (SECOND, START)]


async def test_of_an_owner_with_a_backlog_begins_at_what_it_has_committed() -> None:
    """At once, and is not begun anew for what it does meanwhile."""
    house = await House({FIRST: START - 1, SECOND: START}, {FIRST: START - 1}).begun(FIRST, SECOND)
    assert house.logs.takes == [(SECOND, START), (FIRST, START - 1)]


async def test_an_owner_that_had_not_committed_for_a_while_has_no_backlog() -> None:
    """It commits when it reads the plan: where the prefetch has not come near the log's end, it begins there then."""
    house = House({FIRST: BEGIN, SECOND: BEGIN}, {FIRST: END - 1, SECOND: END - 1})
    house.prefetching.begin([FIRST, SECOND])
    await house.logs.taken.wait()
    house.prefetching.keep(house.logs.fetched(FIRST, BEGIN, BEGIN + 9))
    house.prefetching.keep(house.logs.fetched(SECOND, BEGIN, START - 1))
    await asyncio.gather(*house.tasks)
    assert house.logs.takes == [(FIRST, BEGIN), (SECOND, BEGIN), (FIRST, START)]
    house.prefetching.keep(house.logs.fetched(FIRST, START, START + 3))
    assert offsets(house.prefetching.adopt(FIRST, START + 2)) == [START + 2, START + 3]
    assert offsets(house.prefetching.adopt(SECOND, START - 1)) == [START - 1]


async def test_what_was_committed_and_is_gone_is_not_begun_at() -> None:
    house = await House({FIRST: BEGIN - 100}).begun(FIRST)
    assert house.logs.takes == [(FIRST, BEGIN)]


async def test_no_commit_or_none_that_can_be_told_is_no_backlog() -> None:
    house = await House({FIRST: -1}).begun(FIRST, SECOND)
    assert house.logs.takes == [(FIRST, START), (SECOND, START)]


async def test_the_release_comes_while_the_owner_commits() -> None:
    """What was begun at is used, and not begun anew by what is asked then."""
    house = House({FIRST: BEGIN}, {FIRST: END})
    house.prefetching.begin([FIRST])
    await house.logs.taken.wait()
    house.prefetching.keep(house.logs.fetched(FIRST, BEGIN, BEGIN + 9))
    assert offsets(house.prefetching.adopt(FIRST, BEGIN + 8)) == [BEGIN + 8, BEGIN + 9]
    await asyncio.gather(*house.tasks)
    assert house.logs.takes == [(FIRST, BEGIN)]


async def test_never_before_the_log_begins() -> None:
    house = House()
    house.logs.begin = END - 1
    await house.begun(FIRST)
    assert house.logs.takes == [(FIRST, END - 1)]


async def test_what_lies_below_the_release_is_thrown_away_what_lies_above_is_used() -> None:
    house = await House().begun(FIRST)
    spans = ((START, START + 1), (START + 2, START + 6), (START + 7, START + 7))
    chunks = [house.logs.fetched(FIRST, *span) for span in spans]
    for chunk in chunks:
        house.prefetching.keep(chunk)

    assert offsets(house.prefetching.adopt(FIRST, START + 4)) == [START + n for n in (4, 5, 6, 7)]

    assert [chunk.done for chunk in chunks] == [True, False, False], "what is thrown away takes no room"
    assert house.logs.takes == [(FIRST, START)], "the fetcher goes on behind it"
    assert house.logs.kept == [FIRST]
    assert house.logs.dropped == []


async def test_a_release_where_it_began_needs_nothing_thrown_away() -> None:
    house = await House().begun(FIRST)
    assert house.prefetching.adopt(FIRST, START) == []


async def test_a_release_before_or_behind_what_was_fetched_is_fetched_anew() -> None:
    house = await House().begun(FIRST, SECOND)
    house.prefetching.keep(house.logs.fetched(FIRST, START, START + 1))
    house.prefetching.keep(house.logs.fetched(SECOND, START, START + 1))
    assert house.prefetching.adopt(FIRST, START - 1) is None, "the owner had a backlog"
    assert house.prefetching.adopt(SECOND, START + 3) is None, "not reached yet"
    assert house.prefetching.adopt(FIRST, END) is None, "once"


async def test_the_release_comes_before_the_end_is_known() -> None:
    house = House()
    house.prefetching.begin([FIRST])
    assert house.prefetching.adopt(FIRST, END) is None
    await asyncio.gather(*house.tasks)
    assert house.logs.takes == [], "who owns it fetches it"


async def test_what_does_not_come_is_fetched_no_more() -> None:
    house = await House().begun(FIRST)
    house.prefetching.drop([FIRST, SECOND])
    assert house.logs.dropped == [FIRST]
    house.prefetching.keep(house.logs.fetched(FIRST, START, START))
    assert house.prefetching.adopt(FIRST, END) is None


async def test_dropped_and_begun_again_while_the_end_is_asked_for() -> None:
    house = House()
    house.prefetching.begin([FIRST])
    house.prefetching.drop([FIRST])
    house.prefetching.begin([FIRST])
    await asyncio.gather(*house.tasks)
    assert house.logs.takes == [(FIRST, START)]
    assert house.logs.dropped == []


async def test_an_end_that_cannot_be_told_is_no_trouble() -> None:
    house = House()
    house.logs.reachable = False
    await house.begun(FIRST)
    assert house.logs.takes == []
    house.prefetching.drop([FIRST])
    assert house.prefetching.adopt(FIRST, END) is None
