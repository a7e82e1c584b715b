"""Requests that the coordinator refuses: each is told once, so that nothing hangs in silence."""

from __future__ import annotations

import logging

from aiokafka.errors import TopicAuthorizationFailedError, for_code

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.protocol.counters import ProtocolCount

__all__ = ["Refusals"]

log = logging.getLogger("loadtrim")

_TEXTS = {
    ProtocolCount.HEARTBEAT_REFUSED: (
        "The coordinator refuses this member's heartbeats ({error}). What is owned is delivered until the lease "
        "ends; refused still then, the next call of user code raises it. The broker's log says why."
    ),
    ProtocolCount.OFFSETS_REFUSED: (
        "The committed offset of {partition} cannot be read ({error}), so none of its records is delivered. It is "
        "asked for again every second. Allow this principal DESCRIBE on the topic and READ on the group."
    ),
    ProtocolCount.INITIAL_COMMIT_REFUSED: (
        "The position at which {partition} begins cannot be committed ({error}), so none of its records is delivered. "
        "It is tried again every second. Allow this principal READ on the topic and on the group."
    ),
    ProtocolCount.COMMIT_REFUSED: (
        "Offsets of {partition} cannot be committed ({error}). Its records go on being delivered, and are delivered "
        "again when the partition gets another owner. Allow this principal READ on the topic and on the group."
    ),
}
_RAISED = frozenset({ProtocolCount.OFFSETS_REFUSED, ProtocolCount.INITIAL_COMMIT_REFUSED})
"""Records are not delivered because of these; with the rights missing, user code is told as aiokafka tells it."""


class Refusals:
    """The teller of refusals: each kind once, in the log, and in user code where rights are missing.

    Args:
        buffer: raises in the next call of user code.
    """

    def __init__(self, buffer: RecordBuffer) -> None:
        self._buffer = buffer
        self._told: set[tuple[ProtocolCount, int, str]] = set()
        """Kind, code and topic. Invariant: as many at most as there are topics subscribed, times kinds and codes."""

    def counted(self, what: ProtocolCount, code: int, partition: Partition | None) -> None:
        """Tell of a count that is a refusal."""
        text = _TEXTS.get(what)
        topic = partition.topic if partition is not None else ""
        if text is None or (what, code, topic) in self._told:
            return
        self._told.add((what, code, topic))
        kind = for_code(code)
        named = f"{topic}-{partition.partition}" if partition is not None else ""
        said = text.format(error=kind.__name__, partition=named)
        log.warning("%s Said once, counted from now on.", said)
        if what in _RAISED and kind is TopicAuthorizationFailedError:
            self._buffer.fail(kind(said))
