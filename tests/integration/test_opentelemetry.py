"""Spans of programs, beside those that the same program has with aiokafka and its own instrumentation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from opentelemetry import trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from integration.harness import WAIT_SECONDS
from integration.harness_consumers import new_group
from loadtrim import Consumer
from loadtrim.integrations.opentelemetry import LoadtrimInstrumentor
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

Program = Callable[[Any], Awaitable[None]]

KEYS = (b"text", None, b"\xff\x00")


class Tracing:
    """What is exported, and a tracer for the programs' own spans."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exported = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exported))
        self.tracer = self.provider.get_tracer("program")

    def spans(self, operation: str | None = None) -> list[ReadableSpan]:
        """Return spans in the order of their ends; all, or those of one operation."""
        spans = self._exported.get_finished_spans()
        wanted = [
            s for s in spans if operation is None or (s.attributes or {}).get("messaging.operation.name") == operation
        ]
        return list(wanted)

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans() if span.name == name]
        return span


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    """Both instrumentations, with what they export."""
    exported = Tracing()
    AIOKafkaInstrumentor().instrument(tracer_provider=exported.provider)
    LoadtrimInstrumentor().instrument(tracer_provider=exported.provider)
    yield exported
    LoadtrimInstrumentor().uninstrument()
    AIOKafkaInstrumentor().uninstrument()


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    monkeypatch.setenv("LOADTRIM_DRAIN_SECONDS", "5")


async def produce(
    kafka: Cluster, topics: Sequence[str], *, values: Sequence[bytes | None] = (b"0", b"1", b"2")
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, client_id="producer") as producer:
        for topic in topics:
            for value, key in zip(values, KEYS, strict=False):
                await producer.send_and_wait(topic, value, key=key, partition=0)


def make(kafka: Cluster, kind: type[Any], topics: Sequence[str]) -> Any:
    return kind(
        *topics, bootstrap_servers=kafka.bootstrap, group_id=new_group(), client_id="program",
        auto_offset_reset="earliest", session_timeout_ms=3_000, heartbeat_interval_ms=500,
    )  # fmt: skip


def compared(spans: Sequence[ReadableSpan]) -> list[tuple[Any, ...]]:
    """Return what is to be the same in both programs: an id of the program's own spans as the name of its span."""
    own = {span.get_span_context().span_id: span.name for span in spans}

    def told(context: trace.SpanContext | None) -> Any:
        return None if context is None else own.get(context.span_id, context.span_id)

    found = []
    for span in spans:
        attributes = dict(span.attributes or {}) | {"messaging.consumer.group.name": "the group"}
        links = sorted(str(told(link.context)) for link in span.links)
        found.append((span.name, span.kind, sorted(attributes.items()), told(span.parent), links))
    return sorted(found, key=repr)


# -- receive spans ---------------------------------------------------------------------------------------------------


async def iterates(consumer: Any) -> None:
    count = 0
    async for _ in consumer:
        if (count := count + 1) == 6:
            break


async def asks_one_by_one(consumer: Any) -> None:
    for _ in range(6):
        await consumer.getone()


async def asks_for_next(consumer: Any) -> None:
    for _ in range(6):
        await consumer.__anext__()


async def asks_for_batches(consumer: Any) -> None:
    partitions = sorted(consumer.assignment())
    for at in partitions:
        taken = 0
        while taken < 3:
            taken += sum(map(len, (await consumer.getmany(at, timeout_ms=100, max_records=3)).values()))


@pytest.mark.parametrize("program", [iterates, asks_one_by_one, asks_for_next, asks_for_batches])
async def test_receive_spans_are_those_of_the_same_program_with_aiokafka(
    quick_kafka: Cluster, tracing: Tracing, program: Program
) -> None:
    topics = [quick_kafka.create_topic(partitions=1) for _ in range(2)]
    found: dict[type[Any], list[tuple[Any, ...]]] = {}
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, topics)
        for kind in (AIOKafkaConsumer, Consumer):
            before = len(tracing.spans("receive"))
            async with make(quick_kafka, kind, topics) as consumer:
                await program(consumer)
            found[kind] = compared(tracing.spans("receive")[before:])
    assert len(found[Consumer]) >= 6
    assert found[Consumer] == found[AIOKafkaConsumer]


async def test_with_the_agent_disabled_each_receive_span_is_there_once(
    quick_kafka: Cluster, tracing: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADTRIM_ENABLED", "false")
    topic = quick_kafka.create_topic(partitions=1)
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic])
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    break
            assert len(tracing.spans("receive")) == len(tracing.spans("process")) == 3
            AIOKafkaInstrumentor().uninstrument()
            await produce(quick_kafka, [topic], values=[b"3"])
            await consumer.getone()
            assert len(tracing.spans("receive")) == 4


async def test_the_hook_sees_each_record(quick_kafka: Cluster) -> None:
    exported, seen, topic = Tracing(), list[int](), quick_kafka.create_topic(partitions=1)

    async def hook(span: trace.Span, record: Any, args: Any, kwargs: Any) -> None:
        seen.append(record.offset)
        span.set_attribute("own", record.offset)
        raise ValueError("the hook's own")

    LoadtrimInstrumentor().instrument(tracer_provider=exported.provider, async_consume_hook=hook)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await produce(quick_kafka, [topic])
            async with make(quick_kafka, Consumer, [topic]) as consumer:
                await consumer.getone()
                assert len((await consumer.getmany(timeout_ms=1_000))[TopicPartition(topic, 0)]) == 2
    finally:
        LoadtrimInstrumentor().uninstrument()
    assert seen == [0, 1, 2]
    assert [(s.attributes or {})["own"] for s in exported.spans() if "own" in (s.attributes or {})] == [0, 1, 2]


async def test_a_record_whose_hook_runs_out_of_time_is_handed_out_again(quick_kafka: Cluster) -> None:
    """The time limit ended the call within the hook: the next one made a record done that nobody had got."""
    exported, seen, topic = Tracing(), list[int](), quick_kafka.create_topic(partitions=1)

    async def hook(span: trace.Span, record: Any, args: Any, kwargs: Any) -> None:
        seen.append(record.offset)
        if len(seen) == 1:
            await asyncio.Event().wait()

    LoadtrimInstrumentor().instrument(tracer_provider=exported.provider, async_consume_hook=hook)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await produce(quick_kafka, [topic])
            async with make(quick_kafka, Consumer, [topic]) as consumer:
                while not seen:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(consumer.getone(), 1.0)
                assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
    finally:
        LoadtrimInstrumentor().uninstrument()


# -- process spans ---------------------------------------------------------------------------------------------------


async def test_process_spans_follow_the_conventions(quick_kafka: Cluster, tracing: Tracing) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic], values=[None, b"1", b"2"])
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            with tracing.tracer.start_as_current_span("ambient") as ambient:
                async for record in consumer:
                    with tracing.tracer.start_as_current_span(f"handler {record.offset}"):
                        await asyncio.sleep(0)
                    if record.offset == 2:
                        break
                assert trace.get_current_span() is ambient, "what was left is not current any more"
            group = consumer._group_id
    spans, sent = tracing.spans("process"), tracing.spans("send")
    host, _, port = quick_kafka.bootstrap.rpartition(":")
    common = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": group,
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "program",
        "server.address": host,
        "server.port": int(port),
    }
    own: list[dict[str, Any]] = [
        {"messaging.kafka.message.key": "text", "messaging.kafka.message.tombstone": True}, {}, {},
    ]  # fmt: skip
    for offset, (span, creation, more) in enumerate(zip(spans, sent, own, strict=True)):
        assert (span.name, span.kind) == (f"process {topic}", trace.SpanKind.CONSUMER)
        assert dict(span.attributes or {}) == {**common, "messaging.kafka.offset": offset, **more}
        assert [link.context.span_id for link in span.links] == [creation.get_span_context().span_id]
        assert span.parent is not None
        assert span.parent.span_id == tracing.named("ambient").get_span_context().span_id
        handler = tracing.named(f"handler {offset}")
        assert handler.parent is not None
        assert handler.parent.span_id == span.get_span_context().span_id


async def test_tasks_have_a_span_each_that_is_theirs(quick_kafka: Cluster, tracing: Tracing) -> None:
    topic = quick_kafka.create_topic(partitions=1)

    async def handle(consumer: Consumer, record: Any) -> None:
        async with consumer.work(record):
            with tracing.tracer.start_as_current_span(f"handler {record.offset}"):
                await asyncio.sleep(0.01 * (3 - record.offset))
            if record.offset == 1:
                raise ValueError("cannot")

    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic])
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            tasks = []
            async for record in consumer:
                tasks.append(asyncio.create_task(handle(consumer, record)))
                if record.offset == 2:
                    break
            await asyncio.gather(*tasks, return_exceptions=True)
        assert not trace.get_current_span().get_span_context().is_valid
    spans = {(span.attributes or {})["messaging.kafka.offset"]: span for span in tracing.spans("process")}
    assert list(spans) == [2, 1, 0], "each once, and in the order of their ends"
    for offset, span in spans.items():
        handler = tracing.named(f"handler {offset}")
        assert handler.parent is not None
        assert handler.parent.span_id == span.get_span_context().span_id
        assert (span.attributes or {}).get("error.type") == ("ValueError" if offset == 1 else None)
        assert span.status.is_ok == (offset != 1)


async def test_a_process_span_may_be_in_the_trace_of_the_producer(quick_kafka: Cluster, tracing: Tracing) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    LoadtrimInstrumentor().uninstrument()
    LoadtrimInstrumentor().instrument(tracer_provider=tracing.provider, process_in_trace_of_producer=True)
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic], values=[b"0"])
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            with tracing.tracer.start_as_current_span("ambient") as ambient:
                async with consumer.work(await consumer.getone()):
                    ...
    (span,), (sent,) = tracing.spans("process"), tracing.spans("send")
    assert span.parent is not None
    assert span.parent.span_id == sent.get_span_context().span_id
    assert [link.context for link in span.links] == [ambient.get_span_context()]


async def test_an_iteration_with_a_time_limit_leaves_no_span_behind(
    quick_kafka: Cluster, tracing: Tracing, caplog: pytest.LogCaptureFixture
) -> None:
    """Before Python 3.12 `wait_for` asks in a task of its own."""
    topic = quick_kafka.create_topic(partitions=1)
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic])
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            records = aiter(consumer)
            for _ in range(3):
                await asyncio.wait_for(anext(records), 10.0)
            del records
        assert not trace.get_current_span().get_span_context().is_valid
    assert len(tracing.spans("process")) == 3
    assert "detach" not in caplog.text


async def test_a_call_that_is_cut_short_ends_the_span_and_makes_the_record_done(
    quick_kafka: Cluster, tracing: Tracing
) -> None:
    """The first calls let others begin before they look."""
    topic = quick_kafka.create_topic(partitions=1)
    async with asyncio.timeout(WAIT_SECONDS):
        await produce(quick_kafka, [topic], values=(b"0",))
        async with make(quick_kafka, Consumer, [topic]) as consumer:
            records = aiter(consumer)
            await anext(records)
            asking = asyncio.ensure_future(anext(records))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            await consumer.commit()
            assert len(tracing.spans("process")) == 1
            assert consumer._client.buffer.streams[topic, 0].done == 1


# -- instrumented and not --------------------------------------------------------------------------------------------


def test_the_consumer_is_as_it_was_before_and_after() -> None:
    """No call costs anything where nothing is instrumented: each is the very same function."""
    before = dict(vars(Consumer))
    LoadtrimInstrumentor().instrument(tracer_provider=TracerProvider())
    during = dict(vars(Consumer))
    LoadtrimInstrumentor().uninstrument()
    names = {"getone", "getmany", "__aiter__", "__anext__", "work", "done"}
    assert {name for name, method in during.items() if method is not before.get(name)} == names
    assert dict(vars(Consumer)) == before


def test_opentelemetry_finds_the_instrumentor() -> None:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="loadtrim")
    assert found.load() is LoadtrimInstrumentor
