"""Planning passes points at which it may be held up for a moment.

A leader plans in the process of user code, under one interpreter's lock. A thread that computes is asked to give it
away after 5 ms (``sys.setswitchinterval``), and whatever waits for it waits that long each time. So planning passes a
point of this module about once a millisecond, and what runs the planner may give the lock away there. Nothing of a plan
depends on it: what is called there gets nothing, and gives nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

__all__ = ["AT_ONCE", "call_at_pauses", "in_turns", "may_pause"]

T = TypeVar("T")

AT_ONCE = 64
"""Elements of a long sequence between two points. Chosen: half a millisecond of what takes longest."""


def _go_on() -> None:
    """Go on: no pause was asked for."""


_pause: Callable[[], None] = _go_on


def call_at_pauses(pause: Callable[[], None]) -> None:
    """Have a function called at each point, in whichever thread passes it."""
    global _pause
    _pause = pause


def may_pause() -> None:
    """Pass a point at which planning may be held up."""
    _pause()


def in_turns(elements: Iterable[T], at_once: int = AT_ONCE) -> Iterator[T]:
    """Return the same elements with a point before every few of them."""
    rest = iter(elements)
    while some := tuple(islice(rest, at_once)):
        _pause()
        yield from some
