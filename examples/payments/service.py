"""The payments service: what a user of loadtrim writes, plus a journal that proves what happened.

The service itself is the loop at the bottom of :func:`run`. The only line that loadtrim asks for is the
import:

    from loadtrim import Consumer            # was: from aiokafka import AIOKafkaConsumer

It stands in :mod:`payments.clients`, where others can be chosen instead, for comparison.

Started by ``loadtrim up -- python examples/payments/service.py``, by the demo, and by hand. Everything is set
by environment variables:

=========================  ==================  ==============================================================
variable                   default             meaning
=========================  ==================  ==============================================================
``PAYMENTS_BOOTSTRAP``     ``localhost:9092``  the Kafka cluster
``PAYMENTS_TOPIC``         ``payments``        topics to consume, separated by commas
``PAYMENTS_GROUP``         payments-service    the consumer group
``PAYMENTS_BUSY_SECONDS``  ``0.0059``          how long one payment takes, on the mean
``PAYMENTS_BURN``          ``0``               ``1``: use a CPU meanwhile; ``0``: wait, as for a database
``PAYMENTS_JOURNAL``       (none)              directory for this process's journal
``PAYMENTS_CLIENT``        ``loadtrim``        another consumer, for comparison: see :mod:`payments.clients`
``PAYMENTS_OPTIONS``       ``{}``              more keyword arguments for the consumer, as a JSON object
``PAYMENTS_LOG``           ``INFO``            log level
=========================  ==================  ==============================================================
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from payments.clients import CLIENTS, consumer_of

__all__ = ["Journal", "Pace", "ServiceOptions", "clock_ns", "run", "serve"]

JOURNAL_VERSION = 1

_SPIN_SECONDS = 0.00009
"""The last stretch of a wait is spun: the kernel wakes a sleeper 50 to 80 us late."""
_SHORT_SECONDS = 0.0016
"""The stretch before is slept by the thread: epoll rounds an event loop's wait up to the next millisecond."""


def clock_ns() -> int:
    """Nanoseconds on the one clock that all processes of this machine share.

    ``CLOCK_BOOTTIME`` where there is one, because it runs on while the machine is suspended; monotonic
    elsewhere.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class Journal:
    """An append-only log of one process, a line per event, for a checker that trusts nobody else.

    Each line is handed to the kernel before the call returns, so a killed process loses none of them. The
    first line says who writes and ties the clock to the wall clock:
    ``S,version,role,name,pid,clock_ns,epoch_ns``. The last one, ``E,clock_ns``, says that the process ended
    by itself.
    """

    def __init__(self, directory: Path, name: str, *, role: str = "service") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{name}-{os.getpid()}.journal"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.write("S", JOURNAL_VERSION, role, name, os.getpid(), clock_ns(), time.time_ns())

    def write(self, *fields: object) -> None:
        """Append one line. About 3 us. No field may hold a comma or a line break."""
        os.write(self._file, (",".join(map(str, fields)) + "\n").encode())

    def handed_out(self, message: Any, record_id: str) -> None:
        """``H,topic,partition,offset,id,clock_ns``: the record is in the hands of the service from now on."""
        self.write("H", message.topic, message.partition, message.offset, record_id, clock_ns())

    def done(self, message: Any) -> None:
        """``D,topic,partition,offset,clock_ns``: the service is through with the record."""
        self.write("D", message.topic, message.partition, message.offset, clock_ns())

    def close(self) -> None:
        """Say that the process ended by itself. Nothing may be written afterwards."""
        self.write("E", clock_ns())
        os.close(self._file)


@dataclass(frozen=True)
class ServiceOptions:
    """What the environment says (see the table above)."""

    bootstrap: str = "localhost:9092"
    topics: tuple[str, ...] = ("payments",)
    group: str = "payments-service"
    busy_seconds: float = 0.0059
    burn: bool = False
    journal: Path | None = None
    client: str = "loadtrim"
    extra: dict[str, Any] = field(default_factory=dict)
    instance: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read the options.

        Raises:
            ValueError: a value that cannot be used, in one line: the variable, the value, what is allowed.
        """
        client = env.get("PAYMENTS_CLIENT", cls.client)
        if client not in CLIENTS:
            raise ValueError(f"PAYMENTS_CLIENT is {client!r}; allowed: {', '.join(CLIENTS)}")
        journal = env.get("PAYMENTS_JOURNAL")
        return cls(
            bootstrap=env.get("PAYMENTS_BOOTSTRAP", cls.bootstrap),
            topics=tuple(env.get("PAYMENTS_TOPIC", "payments").split(",")),
            group=env.get("PAYMENTS_GROUP", cls.group),
            busy_seconds=_seconds(env.get("PAYMENTS_BUSY_SECONDS", str(cls.busy_seconds))),
            burn=env.get("PAYMENTS_BURN", "0") not in ("0", "", "false"),
            journal=Path(journal) if journal else None,
            client=client,
            extra=_json_object(env.get("PAYMENTS_OPTIONS", "{}")),
            instance=env.get("LOADTRIM_INSTANCE") or socket.gethostname(),
        )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 3600.0:
        raise ValueError(f"PAYMENTS_BUSY_SECONDS is {text!r}; allowed: seconds from 0 to 3600, such as 0.0059")
    return seconds


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"PAYMENTS_OPTIONS is {text!r}; allowed: a JSON object ({error})") from error


class Payment(msgspec.Struct, frozen=True):
    """What a record carries. ``id`` is the producer's and unique in a run."""

    id: str
    amount_cents: int = 0
    currency: str = "EUR"


class Pace:
    """Takes a payment's time, on the mean.

    A wait ends late where the machine has no core to spare; what one took too long is taken off the next, or a group
    on a busy machine would be asked for more work than the setting says.

    Args:
        seconds: per payment.
        burn: use the CPU all the while instead of waiting.
    """

    def __init__(self, seconds: float, *, burn: bool = False) -> None:
        self._seconds = seconds
        self._burn = burn
        self._overrun = 0.0
        """Of the last payment, at most a payment's time: what a suspended process missed is not to be made up for."""

    async def take(self, since: float | None = None) -> None:
        """Be busy until the payment's time is over.

        Args:
            since: when it began, on ``time.perf_counter``'s scale; None: now.
        """
        deadline = (time.perf_counter() if since is None else since) + self._seconds - self._overrun
        await _busy_until(deadline, burn=self._burn)
        self._overrun = min(time.perf_counter() - deadline, self._seconds)


async def _busy_until(deadline: float, *, burn: bool) -> None:
    """To about 0.03 ms, where ``asyncio.sleep(0.0059)`` would take 6.3 ms."""
    if not burn:
        coarse = deadline - time.perf_counter() - _SHORT_SECONDS
        if coarse > 0:
            await asyncio.sleep(coarse)
        fine = deadline - time.perf_counter() - _SPIN_SECONDS
        if fine > 0:
            time.sleep(fine)  # noqa: ASYNC251 - at most 1.6 ms, and exact, which the loop's own wait is not
    while time.perf_counter() < deadline:
        pass


async def run(options: ServiceOptions) -> None:
    """Consume until SIGTERM; the record in hand is finished first."""
    journal = Journal(options.journal, options.instance) if options.journal else None
    keywords = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "auto_offset_reset": "earliest",
        **options.extra,
    }
    consumer = consumer_of(options.client, options.topics, keywords)
    pace = Pace(options.busy_seconds, burn=options.burn)
    try:
        async with consumer:
            async for message in consumer:
                begun = time.perf_counter()
                payment = msgspec.json.decode(message.value, type=Payment)
                if journal:
                    journal.handed_out(message, payment.id)
                await pace.take(begun)
                if journal:
                    journal.done(message)
    finally:
        if journal:
            journal.close()


def serve(run: Callable[[ServiceOptions], Coroutine[Any, Any, None]]) -> int:
    """Run a service with the settings of the environment until it is stopped.

    Returns:
        The exit code: 0 stopped, 2 unreadable settings.
    """
    log_format = "%(asctime)s %(name)s %(levelname)s %(message)s"
    try:
        logging.basicConfig(level=os.environ.get("PAYMENTS_LOG", "INFO"), format=log_format, stream=sys.stderr)
        options = ServiceOptions.from_env(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    with suppress(KeyboardInterrupt):
        asyncio.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(serve(run))
