"""The record in hand when a consumer stops: a task may still work on it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from loadtrim_agent.common.waiting_tasks import waiting_for
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer

__all__ = ["abandon_unless_worked_on", "coroutine_function"]

Function = TypeVar("Function", bound=Callable[..., Any])


def coroutine_function(function: Function) -> Function:
    """Mark a function that returns a coroutine as one, for whoever asks with ``asyncio.iscoroutinefunction``.

    A plain function is called in the task of its caller, which ``wait_for(consumer.getone(), ...)`` and ``create_task``
    hide from a coroutine. The caller is the task that works on the record.
    """
    if mark := getattr(inspect, "markcoroutinefunction", None):
        mark(function)
        return function
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


def abandon_unless_worked_on(buffer: RecordBuffer, stopping: asyncio.Task[Any] | None) -> None:
    """Abandon what is in hand, of each partition now or as soon as the task that works on it has ended.

    What a task has in hand that still runs is not abandoned: another member would be handed the same record while this
    one works on it. The task's next call makes it done.

    Args:
        buffer: of the consumer that stops.
        stopping: the task that stops it. What this task took it will not go on with, nor will those that wait for it.
    """
    _abandon(buffer, list(buffer.hand.streams), {stopping, *waiting_for(stopping)})


def _abandon(buffer: RecordBuffer, streams: Iterable[Stream], stopping: set[asyncio.Task[Any] | None]) -> None:
    left: list[Stream] = []
    worked_on: dict[asyncio.Task[Any], list[Stream]] = {}
    for stream in streams:
        worker = buffer.hand.workers.get(stream)
        task = worker.at_work() if worker is not None else None
        if task is None or task.done() or task in stopping:
            left.append(stream)
        else:
            worked_on.setdefault(task, []).append(stream)
    if left or not buffer.hand.streams:
        buffer.abandon(left)
    for task, theirs in worked_on.items():
        # A helper may have ended, and whoever waited for it works on.
        task.add_done_callback(partial(_abandon_then, buffer, theirs, stopping))


def _abandon_then(
    buffer: RecordBuffer, streams: list[Stream], stopping: set[asyncio.Task[Any] | None], _: asyncio.Task[Any]
) -> None:
    _abandon(buffer, [stream for stream in streams if stream in buffer.hand.streams], stopping)
