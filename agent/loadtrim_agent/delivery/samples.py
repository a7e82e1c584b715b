"""Samples of records, that tell whether user code still works on one after it asked for the next.

Theory of operation. The next call makes a record done. That is a wrong measure where user code *keeps* records: in a
task of its own for each, in a queue, in a list. It can be seen of single records, a few a second, at no cost for the
others. A sampled record is *kept* if user code asked for the next one before the loop turned once, and later on

- something that was begun in between is still there. A task, or a call that is due, inherits a context variable. Its
  value dies with the last of them. Or
- something still refers to the record or its value, though user code was handed others since.

What user code awaits between two calls proves nothing: the timer of a time limit that has been kept refers to the
context too, for as long as the limit. So such a sample counts only where nothing is left of it.

What it cannot see: a copy of the record (its value decoded, say) that is put somewhere without a task. It sees a record
too much where user code only remembers it.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import deque
from collections.abc import Collection
from contextvars import Context, ContextVar
from enum import IntEnum
from typing import Any

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition

from .partition_stream import Stream

__all__ = ["RecordSamples"]

SAMPLE_SECONDS = 0.2
"""Least time between two samples. Chosen: their cost is lost among thousands of records a second."""
SAMPLES_MAX = 30
KEPT_MIN = 3
"""Of the last samples so many say that records are kept. A pool that the first record opens is one. Both chosen."""
SEVERAL_TASKS_SECONDS = 60.0
"""Time in which as many calls show that several tasks ask. Chosen."""


class _Token:
    """The value of the context variable while a sampled record is in hand."""

    __slots__ = ("__weakref__",)


_CURRENT: ContextVar[_Token | None] = ContextVar("loadtrim_sampled_record", default=None)


class _Fate(IntEnum):
    """A sample says this."""

    DONE = 0
    """Nothing was left of the record when the next one was asked for."""
    BRIEFLY_KEPT = 1
    """The record was kept for no longer than the tolerance."""
    KEPT = 2


def _references(holder: _Sample) -> int:
    return sys.getrefcount(holder.record)


def _value_references(record: Any) -> int:
    return sys.getrefcount(record.value)


class _Sample:
    """One record of a stream, from the hand-out on."""

    __slots__ = (
        "_stream",
        "_turned",
        "asked_at",
        "handed_out_since",
        "partition",
        "record",
        "released_at",
        "token",
        "value_alone",
    )

    def __init__(self, record: Any, stream: Stream | None = None) -> None:
        self.record = record
        self._stream = weakref.ref(stream) if stream is not None else None
        self.partition = stream.partition if stream is not None else None
        self.value_alone = _value_references(record) == _VALUE_ALONE
        """Nothing else refers to the value. It would to a short string, or None."""
        self.token: weakref.ref[_Token] | None = None
        self.released_at: float | None = None
        """Boot clock: nothing that was begun with the record is there any more."""
        self.asked_at: float | None = None
        """Boot clock: user code asked for the next one."""
        self.handed_out_since = False
        self._turned = False

    def turn(self) -> None:
        """Note that the loop has turned."""
        if self.asked_at is None:
            self._turned = True

    @property
    def at_once(self) -> bool:
        """Return whether user code asked for the next record before the loop turned."""
        return not self._turned

    def has_gone(self) -> bool:
        """Return whether nothing of its stream is handed out any more."""
        stream = self._stream() if self._stream is not None else None
        return stream is None or not stream.running

    def release(self, _: object) -> None:
        self.released_at = boot_time()

    def referred_to(self) -> bool:
        """Return whether anything but this, and what the stream has unpacked, refers to the record or its value."""
        stream = self._stream() if self._stream is not None else None
        unpacked = stream.records if stream is not None else ()
        ours = any(each is self.record for each in unpacked)
        return _references(self) > _ALONE + ours or (self.value_alone and _value_references(self.record) > _VALUE_ALONE)


class _Alone:
    def __init__(self) -> None:
        self.value = object()


_VALUE_ALONE = _value_references(_Alone())
_ALONE = _references(_Sample(_Alone()))
"""References that the two count when nobody else has one."""


class RecordSamples:
    """The samples of one consumer. Methods run in the user's thread; what is told may be read in any.

    Args:
        loop: the loop that user code runs in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: _Sample | None = None
        self._fates: deque[_Fate] = deque(maxlen=SAMPLES_MAX)
        self._asked_by_others: deque[float] = deque(maxlen=KEPT_MIN)
        """Boot clock."""
        self._due_at = boot_time() + SAMPLE_SECONDS
        """A record that is handed out from then on is a sample. Boot clock."""
        self.tolerance_seconds = 0.0
        """Agent: what is kept for no longer is as good as done when the next one is asked for."""
        self.beyond = False
        """User code works on records beyond the call that asks for the next."""
        self.kept = False
        """User code does for longer than the tolerance, so that nobody knows when a record is done."""

    @property
    def waiting(self) -> bool:
        """Return whether a record is looked at, and the next call is to be seen."""
        return self._open is not None and self._open.asked_at is None

    @property
    def several_tasks(self) -> bool:
        """Return whether a task asked lately while another one had a record in hand, so that this was done too early.

        Any thread.
        """
        asked = self._asked_by_others
        return len(asked) == KEPT_MIN and boot_time() - asked[0] < SEVERAL_TASKS_SECONDS

    def asked_by_another(self, now: float) -> None:
        """A task asks while another one has a record in hand."""
        self._asked_by_others.append(now)

    def handed_out(self, record: Any, stream: Stream, now: float) -> None:
        """Look at a record of the stream that is handed out now, if it is time to."""
        if self._open is not None:
            # A batch has several streams, and is handed out to user code at once.
            self._open.handed_out_since = self._open.asked_at is not None
            return
        if now < self._due_at:
            return
        self._due_at = now + SAMPLE_SECONDS
        self._open = sample = _Sample(record, stream)
        # First this: the handle keeps a context, and it is to be one without the token.
        self._loop.call_soon(sample.turn, context=_NO_CONTEXT)
        token = _Token()
        sample.token = weakref.ref(token, sample.release)
        _CURRENT.set(token)

    def asked(self, now: float, wanted: Collection[Partition] = ()) -> None:
        """User code asks for records, so that the one that is looked at is done if nothing says otherwise.

        Args:
            now: boot clock.
            wanted: of these partitions; empty: of all. What is in hand of others goes on.
        """
        sample = self._open
        if sample is None:
            return
        if wanted and sample.partition not in wanted:
            if sample.has_gone():  # nobody names its partition any more
                self._open = None
            return
        if sample.asked_at is None:
            _CURRENT.set(None)
            sample.asked_at = boot_time()  # not before what this releases
        elif sample.handed_out_since and now - sample.asked_at >= self.tolerance_seconds:
            self._open = None
            fate = self._fate(sample, now)
            if fate is not None:
                self._fates.append(fate)
                self.beyond = sum(each is not _Fate.DONE for each in self._fates) >= KEPT_MIN
                self.kept = sum(each is _Fate.KEPT for each in self._fates) >= KEPT_MIN

    def _fate(self, sample: _Sample, now: float) -> _Fate | None:
        """Return what the sample says; None: nothing."""
        assert sample.asked_at is not None
        released_at = now if sample.released_at is None else sample.released_at
        referred_to = sample.referred_to()
        if not sample.at_once:
            # Of what user code waits for in between, the timer of a time limit may be left, and nothing of the record.
            return None if referred_to or sample.released_at is None else _Fate.DONE
        if referred_to or released_at - sample.asked_at >= self.tolerance_seconds > 0.0:
            return _Fate.KEPT
        return _Fate.BRIEFLY_KEPT if released_at > sample.asked_at else _Fate.DONE


_NO_CONTEXT = Context()
