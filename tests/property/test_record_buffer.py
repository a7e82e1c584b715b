"""The hand-out against a model of it: whatever is called in whatever order, what comes next and what is done agree."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.deserializer import RecordDeserializer
from loadtrim_agent.delivery.oldest_first import OldestFirst
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.kafka.fetch.chunk import frame
from unit.kafka.fetch.batches import batch

PARTITIONS = [Partition("topic", index) for index in range(3)]
TAKES = ("one", "one", "one", "one", "one of", "many", "many of")
CALLS = (*TAKES, "feed", "feed", "pause", "stop", "seek", "abandon", "order")


class Model:
    """One partition: what may come, what is in hand, what is done."""

    def __init__(self) -> None:
        self.fed = 0
        self.next = 0
        self.done: int | None = None
        self.in_hand: int | None = None
        self.in_hand_records = 0
        self.finished = 0
        self.open = True
        self.seeking = False

    def end(self) -> None:
        if self.in_hand is not None:
            self.finished += self.in_hand_records
            if self.next == self.in_hand + 1:
                self.done = self.next
            self.in_hand = None

    def hand_out(self, records: list[Any]) -> None:
        assert self.open
        assert not self.seeking
        assert [record.offset for record in records] == list(range(self.next, self.next + len(records)))
        self.next += len(records)
        assert self.next <= self.fed
        self.in_hand, self.in_hand_records = self.next - 1, len(records)

    @property
    def ready(self) -> bool:
        return self.open and not self.seeking and self.next < self.fed


class Both:
    """The hand-out and its model, side by side."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deserialize: bool) -> None:
        self.buffer = RecordBuffer(
            loop,
            loop,
            RecordDeserializer({"value_deserializer": bytes if deserialize else None}),
        )
        self.buffer.lease_until = boot_time() + 1_000.0
        self.models = {partition: Model() for partition in PARTITIONS}
        self.finished = dict.fromkeys(PARTITIONS, 0)
        for number, partition in enumerate(PARTITIONS):
            stream = Stream(partition, number, 0)
            stream.running = True
            self.buffer.put(stream)

    def call(self, what: str, partition: Partition, number: int) -> None:
        wanted = (partition,) if what.endswith(" of") else ()
        if what.startswith("one"):
            record = self._ending(wanted, lambda: self.buffer.take_one(wanted))
            if record is None:
                assert not self._ready(wanted)
            else:
                self.models[Partition(record.topic, record.partition)].hand_out([record])
        elif what.startswith("many"):
            taken = self._ending(wanted, lambda: self.buffer.take_many(wanted, number))
            assert sum(map(len, taken.values())) <= number
            assert bool(taken) == bool(self._ready(wanted))
            for key, records in taken.items():
                self.models[key].hand_out(records)
        else:
            getattr(self, what)(self.buffer.streams[partition], self.models[partition], number)
        self._compare()

    def _ending(self, wanted: tuple[Partition, ...], call: Any) -> Any:
        for partition in wanted or PARTITIONS:
            self.models[partition].end()
        return call()

    def _ready(self, wanted: tuple[Partition, ...]) -> list[Partition]:
        return [partition for partition in wanted or PARTITIONS if self.models[partition].ready]

    def feed(self, stream: Stream, model: Model, number: int) -> None:
        if model.seeking:  # the agent answers the seek
            stream.clear()
            stream.seeks_answered = stream.seeks
            model.seeking = False
            model.fed = model.next
        first, model.fed = model.fed, model.fed + number
        data = b"".join(
            batch(base, [(n, 1_000 + n, b"v") for n in range(base, min(base + 50, model.fed))])
            for base in range(first, model.fed, 50)
        )
        chunk = frame(stream.partition, first, data, (), committed_only=False, check_crcs=True)
        assert chunk is not None
        self.buffer.feed(stream, chunk)

    def pause(self, stream: Stream, model: Model, number: int) -> None:
        stream.paused = not stream.paused
        model.open = stream.running and not stream.paused

    def stop(self, stream: Stream, model: Model, number: int) -> None:
        stream.running = not stream.running
        model.open = stream.running and not stream.paused

    def seek(self, stream: Stream, model: Model, number: int) -> None:
        self.buffer.seek(stream, number)
        model.next = model.done = number
        model.seeking = True

    def abandon(self, stream: Stream, model: Model, number: int) -> None:
        self.buffer.abandon()
        for each in self.models.values():
            each.in_hand = None

    def order(self, stream: Stream, model: Model, number: int) -> None:
        """The oldest head first, or round by round: what is delivered of a partition is the same."""
        wish = OldestFirst(records=number, seconds=1e12)
        self.buffer.turns.go_by_heads(wish if self.buffer.turns.oldest_first is None else None)
        self.buffer.look_again()

    def _compare(self) -> None:
        for partition, model in self.models.items():
            stream = self.buffer.streams[partition]
            assert (stream.done, stream.in_hand, stream.position) == (model.done, model.in_hand, model.next)
            for stamps, times, at_once, *_ in stream.take_finished():
                assert len(times) == (2 if at_once else len(stamps) + 1)
                assert times == sorted(times)
                self.finished[partition] += len(stamps)
            assert self.finished[partition] == model.finished
            assert stream.gathered
            if not model.seeking:
                assert stream.exhausted == (model.next >= model.fed)


STEP = st.tuples(st.sampled_from(CALLS), st.sampled_from(PARTITIONS), st.integers(1, 150))


@given(st.lists(STEP, max_size=60), st.booleans())
def test_agrees_with_the_model(steps: list[tuple[str, Partition, int]], deserialize: bool) -> None:
    loop = asyncio.new_event_loop()
    try:
        both = Both(loop, deserialize)
        for what, partition, number in steps:
            for _ in range(number if what == "one" else 1):
                both.call(what, partition, number)
    finally:
        loop.close()
