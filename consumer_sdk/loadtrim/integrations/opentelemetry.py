"""OpenTelemetry's spans for :class:`loadtrim.Consumer`, by an instrumentor of its kind.

    LoadtrimInstrumentor().instrument()         # or `opentelemetry-instrument`, which finds it by itself

*Receive* spans are those of ``opentelemetry-instrumentation-aiokafka``, attribute by attribute, which wraps aiokafka's
own consumer only. *Process* spans follow the semantic conventions for messaging as of 1.44, and link to the span that
made the record. Nothing of the consumer is changed until ``instrument()`` is called. Where a span cannot be made, the
record is handed out without one. Needs ``loadtrim[opentelemetry]``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition
from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.instrumentation.utils import is_instrumentation_enabled, unwrap
from opentelemetry.propagators.textmap import Getter
from opentelemetry.util.types import AttributeValue
from wrapt import wrap_function_wrapper

from loadtrim import __version__
from loadtrim.consumer import Consumer
from loadtrim.iteration import has_own
from loadtrim.managed import Batches
from loadtrim.work import Work
from loadtrim_agent.common.error_boundary import FirstOfKind
from loadtrim_agent.common.partition import Partition

__all__ = ["LoadtrimInstrumentor"]

log = logging.getLogger("loadtrim")

Record: TypeAlias = ConsumerRecord[Any, Any]
Attributes: TypeAlias = dict[str, AttributeValue]
Hook: TypeAlias = Callable[[trace.Span, Record, tuple[Any, ...], dict[str, Any]], Awaitable[None]]

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
RECEIVE = {"messaging.operation.name": "receive", "messaging.operation.type": "receive"}
PROCESS = {"messaging.operation.name": "process", "messaging.operation.type": "process"}


class LoadtrimInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """The instrumentor makes spans for all consumers of a process, from ``instrument()`` until ``uninstrument()``.

    ``instrument`` takes:

    * ``tracer_provider``: None: the global one.
    * ``async_consume_hook``: awaited with each receive span, as aiokafka's instrumentation does: ``hook(span, record,
      args, kwargs)``.
    * ``process_in_trace_of_producer``: the process span is a child of the span that made the record, and links to the
      one that is current. False: the other way round, as the conventions recommend.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        tracer = trace.get_tracer(__name__, __version__, kwargs.get("tracer_provider"), SCHEMA)
        spans = Spans(tracer, kwargs.get("async_consume_hook"), bool(kwargs.get("process_in_trace_of_producer")))
        for name, wrapper in spans.wrappers().items():
            wrap_function_wrapper(Consumer, name, wrapper)

    def _uninstrument(self, **kwargs: Any) -> None:
        for name in Spans.wrapped:
            unwrap(Consumer, name)


@dataclass(slots=True)
class ConsumerState:
    """The state of one consumer's program."""

    tells: bool = False
    """User code says itself what it works on, so that an iteration does not know."""
    iterating: Processing | None = None
    """The span of the record that an iteration handed out last. Invariant: it has not ended."""


class SpanErrors:
    """Errors of what makes spans (a span processor, a sampler, a propagator), which records must not suffer from.

    Such an error in the place of a record would swallow it: the next call makes done what the last one has taken.
    """

    def __init__(self) -> None:
        self._errors = FirstOfKind()

    @contextlib.contextmanager
    def contained(self) -> Iterator[None]:
        """Contain what the block raises, and log the first error of each kind."""
        try:
            yield
        except Exception as error:
            log.log(
                self._errors.level(error),
                "OpenTelemetry could not make a span, or end it. Records are handed out all the same, and their traces "
                "have gaps. Look at the span processors, the sampler and the propagators of this process. Said once "
                "for each kind of error.",
                exc_info=error,
            )


class Spans:
    """Wrappers of the consumer's methods, each of which makes the spans that belong to its calls.

    Args:
        tracer: makes spans.
        hook: awaited with each receive span.
        in_trace_of_producer: see :class:`LoadtrimInstrumentor`.
    """

    wrapped = ("getone", "getmany", "__aiter__", "__anext__", "work", "done")

    def __init__(self, tracer: trace.Tracer, hook: Hook | None, in_trace_of_producer: bool) -> None:
        self._tracer = tracer
        self._hook = hook
        self._in_trace_of_producer = in_trace_of_producer
        self._errors = SpanErrors()
        self._states: WeakKeyDictionary[Consumer, ConsumerState] = WeakKeyDictionary()

    def wrappers(self) -> dict[str, Callable[..., Any]]:
        """Return the wrapper of each method."""
        return dict(
            zip(
                self.wrapped,
                (self._getone, self._getmany, self._iterate, self._next, self._work, self._done),
                strict=True,
            )
        )

    def state(self, consumer: Consumer) -> ConsumerState:
        """Return what is known of a consumer."""
        return self._states.setdefault(consumer, ConsumerState())

    # -- calls ---------------------------------------------------------------------------------------------------

    def _getone(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> Coroutine[Any, Any, Record]:
        # The call itself notes the task that makes it.
        return self._received_one(consumer, call(*args, **kwargs), args, kwargs)

    async def _received_one(self, consumer: Consumer, asked: Awaitable[Record], args: Any, kwargs: Any) -> Record:
        record = await asked
        with _handed_back(consumer, (record,)):
            await self.receive(consumer, record, args, kwargs)
        return record

    def _next(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> Coroutine[Any, Any, Record]:
        asked: Coroutine[Any, Any, Record] = call(*args, **kwargs)
        return asked if _asks_itself(consumer, "getone") else self._received_one(consumer, asked, args, kwargs)

    def _getmany(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> Coroutine[Any, Any, Batches]:
        return self._received_many(consumer, call(*args, **kwargs), args, kwargs)

    async def _received_many(self, consumer: Consumer, asked: Awaitable[Batches], args: Any, kwargs: Any) -> Batches:
        batches = await asked
        if batches and receives(consumer):
            with _handed_back(consumer, [records[0] for records in batches.values()]), self._errors.contained():
                await self._receive_batches(consumer, batches, args, kwargs)
        return batches

    def _iterate(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> TracedRecords:
        return TracedRecords(self, consumer, call(*args, **kwargs))

    def _work(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> TracedWork:
        state = self.state(consumer)
        state.tells = True
        work: Work = call(*args, **kwargs)
        record: Record = args[0] if args else kwargs["message"]
        return TracedWork(work, lambda: self._take_over(consumer, record) or self.process(consumer, record))

    def _done(self, call: Any, consumer: Consumer, args: Any, kwargs: Any) -> bool:
        self.state(consumer).tells = True
        return bool(call(*args, **kwargs))

    def _take_over(self, consumer: Consumer, record: Record) -> Processing | None:
        """Return the span that an iteration has begun for the same record, before the program first told of any."""
        state = self.state(consumer)
        begun = state.iterating
        if begun is None or begun.record is not record:
            return None
        state.iterating = None
        return begun

    # -- receive spans -------------------------------------------------------------------------------------------

    async def receive(self, consumer: Consumer, record: Record, args: Any, kwargs: Any) -> None:
        """Make the receive span of a record: a child of the span that made the record."""
        if receives(consumer):
            with self._errors.contained():
                await self._receive(consumer, record, args, kwargs)

    async def _receive(self, consumer: Consumer, record: Record, args: Any, kwargs: Any) -> trace.SpanContext:
        where = TopicPartition(record.topic, record.partition)
        attributes = _of_client(consumer) | _of_partition(where) | RECEIVE
        attributes |= {
            "messaging.kafka.message.offset": record.offset,
            "messaging.message.id": f"{record.topic}.{record.partition}.{record.offset}",
        }
        if (key := _text_of(record.key)) is not None or record.key is not None:
            attributes["messaging.kafka.message.key"] = str(record.key) if key is None else key
        with self._span(f"{record.topic} receive", attributes, context=creation_of(record)) as span:
            if self._hook is not None:
                with contextlib.suppress(Exception):
                    await self._hook(span, record, args, kwargs)
        return span.get_span_context()

    async def _receive_batches(self, consumer: Consumer, batches: Batches, args: Any, kwargs: Any) -> None:
        """Make a span of the call, in it one of each partition, which links to those of the records."""
        topics = ", ".join(sorted({at.topic for at in batches}))
        of_all = _of_client(consumer) | RECEIVE
        with self._span(f"{topics} receive", of_all | _of_batch(sum(map(len, batches.values())))):
            for at, records in batches.items():
                attributes = of_all | _of_partition(at) | _of_batch(len(records))
                with self._span(f"{at.topic} receive", attributes) as span:
                    for record in records:
                        with self._errors.contained():  # the others have theirs
                            span.add_link(await self._receive(consumer, record, args, kwargs))

    @contextlib.contextmanager
    def _span(
        self, name: str, attributes: Attributes, *, context: contexts.Context | None = None
    ) -> Iterator[trace.Span]:
        span = self._tracer.start_span(name, context=context, kind=trace.SpanKind.CONSUMER, attributes=attributes)
        try:
            with trace.use_span(span):
                yield span
        finally:
            with self._errors.contained():  # here, so that it does not take the place of a cancellation
                span.end()

    # -- process spans -------------------------------------------------------------------------------------------

    def process(self, consumer: Consumer, record: Record) -> Processing | None:
        """Begin the process span of a record, and make it the current one.

        None: instrumentation is suppressed, or the span cannot be made.
        """
        if is_instrumentation_enabled():
            with self._errors.contained():
                return self._process(consumer, record)
        return None

    def _process(self, consumer: Consumer, record: Record) -> Processing:
        creation, ambient = creation_of(record), contexts.get_current()
        parent, linked = (creation, ambient) if self._in_trace_of_producer else (ambient, creation)
        # The producer's baggage goes with its trace; what else is current stays so.
        current = _extracted(record, ambient) if self._in_trace_of_producer else ambient
        link = trace.get_current_span(linked).get_span_context()
        span = self._tracer.start_span(
            f"process {record.topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            attributes=_of_processing(consumer, record),
            links=[trace.Link(link)] if link.is_valid else [],
        )
        return Processing(span, record, current, self._errors)


@dataclass(slots=True)
class Processing:
    """A process span that is current where it began, until it ends."""

    span: trace.Span
    record: Record
    within: contexts.Context
    """Has all that is current beside the span."""
    errors: SpanErrors
    _task: asyncio.Task[Any] | None = field(default_factory=lambda: _current_task())
    _context: contexts.Context = field(init=False)
    _token: Any = field(init=False)

    def __post_init__(self) -> None:
        self._context = trace.set_span_in_context(self.span, self.within)
        self._token = contexts.attach(self._context)

    def end(self, error: BaseException | None = None) -> None:
        """End the span. A record fails by an exception, not because its task is cancelled or the program exits."""
        with self.errors.contained():
            try:
                if isinstance(error, Exception):
                    self.span.set_attribute("error.type", type(error).__qualname__)
                    self.span.record_exception(error)
                    self.span.set_status(trace.StatusCode.ERROR, str(error))
            finally:
                self.span.end()
        self.leave()

    def leave(self) -> None:
        """Make it the current span no more. Do nothing where it is not.

        A task that was made in between, and one that only asked for the record, has a context of its own.
        """
        if self._task is not None and self._task is _current_task() and contexts.get_current() is self._context:
            contexts.detach(self._token)


@contextlib.contextmanager
def _handed_back(consumer: Consumer, records: Iterable[Record]) -> Iterator[None]:
    """Have records handed out again, from these on, where the block ends the call: nobody has got them.

    A time limit does so within the hook, and so does the program's exit.

    A program that says itself what is done says nothing of them, and so they stay undone.
    """
    buffer = consumer._client.buffer
    streams = buffer.streams if buffer is not None else {}
    taken = [
        (record, s, s.seeks) for record in records if (s := streams.get(Partition(record.topic, record.partition)))
    ]
    try:
        yield
    except BaseException:
        if buffer is not None and not buffer.hand.telling.begun:
            for record, stream, seeks in taken:
                # It may have gone meanwhile, and come again; and user code may have sought elsewhere.
                if buffer.streams.get(stream.partition) is stream and stream.seeks == seeks:
                    consumer.seek(TopicPartition(record.topic, record.partition), record.offset)
        raise


class TracedRecords:
    """An iteration. A record's process span lasts until the next one is asked for, or the iteration is left.

    Where the program says itself what it works on, :class:`TracedWork` knows better.

    Args:
        spans: makes them.
        consumer: that is iterated.
        records: the iteration itself.
    """

    def __init__(self, spans: Spans, consumer: Consumer, records: AsyncIterator[Record]) -> None:
        self._spans = spans
        self._consumer = consumer
        self._records = records
        self._state = spans.state(consumer)
        self._begun: Processing | None = None

    def __aiter__(self) -> TracedRecords:
        return self

    async def __anext__(self) -> Record:
        buffer = self._consumer._client.buffer
        try:
            if buffer is not None:
                await buffer.hand.telling.let_begin()  # a task that was made of the record may take its span over
        finally:
            self._end()
        record = await anext(self._records)
        if not _asks_itself(self._consumer, "getone", "__anext__"):
            with _handed_back(self._consumer, (record,)):
                await self._spans.receive(self._consumer, record, (), {})
        if not self._state.tells:
            self._begun = self._state.iterating = self._spans.process(self._consumer, record)
        return record

    def __del__(self) -> None:
        """The loop around it was left, by `break` or an exception: this runs at once, in the task that left it."""
        self._end()

    def _end(self) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if self._state.iterating is begun:
            self._state.iterating = None
            begun.end()
        begun.leave()


class TracedWork:
    """A block of work on one record, whose span is current in it.

    Args:
        work: the block itself.
        begin: begins the span.
    """

    __slots__ = ("_begin", "_processing", "_work")

    def __init__(self, work: Work, begin: Callable[[], Processing | None]) -> None:
        self._work = work
        self._begin = begin
        self._processing: Processing | None = None

    async def __aenter__(self) -> Record:
        record = await self._work.__aenter__()
        self._processing = self._begin()
        return record

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._work.__aexit__(kind, error, trace)
        finally:
            if self._processing is not None:
                self._processing.end(error)


def receives(consumer: Consumer) -> bool:
    """Return whether receive spans are to be made here, and not by aiokafka's instrumentation of its own consumer."""
    theirs = isinstance(consumer._client, AIOKafkaConsumer) and hasattr(AIOKafkaConsumer.getone, "__wrapped__")
    return is_instrumentation_enabled() and not theirs


def _asks_itself(consumer: Consumer, *methods: str) -> bool:
    """Return whether a subclass has one of these methods of its own: the call in it makes the receive span."""
    return any(has_own(consumer, Consumer, method) for method in methods)


class _HeadersGetter(Getter[Sequence[tuple[str, bytes]]]):
    def get(self, carrier: Sequence[tuple[str, bytes | None]], key: str) -> list[str] | None:
        found = [value.decode(errors="replace") for name, value in carrier if name == key and value is not None]
        return found[:1] or None

    def keys(self, carrier: Iterable[tuple[str, bytes | None]]) -> list[str]:
        return [name for name, _ in carrier]


_HEADERS = _HeadersGetter()


def creation_of(record: Record) -> contexts.Context:
    """Return the context that the record's producer has put into its headers."""
    return _extracted(record, contexts.Context())


def _extracted(record: Record, context: contexts.Context) -> contexts.Context:
    return propagate.extract(record.headers, context=context, getter=_HEADERS)


def _of_client(consumer: Consumer) -> Attributes:
    given = consumer._arguments
    servers = given.kafka["bootstrap_servers"]
    return {
        "messaging.system": "kafka",
        "server.address": json.dumps(servers if isinstance(servers, str) else list(servers)),
        "messaging.client.id": given.client_id,
        "messaging.consumer.group.name": given.group_id,
    }


def _of_partition(at: TopicPartition) -> Attributes:
    return {"messaging.destination.name": at.topic, "messaging.destination.partition.id": str(at.partition)}


def _of_batch(records: int) -> Attributes:
    return {"messaging.batch.message_count": records}


def _of_processing(consumer: Consumer, record: Record) -> Attributes:
    """As of 1.44: `server.address` is one address, and a key is told only where it is text."""
    attributes = _of_client(consumer) | _of_partition(TopicPartition(record.topic, record.partition)) | PROCESS
    del attributes["server.address"]
    servers = consumer._arguments.kafka["bootstrap_servers"]
    addresses = servers.split(",") if isinstance(servers, str) else list(servers)
    if len(addresses) == 1:
        host, _, port = addresses[0].strip().rpartition(":")
        attributes |= {"server.address": host, "server.port": int(port)} if host and port.isdecimal() else {}
    attributes["messaging.kafka.offset"] = record.offset
    if (key := _text_of(record.key)) is not None:
        attributes["messaging.kafka.message.key"] = key
    if record.value is None and record.key is not None:
        attributes["messaging.kafka.message.tombstone"] = True
    return attributes


def _text_of(key: object) -> str | None:
    if isinstance(key, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return key.decode()
        return None
    return key if isinstance(key, str) else None


def _current_task() -> asyncio.Task[Any] | None:
    with contextlib.suppress(RuntimeError):
        return asyncio.current_task()
    return None
