"""Plays a load against a topic and writes down what it sent and what the broker acknowledged.

The recorded loads are those of the papers: so many records a second, sent as one burst at the start of the
second.

    python examples/demo/load.py --bootstrap localhost:9092 --topic payments --rates trace --journal out/run

``--rates`` takes ``trace`` (every fifth second of the 10-minute trace), ``trace:1`` (all of it),
``constant:RATE:SECONDS``, ``step:FROM:TO:AT:SECONDS`` and ``noisy:RATE:SECONDS:SHARE[:SEED]`` (evenly
distributed within +-SHARE).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from demo.datasets import TRACE_NAME, data_file, not_here, trace_rates
from demo.journal import Journal, clock_ns

__all__ = [
    "Due",
    "LoadOptions",
    "LoadRates",
    "Progress",
    "TooLateError",
    "constant",
    "noisy",
    "parse_rates",
    "play",
    "schedule",
    "shares_even",
    "shares_skewed",
    "step",
    "trace",
]

LEAD_SECONDS = 0.1
"""From the call until the first record of a load that begins at once."""


class TooLateError(Exception):
    """The moment at which a load was to begin has passed: it would be another load."""


@dataclass(frozen=True, slots=True)
class LoadRates:
    """How many records to send in each second."""

    per_second: tuple[float, ...]
    """Records/s, >= 0; the count sent is rounded up, as the papers' producers do."""
    source: str
    """Where it comes from, in words, for the report."""
    shares: tuple[tuple[float, ...], ...] = ()
    """Each partition's share in every second, where that changes; empty: the same all the time."""
    moments: tuple[float, ...] = ()
    """Seconds since the start at which a record is sent, ascending; empty: as the rates say."""

    @property
    def records(self) -> int:
        return len(self.moments) or sum(map(math.ceil, self.per_second))


def trace(*, every: int = 5) -> LoadRates:
    """Every ``every``-th second of the 10-minute trace, rates unchanged; a generated one without the file.

    ``every`` = 5 makes 2 minutes that rise and fall five times as steeply as what was recorded.
    """
    path = data_file(TRACE_NAME)
    rates = trace_rates(path)
    if path is None:
        source = f"generated three humps in the shape of the 10-minute trace, for {not_here(TRACE_NAME)}"
    else:
        source = f"recorded 10-minute trace ({path.name})"
    if every > 1:
        source = f"every {every}th second of the {source}"
    return LoadRates(tuple(rates[::every]), source)


def constant(rate: float, seconds: int) -> LoadRates:
    """The same rate (records/s) all the time."""
    return LoadRates((rate,) * seconds, f"constant {rate:g} records/s")


def step(before: float, after: float, at_seconds: int, seconds: int) -> LoadRates:
    """One step from ``before`` to ``after`` records/s."""
    rates = (before,) * at_seconds + (after,) * (seconds - at_seconds)
    return LoadRates(rates, f"step from {before:g} to {after:g} records/s at {at_seconds} s")


def noisy(rate: float, seconds: int, share: float, seed: int = 0) -> LoadRates:
    """Evenly distributed within ``rate`` +- ``share`` x ``rate``, another value each second."""
    draw = random.Random(seed)
    rates = tuple(rate * (1.0 + draw.uniform(-share, share)) for _ in range(seconds))
    return LoadRates(rates, f"constant {rate:g} records/s with +-{share:.0%} noise (seed {seed})")


def parse_rates(text: str) -> LoadRates:
    """Read ``--rates`` (see the module).

    Raises:
        ValueError: not understood; the message lists what is.
    """
    name, *fields = text.split(":")
    kinds: dict[str, Callable[..., LoadRates]] = {
        "trace": lambda every="5": trace(every=int(every)),
        "constant": lambda rate, seconds: constant(float(rate), int(seconds)),
        "step": lambda a, b, at, seconds: step(float(a), float(b), int(at), int(seconds)),
        "noisy": lambda rate, seconds, share, seed="0": noisy(float(rate), int(seconds), float(share), int(seed)),
    }
    try:
        return kinds[name](*fields)
    except (KeyError, TypeError, ValueError) as error:
        allowed = "trace[:EVERY], constant:RATE:SECONDS, step:FROM:TO:AT:SECONDS, noisy:RATE:SECONDS:SHARE"
        raise ValueError(f"rates {text!r} not understood ({error!r}); allowed: {allowed}") from error


def shares_even(partitions: int) -> tuple[float, ...]:
    """Every partition gets the same share of the load."""
    return (1.0 / partitions,) * partitions


def shares_skewed(partitions: int, *, heavy: int = 2, heavy_share: float = 0.5) -> tuple[float, ...]:
    """The first ``heavy`` partitions share ``heavy_share`` of the load, the others the rest."""
    if partitions <= heavy:
        return shares_even(partitions)
    light = partitions - heavy
    return (heavy_share / heavy,) * heavy + ((1.0 - heavy_share) / light,) * light


@dataclass(frozen=True, slots=True)
class Due:
    """One record to send."""

    at_seconds: float
    """From the start of the load."""
    partition: int


def schedule(rates: LoadRates, shares: Sequence[float], *, even: bool = False) -> Iterator[Due]:
    """When to send what where; the same every time.

    Each partition's count follows its share as closely as whole records allow at any moment, and a burst is
    mixed as evenly as that allows (smooth weighted round-robin).

    Args:
        rates: records per second.
        shares: each partition's share of the load, where the rates have none of their own; they sum to 1.
        even: spread each second's records over the second, instead of one burst at its start.
    """
    if not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise ValueError(f"the partitions' shares sum to {sum(shares):g}, not to 1")
    credit = [0.0] * len(shares)
    for at in rates.moments or _moments(rates, even=even):
        for partition, share in enumerate(rates.shares[int(at)] if rates.shares else shares):
            credit[partition] += share
        chosen = max(range(len(shares)), key=lambda partition: (credit[partition], -partition))
        credit[chosen] -= 1.0
        yield Due(at, chosen)


def _moments(rates: LoadRates, *, even: bool) -> Iterator[float]:
    for second, rate in enumerate(rates.per_second):
        count = math.ceil(rate)
        yield from (second + (index / count if even else 0.0) for index in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to play where."""

    bootstrap: str
    topic: str
    rates: LoadRates
    shares: tuple[float, ...]
    journal: Path
    even: bool = False
    payload_bytes: int = 100
    """Least size of a record's value."""
    begin_at: float | None = None
    """When, seconds since the epoch; None: at once."""
    events: Callable[[str, float], tuple[int, bytes]] | None = None
    """(record id, seconds since the start) -> (partition, value); None: payments, dealt out by the shares."""
    client_options: dict[str, Any] | None = None
    """More keyword arguments for the producer (TLS, SASL)."""


@dataclass(slots=True)
class Progress:
    """How far the load is; read it while :func:`play` runs."""

    records_total: int
    seconds_total: int
    started_ns: int | None = None
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    behind_seconds_max: float = 0.0
    """Furthest that sending ever was behind its schedule. Well above 0.05: the machine was too busy."""

    @property
    def second(self) -> float:
        """Seconds since the start; 0 before it."""
        return 0.0 if self.started_ns is None else max(0.0, (clock_ns() - self.started_ns) / 1e9)


class _Player:
    def __init__(self, options: LoadOptions, progress: Progress, producer: AIOKafkaProducer) -> None:
        self._options = options
        self._progress = progress
        self._producer = producer
        self._journal = Journal(options.journal, "producer", role="producer")
        self._epoch_offset_ns = time.time_ns() - clock_ns()
        self._in_flight: set[asyncio.Future[Any]] = set()

    async def play(self) -> None:
        options, progress = self._options, self._progress
        loop = asyncio.get_running_loop()
        begin_at = options.begin_at
        start = loop.time() + (LEAD_SECONDS if begin_at is None else begin_at - time.time())
        progress.started_ns = clock_ns() + round((start - loop.time()) * 1e9)
        # An absolute schedule: lateness of one burst never delays the next one's due time.
        for number, due in enumerate(schedule(options.rates, options.shares, even=options.even)):
            wait = start + due.at_seconds - loop.time()
            if wait > 0.0005:
                await asyncio.sleep(wait)
            else:
                progress.behind_seconds_max = max(progress.behind_seconds_max, -wait)
            await self._send(str(number), due)
        await asyncio.sleep(max(0.0, start + len(options.rates.per_second) - loop.time()))
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        self._journal.close()

    async def _send(self, record_id: str, due: Due) -> None:
        topic = self._options.topic
        if self._options.events is None:
            partition, value = due.partition, _value(record_id, self._options.payload_bytes)
        else:
            partition, value = self._options.events(record_id, due.at_seconds)
        sent_ns = clock_ns()
        timestamp_ms = (sent_ns + self._epoch_offset_ns) // 1_000_000
        self._journal.write("P", record_id, topic, partition, sent_ns, timestamp_ms)
        try:
            delivery = await self._producer.send(topic, value, partition=partition, timestamp_ms=timestamp_ms)
        except KafkaError as error:
            self._refused(record_id, error)
            return
        self._progress.sent += 1
        self._in_flight.add(delivery)
        delivery.add_done_callback(lambda done: self._delivered(record_id, done))

    def _delivered(self, record_id: str, delivery: asyncio.Future[Any]) -> None:
        self._in_flight.discard(delivery)
        if delivery.cancelled():
            return  # neither acknowledged nor refused, which is what the journal then says
        error = delivery.exception()
        if error is not None:
            self._refused(record_id, error)
            return
        metadata = delivery.result()
        self._journal.write("A", record_id, metadata.topic, metadata.partition, metadata.offset, clock_ns())
        self._progress.acknowledged += 1

    def _refused(self, record_id: str, error: BaseException) -> None:
        self._journal.write("F", record_id, type(error).__name__)
        self._progress.refused += 1


def _value(record_id: str, size: int) -> bytes:
    payment = {"id": record_id, "amount_cents": 100 + len(record_id), "currency": "EUR", "note": ""}
    short = msgspec.json.encode(payment)
    payment["note"] = "x" * max(0, size - len(short))
    return msgspec.json.encode(payment)


async def play(options: LoadOptions, progress: Progress | None = None) -> Progress:
    """Send the whole load, each record in its time, and wait until the broker has answered for all.

    Cancelled: stops at once; what was in flight stays unanswered in the journal.

    Returns:
        The progress, complete; the one given, if one was.

    Raises:
        TooLateError: ``begin_at`` has passed when it could begin.
    """
    if progress is None:
        progress = Progress(options.rates.records, len(options.rates.per_second))
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        enable_idempotence=True,
        max_batch_size=1 << 18,  # a whole burst of one partition: sending never waits for the broker
        **(options.client_options or {}),
    )
    async with producer:
        await producer.partitions_for(options.topic)
        if options.begin_at is not None and (late := time.time() - options.begin_at) > 0:
            raise TooLateError(
                f"the load was to begin {late:.1f} s before it could; leave more time for what comes before"
            )
        await _Player(options, progress, producer).play()
    return progress


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 all acknowledged, 1 not all, 2 wrong use."""
    parser = argparse.ArgumentParser(description="Play a load against a topic.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--partitions", type=int, default=9)
    parser.add_argument("--shares", choices=("skewed", "even"), default="skewed")
    parser.add_argument("--rates", default="trace")
    parser.add_argument("--even", action="store_true", help="spread arrivals instead of one burst a second")
    parser.add_argument("--journal", type=Path, default=Path("out/load"), help="where the journals go")
    options = parser.parse_args(arguments)
    shares = shares_skewed if options.shares == "skewed" else shares_even
    try:
        load = LoadOptions(
            bootstrap=options.bootstrap,
            topic=options.topic,
            rates=parse_rates(options.rates),
            shares=shares(options.partitions),
            journal=options.journal,
            even=options.even,
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    progress = asyncio.run(play(load))
    print(
        f"{load.rates.source}: {progress.sent} sent, {progress.acknowledged} acknowledged, "
        f"at most {progress.behind_seconds_max * 1e3:.0f} ms behind schedule"
    )
    return 0 if progress.acknowledged == progress.records_total else 1


if __name__ == "__main__":
    sys.exit(main())
