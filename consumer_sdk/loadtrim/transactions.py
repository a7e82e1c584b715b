"""Sending consumed offsets through an ``AIOKafkaProducer``'s transaction, fenced by the group's generation (KIP-447).

aiokafka's producer knows a group by its id only. Here the id is a string that also knows its member, and the producer's
sender, once it has seen such an id, sends the offsets with member and generation. Ids that are plain strings go as
they always did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import CommitFailedError, GroupAuthorizationFailedError, ProducerClosed
from aiokafka.producer.sender import CoordinationType, TxnOffsetCommitHandler
from aiokafka.producer.transaction_manager import TransactionState

from loadtrim_agent.common.tasks import is_being_cancelled
from loadtrim_agent.delivery.transactions import Fence
from loadtrim_agent.kafka.transactional import FencedOffsetsRequest
from loadtrim_agent.protocol.group_config import Code

__all__ = ["FencedGroup", "send_offsets"]

LOOK_SECONDS = 0.1
"""Pause between two looks whether a transaction whose offsets wait for a generation is aborted. Chosen."""
_REFUSALS = frozenset({Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS})


class FencedGroup(str):
    """A group id for ``send_offsets_to_transaction``.

    Args:
        group: the id.
        fence: tells what the commit carries; takes the generation that the broker refused, or None.
    """

    fence: Callable[[int | None], Awaitable[Fence]]
    refused: int | None

    def __new__(cls, group: str, fence: Callable[[int | None], Awaitable[Fence]]) -> FencedGroup:
        made = super().__new__(cls, group)
        made.fence = fence
        made.refused = None
        return made


async def send_offsets(
    producer: AIOKafkaProducer, offsets: Mapping[Any, Any], group: FencedGroup, sent: Callable[[], None]
) -> None:
    """``producer.send_offsets_to_transaction(offsets, group)``, fenced; calls ``sent`` when nothing is on its way.

    Whoever waits may be cancelled; what is on its way goes on, until the producer is stopped.

    Raises:
        CommitFailedError: the offsets are not this member's to commit any more; abort the transaction.
        ProducerClosed: the producer was stopped meanwhile. KafkaError: as the producer raises.
    """
    sending = asyncio.ensure_future(_send(producer, offsets, group))
    sending.add_done_callback(lambda _: sent())
    _end_with_sender(sending, producer)
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        if sending.cancelled() and not is_being_cancelled():
            raise ProducerClosed from None
        raise


def _end_with_sender(sending: asyncio.Future[None], producer: AIOKafkaProducer) -> None:
    """Wait for offsets no longer than the producer's sender lives: once it has ended nobody answers."""
    sender: asyncio.Task[Any] | None = getattr(getattr(producer, "_sender", None), "sender_task", None)
    if sender is not None:

        def ended(_: asyncio.Task[Any]) -> None:
            sending.cancel()

        sender.add_done_callback(ended)
        sending.add_done_callback(lambda _: sender.remove_done_callback(ended))


async def _send(producer: AIOKafkaProducer, offsets: Mapping[Any, Any], group: FencedGroup) -> None:
    sender = producer._sender
    if not isinstance(sender._do_txn_offset_commit, _CommitOffsets):
        sender._do_txn_offset_commit = _CommitOffsets(sender, sender._do_txn_offset_commit)
    await producer.send_offsets_to_transaction(offsets, group)


class _CommitOffsets:
    """In the place of the sender's own step; called by it until nothing is left to commit."""

    def __init__(self, sender: Any, plain: Callable[[Any, str], Awaitable[None]]) -> None:
        self._sender = sender
        self._plain = plain

    async def __call__(self, offsets: Mapping[Any, Any], group: str) -> None:
        if not offsets or not isinstance(group, FencedGroup):
            await self._plain(offsets, group)
            return
        sender = self._sender
        try:
            fence = await self._fence_of(group)
        except Exception as error:  # not held any more, or the consumer has ended: either way not to be committed
            _must_abort(sender._txn_manager, error)
            return
        try:
            node = await sender._find_coordinator(CoordinationType.GROUP, group)
        except GroupAuthorizationFailedError as error:
            _must_abort(sender._txn_manager, error)
            return
        await _FencedHandler(sender, offsets, group, fence).do(node)

    async def _fence_of(self, group: FencedGroup) -> Fence:
        """Return what the commit carries. A transaction that is being aborted does not wait for it.

        Raises:
            CommitFailedError: the offsets are not to be committed.
        """
        fencing = asyncio.ensure_future(group.fence(group.refused))
        try:
            while not fencing.done():
                if self._sender._txn_manager.state is TransactionState.ABORTING_TRANSACTION:
                    raise CommitFailedError("The transaction is aborted, and the offsets with it.")
                await asyncio.wait({fencing}, timeout=LOOK_SECONDS)
            return fencing.result()
        finally:
            fencing.cancel()


def _must_abort(manager: Any, error: Exception) -> None:
    """Leave the transaction so that it can only be aborted, and raise ``error`` in the call that sent offsets.

    One that is being aborted already is left to that: only the offsets are given up.
    Not by the manager's ``error_transaction``: that forgets what the transaction has touched, takes it for empty when
    it is aborted, and tells the broker nothing; then the next transaction's commit makes the aborted records visible.
    """
    for _, _, waiting in manager._pending_txn_offsets:
        if not waiting.done():
            waiting.set_exception(error)
    manager._pending_txn_offsets.clear()
    if manager.state not in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING_TRANSACTION):
        return
    manager._transition_to(TransactionState.ABORTABLE_ERROR)
    manager._transaction_waiter.set_exception(error)
    manager._transaction_waiter.exception()  # raised by the commit all the same; nobody need look


class _FencedHandler(TxnOffsetCommitHandler):  # type: ignore[misc]
    def __init__(self, sender: Any, offsets: Mapping[Any, Any], group: FencedGroup, fence: Fence) -> None:
        super().__init__(sender, offsets, group)
        self._fence = fence

    def create_request(self) -> FencedOffsetsRequest:
        manager = self._sender._txn_manager
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, partition), offset in sorted(self._offsets.items()):
            topics.setdefault(topic, []).append((partition, offset.offset, offset.metadata))
        return FencedOffsetsRequest(
            transactional_id=manager.transactional_id,
            producer_id=manager.producer_id,
            producer_epoch=manager.producer_epoch,
            group=str(self._group_id),
            member=self._fence.member,
            generation=self._fence.generation,
            topics=list(topics.items()),
        )

    def handle_response(self, resp: Any) -> float | None:
        """Return the back-off in seconds after which the sender tries again, or None."""
        errors = [(topic, [entry[:2] for entry in partitions]) for topic, partitions, *_ in resp.errors]
        if any(code in _REFUSALS for _, partitions in errors for _, code in partitions):
            # A barrier has moved the generation on: what is still held is sent again in the next one.
            self._group_id.refused = self._fence.generation
            return 0.0
        backoff: float | None = super().handle_response(SimpleNamespace(errors=errors))
        return backoff
