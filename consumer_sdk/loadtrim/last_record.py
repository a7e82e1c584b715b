"""The record in hand when a consumer stops: a task may still work on it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

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
    """Abandon what is in hand, now or as soon as the task that took it has ended.

    What a task has in hand that still runs is not abandoned: another member would be handed the same record while this
    one works on it. The task's next call makes it done.

    Args:
        buffer: of the consumer that stops.
        stopping: the task that stops it. What this task took it will not go on with.
    """
    taker = buffer.hand.taker
    if taker is None or taker is stopping or taker.done() or (stopping is not None and _waits_for(taker, stopping)):
        buffer.abandon()
    else:
        taker.add_done_callback(lambda _: buffer.abandon())


def _waits_for(task: Any, other: Any) -> bool:
    """Return whether ``task`` goes on only when ``other`` has ended: ``await wait_for(consumer.stop(), ...)``.

    Before Python 3.12 ``wait_for`` runs its argument in a task of its own; ``gather``, ``shield`` and task groups
    do so in all versions. asyncio has no public call that tells which task waits for which. Where its internals look
    otherwise the answer is False: the record is waited for, within ``LOADTRIM_DRAIN_SECONDS``.
    """
    waited_for = getattr(task, "_fut_waiter", None)
    if waited_for is None:
        return False
    callbacks = getattr(other, "_callbacks", None) or ()
    return waited_for is other or any(waited_for is held for entry in callbacks for held in _held_by(entry[0]))


def _held_by(callback: Any) -> Iterator[Any]:
    """Yield what a callback of asyncio's helpers holds: the future that its caller waits for is among it."""
    yield from getattr(callback, "args", ())  # functools.partial, of `wait_for`
    yield from getattr(getattr(callback, "__self__", None), "__dict__", {}).values()  # a task group
    for cell in getattr(callback, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
