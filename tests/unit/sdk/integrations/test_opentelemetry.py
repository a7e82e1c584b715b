"""Spans and the context of records, on a broker in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import ConsumerRecord
from opentelemetry import baggage, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from loadtrim import Consumer, Settings
from loadtrim.integrations.opentelemetry import LoadtrimInstrumentor
from loadtrim_agent.common.partition import Partition
from walks.broker import MemoryBroker, memory_broker

TOPIC, GROUP = "orders", "walk"
RECORDS = 3


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exported))
    return made


@pytest.fixture
def in_trace_of_producer() -> bool:
    return False


@pytest.fixture(autouse=True)
def instrumented(provider: TracerProvider, in_trace_of_producer: bool) -> Iterator[None]:
    LoadtrimInstrumentor().instrument(tracer_provider=provider, process_in_trace_of_producer=in_trace_of_producer)
    yield
    LoadtrimInstrumentor().uninstrument()


async def send(broker: MemoryBroker, provider: TracerProvider) -> None:
    """Append a record that has the context of a producer's span, and baggage."""
    with provider.get_tracer("producer").start_as_current_span("send"):
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=baggage.set_baggage("tenant", "acme"))
    headers = [(name, value.encode()) for name, value in carrier.items()]
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
    builder.append(0, int(time.time() * 1000), None, b"7", headers)
    await broker._append(TOPIC, 0, bytes(builder.build()))


@asynccontextmanager
async def consuming(
    provider: TracerProvider, kind: type[Consumer] = Consumer, servers_of: Callable[[str], Any] = str
) -> AsyncIterator[Consumer]:
    """A consumer of some records that were sent, which is given the broker's address in some form."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        for _ in range(RECORDS):
            await send(broker, provider)
        async with kind(
            TOPIC,
            bootstrap_servers=servers_of(f"127.0.0.1:{broker.port}"),
            group_id=GROUP,
            auto_offset_reset="earliest",
            settings=Settings(http="off", drain_seconds=1.0),
        ) as consumer:
            yield consumer


class WithGetone(Consumer):
    async def getone(self, *partitions: Any) -> ConsumerRecord[Any, Any]:  # type: ignore[override]
        return await super().getone(*partitions)


class WithAnext(Consumer):
    async def __anext__(self) -> ConsumerRecord[Any, Any]:  # type: ignore[override]
        return await super().__anext__()


class WithBoth(WithGetone, WithAnext): ...


@pytest.mark.parametrize("kind", [Consumer, WithGetone, WithAnext, WithBoth])
async def test_a_record_has_one_receive_span_whatever_a_subclass_has_of_its_own(
    kind: type[Consumer], provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    """It had two where a method of the subclass calls the one of `Consumer`, which makes the span."""
    async with consuming(provider, kind) as consumer:
        count = 0
        async for _ in consumer:
            if (count := count + 1) == RECORDS:
                break
    names = [span.name for span in exported.get_finished_spans()]
    assert names.count(f"{TOPIC} receive") == RECORDS


@pytest.mark.parametrize("in_trace_of_producer", [True, False], ids=["in its trace", "beside it"])
async def test_baggage_of_the_producer_is_current_where_the_work_is_part_of_its_trace(
    in_trace_of_producer: bool, provider: TracerProvider
) -> None:
    """It never was."""
    seen = []
    async with consuming(provider) as consumer:
        with provider.get_tracer("program").start_as_current_span("ambient"):
            async for record in consumer:
                seen.append(baggage.get_baggage("tenant"))
                async with consumer.work(record):
                    seen.append(baggage.get_baggage("tenant"))
                    assert trace.get_current_span().get_span_context().is_valid
                break
    assert seen == [None if not in_trace_of_producer else "acme"] * 2


# -- what makes spans fails ------------------------------------------------------------------------------------------

Program: TypeAlias = Callable[[Consumer], Awaitable[list[int]]]


async def asks_one_by_one(consumer: Consumer) -> list[int]:
    return [(await consumer.getone()).offset for _ in range(RECORDS)]


async def asks_for_batches(consumer: Consumer) -> list[int]:
    got: list[int] = []
    while len(got) < RECORDS:
        got += [record.offset for records in (await consumer.getmany(timeout_ms=1_000)).values() for record in records]
    return got


async def iterates(consumer: Consumer) -> list[int]:
    got: list[int] = []
    async for record in consumer:
        got.append(record.offset)
        if len(got) == RECORDS:
            break
    return got


async def works(consumer: Consumer) -> list[int]:
    got: list[int] = []
    async for record in consumer:
        async with consumer.work(record):
            got.append(record.offset)
        if len(got) == RECORDS:
            break
    buffer = consumer._client.buffer
    assert buffer is not None
    assert buffer.streams[Partition(TOPIC, 0)].done == RECORDS, "no record stays in work"
    return got


PROGRAMS = pytest.mark.parametrize("program", [asks_one_by_one, asks_for_batches, iterates, works])


class NoStart(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("on_start")


class NoEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise RuntimeError("on_end")


class NoExtract(type(propagate.get_global_textmap())):  # type: ignore[misc]
    def extract(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("extract")


@pytest.fixture
def propagator() -> Iterator[None]:
    """A propagator that injects, and cannot extract."""
    before: TextMapPropagator = propagate.get_global_textmap()
    propagate.set_global_textmap(NoExtract(before._propagators))  # type: ignore[attr-defined]
    yield
    propagate.set_global_textmap(before)


def once(caplog: pytest.LogCaptureFixture, cause: str) -> None:
    (logged,) = [record for record in caplog.records if "OpenTelemetry" in record.getMessage()]
    assert logged.exc_info is not None
    assert str(logged.exc_info[1]) == cause


@PROGRAMS
@pytest.mark.parametrize(("processor", "cause"), [(NoStart, "on_start"), (NoEnd, "on_end")])
async def test_each_record_is_handed_out_where_a_span_processor_raises(
    program: Program,
    processor: type[SpanProcessor],
    cause: str,
    provider: TracerProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error came in the place of the record, and the next call made that done: nobody had got it."""
    async with consuming(TracerProvider()) as consumer:
        provider.add_span_processor(processor())
        assert await program(consumer) == list(range(RECORDS))
    once(caplog, cause)
    assert not trace.get_current_span().get_span_context().is_valid


@PROGRAMS
@pytest.mark.usefixtures("propagator")
async def test_each_record_is_handed_out_where_the_propagator_raises(
    program: Program, provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async with consuming(provider) as consumer:
        assert await program(consumer) == list(range(RECORDS))
    once(caplog, "extract")


@pytest.mark.parametrize(
    ("servers_of", "told"), [(str, '"{}"'), (lambda one: {one}, '["{}"]'), (lambda one: (one,), '["{}"]')]
)
async def test_the_addresses_of_brokers_are_told_in_whatever_form_they_are_given(
    servers_of: Callable[[str], Any], told: str, provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    """A set, which the consumer takes, could not be told, and each call failed with each record."""
    async with consuming(provider, servers_of=servers_of) as consumer:
        await iterates(consumer)
    spans = {span.name: dict(span.attributes or {}) for span in exported.get_finished_spans()}
    port = spans[f"process {TOPIC}"]["server.port"]
    assert spans[f"process {TOPIC}"]["server.address"] == "127.0.0.1"
    assert spans[f"{TOPIC} receive"]["server.address"] == told.format(f"127.0.0.1:{port}")


class Ended(BaseException):
    """Ends a call as `SystemExit` does."""


async def test_a_record_that_the_hook_keeps_from_the_program_is_handed_out_again(provider: TracerProvider) -> None:
    """Only after a time limit it was."""
    seen = []

    async def hook(span: trace.Span, record: ConsumerRecord[Any, Any], args: Any, kwargs: Any) -> None:
        seen.append(record.offset)
        if len(seen) == 1:
            raise Ended

    LoadtrimInstrumentor().uninstrument()
    LoadtrimInstrumentor().instrument(tracer_provider=provider, async_consume_hook=hook)
    async with consuming(provider) as consumer:
        with pytest.raises(Ended):
            await consumer.getone()
        assert await asks_one_by_one(consumer) == list(range(RECORDS))
