"""Work on records, told to the consumer: each is done when user code says so, and not before."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Protocol

from aiokafka.structs import ConsumerRecord

from loadtrim_agent.delivery.telling import Telling

from .agent_link import AgentLink

__all__ = ["Untold", "Work", "WorkTarget", "Worked"]


class WorkTarget(Protocol):
    """The port hears of work on records. All methods return False where a record is done, or not held any more."""

    def work_on(self, message: ConsumerRecord[Any, Any]) -> bool: ...

    def enter(self, message: ConsumerRecord[Any, Any]) -> bool: ...

    def leave(self, message: ConsumerRecord[Any, Any]) -> bool: ...

    def done(self, message: ConsumerRecord[Any, Any]) -> bool: ...

    def give_up(self, message: ConsumerRecord[Any, Any]) -> bool: ...


class Worked:
    """The records of a managed consumer. Any thread may tell of them.

    Args:
        link: leads to the buffer that hands them out.
        user_loop: the loop that user code runs in.
    """

    def __init__(self, link: AgentLink, user_loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._user_loop = user_loop

    def work_on(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._tell(message, Telling.work_on)

    def enter(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._tell(message, Telling.enter)

    def leave(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._tell(message, Telling.leave)

    def done(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._tell(message, Telling.done)

    def give_up(self, message: ConsumerRecord[Any, Any]) -> bool:
        return self._tell(message, Telling.give_up)

    def _tell(self, message: ConsumerRecord[Any, Any], what: Any) -> bool:
        """Tell something of a record. Elsewhere than in the user's loop the answer is not known yet."""
        _check(message)
        buffer = self._link.buffer
        if buffer is None:
            return False
        # In this order: what is told may be what the agent waits for before it leaves.
        if asyncio._get_running_loop() is self._user_loop:
            found = bool(what(buffer.hand.telling, message))
        else:
            try:
                self._user_loop.call_soon_threadsafe(what, buffer.hand.telling, message)
            except RuntimeError:  # The loop is closed, so the consumer has left.
                return False
            found = True
        return found and self._link.thread_alive


class Untold:
    """The records of aiokafka's own consumer, which commits what it has handed out: nothing can be told of them."""

    def work_on(self, message: ConsumerRecord[Any, Any]) -> bool:
        return _nothing(message)

    def enter(self, message: ConsumerRecord[Any, Any]) -> bool:
        return _nothing(message)

    def leave(self, message: ConsumerRecord[Any, Any]) -> bool:
        return _nothing(message)

    def done(self, message: ConsumerRecord[Any, Any]) -> bool:
        return _nothing(message)

    def give_up(self, message: ConsumerRecord[Any, Any]) -> bool:
        return _nothing(message)


def _nothing(message: object) -> bool:
    _check(message)
    return False


def _check(message: object) -> None:
    if not isinstance(message, ConsumerRecord):
        raise TypeError(f"{message!r} is no record: give one that getone(), getmany() or async for returned")


class Work:
    """A block around what is done with one record: ``async with consumer.work(message):``.

    Where the block ends with an exception, or is cancelled, the record is not done. Of several blocks that are open
    around one record the end of the last one counts.

    Args:
        target: the consumer.
        message: that it handed out.
    """

    __slots__ = ("_record", "_target")

    def __init__(self, target: WorkTarget, message: ConsumerRecord[Any, Any]) -> None:
        self._target = target
        self._record = message
        target.work_on(message)

    async def __aenter__(self) -> ConsumerRecord[Any, Any]:
        self._target.enter(self._record)
        return self._record

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._target.leave(self._record)
        else:
            self._target.give_up(self._record)
