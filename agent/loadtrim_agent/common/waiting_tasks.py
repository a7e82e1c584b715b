"""The tasks that go on only when another one has ended.

``await wait_for(work(), 10)``, ``gather``, ``shield``, ``wait`` and task groups run what they are given in a task of
its own, and their caller waits for that. asyncio has no public call that tells which task waits for which, so this
looks at its internals. Where they look otherwise none is found.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["waiting_for"]

HELPERS: Final = frozenset({"asyncio", "anyio"})
"""Packages whose callbacks are looked into: what a callback of user code holds says nothing."""
LOOKED_AT_MAX: Final = 256
"""Futures that are looked at. Chosen: far more than a program nests, and a bound on the time."""


def waiting_for(task: asyncio.Future[Any] | None) -> Iterator[asyncio.Task[Any]]:
    """Yield the tasks that wait for ``task``, also by way of others, the nearest first.

    O(futures in between); a task that nobody waits for costs a tenth of a microsecond.
    """
    if task is None or not getattr(task, "_callbacks", None):
        return
    seen, left = {task}, deque([task])
    while left and len(seen) < LOOKED_AT_MAX:
        for callback, *_ in getattr(left.popleft(), "_callbacks", None) or ():
            owner = getattr(callback, "__self__", None)
            for found in (owner,) if isinstance(owner, asyncio.Task) else _futures_of(callback):
                if found in seen:
                    continue
                seen.add(found)
                left.append(found)
                if isinstance(found, asyncio.Task):
                    yield found


def _futures_of(callback: Any) -> Iterator[asyncio.Future[Any]]:
    """Yield the futures that a callback of asyncio's helpers holds: its caller waits for one of them.

    Tasks are none of them: a task group holds all of its own.
    """
    function = getattr(callback, "func", callback)
    if (getattr(function, "__module__", None) or "").partition(".")[0] not in HELPERS:
        return
    for held in _held_by(callback):
        values = vars(held).values() if hasattr(held, "__dict__") else ()
        for value in (held, *values):
            for each in getattr(value, "_getters", ()) if isinstance(value, asyncio.Queue) else (value,):
                if isinstance(each, asyncio.Future) and not isinstance(each, asyncio.Task):
                    yield each


def _held_by(callback: Any) -> Iterator[Any]:
    yield from getattr(callback, "args", ())  # functools.partial, of `wait_for`
    yield getattr(callback, "__self__", None)  # a task group
    for cell in getattr(callback, "__closure__", None) or ():  # `gather`, `shield`, `wait`, `as_completed`, anyio
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
