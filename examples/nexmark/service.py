"""A Nexmark query as a consumer: reads events, writes results, keeps its state in a changelog.

Run by ``python examples/nexmark``. Environment: that of :mod:`payments.service` (where to read, how long a record
takes at least, the journal), and ``NEXMARK_QUERY`` (``q1``, ``q3``, ``q11``). Topics beside the input, which must be
there and have as many partitions: ``<input>-results`` and, for ``q3`` and ``q11``, ``<input>-changelog`` (compacted).

A batch is done when the next one is asked for; by then its results and the changes of the state are acknowledged. A
partition that comes is restored from the changelog before its first record is handed out (``on_partitions_assigned``
returns first), one that goes is forgotten.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ConsumerStoppedError

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loadtrim import Consumer, IncrementalRebalanceListener
from nexmark.events import decode
from nexmark.queries import OPERATORS, Operator
from nexmark.state import State
from payments.service import Journal, Pace, ServiceOptions, serve

__all__ = ["OwnedOperators", "changelog_of", "main", "results_of", "run"]

WAIT_MS = 200
BATCH_RECORDS = 25
"""A partition that is to move waits for the batch in hand, which takes so many times what a record takes."""
STATELESS = frozenset({"q1"})


def results_of(topic: str) -> str:
    """Where results go."""
    return f"{topic}-results"


def changelog_of(topic: str) -> str:
    """Where the state is kept."""
    return f"{topic}-changelog"


@dataclass(slots=True)
class OperatorState:
    """One partition."""

    state: State
    operator: Operator
    stateful: bool


@dataclass(slots=True)
class OwnedOperators(IncrementalRebalanceListener):
    """State and operator of every partition held here."""

    query: str
    bootstrap: str
    held: dict[TopicPartition, OperatorState] = field(default_factory=dict)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Read their changelogs from the beginning to the end."""
        if not assigned:
            return
        states = {tp: State() for tp in assigned}
        stateful = self.query not in STATELESS
        if stateful:
            await self._restore(states)
        self.held |= {tp: OperatorState(state, OPERATORS[self.query](state), stateful) for tp, state in states.items()}

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Everything of them was written before the batch was done."""
        for tp in revoked:
            self.held.pop(tp, None)

    async def _restore(self, states: dict[TopicPartition, State]) -> None:
        logs = {TopicPartition(changelog_of(tp.topic), tp.partition): state for tp, state in states.items()}
        reader = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await reader.start()
        try:
            reader.assign(list(logs))
            ends = await reader.end_offsets(list(logs))
            for tp, end in sorted(ends.items()):
                while end > 0 and await reader.position(tp) < end:
                    for messages in (await reader.getmany(tp, timeout_ms=WAIT_MS)).values():
                        for message in messages:
                            logs[tp].restore(message.key.decode(), message.value)
        finally:
            await reader.stop()


async def _work_off(
    tp: TopicPartition, messages: list[Any], held: OperatorState, pace: Pace, journal: Journal | None
) -> list[bytes]:
    """Results of a batch of one partition."""
    results: list[bytes] = []
    for message in messages:
        begun = time.perf_counter()
        event = decode(message.value)
        if journal:
            journal.handed_out(message, event.id)
        if message.offset > held.state.applied:
            results += [msgspec.json.encode(result) for result in held.operator.handle(event, message.offset)]
        await pace.take(begun)
    return results


async def _write(
    producer: AIOKafkaProducer, tp: TopicPartition, results: list[bytes], held: OperatorState, last: int
) -> None:
    """Results first, then what changed; returns when the broker has acknowledged all of it."""
    sent = [await producer.send(results_of(tp.topic), value, partition=tp.partition) for value in results]
    await asyncio.gather(*sent)
    if held.stateful and last > held.state.applied:
        log = changelog_of(tp.topic)
        sent = [
            await producer.send(log, value, key=key.encode(), partition=tp.partition)
            for key, value in held.state.changes(last)
        ]
        await asyncio.gather(*sent)


async def _batches(consumer: Consumer) -> AsyncIterator[dict[TopicPartition, list[Any]]]:
    """Until SIGTERM."""
    with suppress(ConsumerStoppedError):
        while True:
            yield await consumer.getmany(timeout_ms=WAIT_MS, max_records=BATCH_RECORDS)


async def run(query: str, options: ServiceOptions) -> None:
    """Consume until SIGTERM."""
    journal = Journal(options.journal, options.instance) if options.journal else None
    pace = Pace(options.busy_seconds, burn=options.burn)
    partitions = OwnedOperators(query, options.bootstrap)
    consumer = Consumer(
        bootstrap_servers=options.bootstrap, group_id=options.group, auto_offset_reset="earliest", **options.extra
    )
    consumer.subscribe(list(options.topics), listener=partitions)
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, enable_idempotence=True)
    try:
        async with producer, consumer:
            async for batch in _batches(consumer):
                for tp, messages in batch.items():
                    held = partitions.held[tp]
                    results = await _work_off(tp, messages, held, pace, journal)
                    await _write(producer, tp, results, held, messages[-1].offset)
                    if journal:
                        for message in messages:
                            journal.done(message)
    finally:
        if journal:
            journal.close()


def main() -> int:
    """Run the service. Returns the exit code: 0 stopped, 2 unreadable settings."""
    query = os.environ.get("NEXMARK_QUERY", "")
    if query not in OPERATORS:
        print(f"NEXMARK_QUERY is {query!r}, so nothing was started; allowed: {', '.join(OPERATORS)}", file=sys.stderr)
        return 2
    return serve(partial(run, query))


if __name__ == "__main__":
    sys.exit(main())
