"""Spans and the context of records, on a broker in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import ConsumerRecord
from opentelemetry import baggage, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from loadtrim import Consumer, Settings
from loadtrim.integrations.opentelemetry import LoadtrimInstrumentor
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
async def consuming(provider: TracerProvider, kind: type[Consumer] = Consumer) -> AsyncIterator[Consumer]:
    """A consumer of some records that were sent."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        for _ in range(RECORDS):
            await send(broker, provider)
        async with kind(
            TOPIC,
            bootstrap_servers=f"127.0.0.1:{broker.port}",
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
