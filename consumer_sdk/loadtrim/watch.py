"""Never a silent hang: what went wrong on the agent's side is raised in user code, or said."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from aiokafka.errors import KafkaError, NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.runtime.agent import Agent
from loadtrim_agent.runtime.thread import AgentThread

__all__ = ["AgentWatch"]

log = logging.getLogger("loadtrim")

AGENT_SILENT_SECONDS = 5.0
"""The agent's loop turns every second; silent for longer, something is wrong with it."""
SILENT_AGAIN_SECONDS = 60.0
"""An agent that stays silent is complained about this often. Chosen."""
RAISED_AGAIN_SECONDS = 0.1
"""For this long after a call has raised that a partition has no offset, calls look at the others. Source: aiokafka
looks again after its ``retry_backoff_ms``."""


class AgentWatch:
    """Looked at by every call that asks for records; runs in the user's thread."""

    def __init__(self, agent: Agent, thread: AgentThread) -> None:
        self._raised_at: dict[Partition, float] = {}
        """Partition without an offset -> when a call raised that last (boot clock)."""
        self._raised_before = False
        """The look before has raised that: this one lets the others have their turn."""
        self._silent_told_at = -math.inf
        """Time at which the log was last told of a silent agent (boot clock)."""
        self._agent = agent
        self._buffer: RecordBuffer = agent.buffer
        self._thread = thread

    def raise_error(self, wanted: Collection[Partition]) -> None:
        """Raise what the agent has to say, and ask a member that left for want of calls to come back.

        What was in hand is done all the same: the next call was made.

        Args:
            wanted: the partitions that user code asks for; empty: all.

        Raises:
            KafkaError: as ``AIOKafkaConsumer`` would raise it.
        """
        buffer = self._buffer
        if boot_time() - buffer.agent_seen_at > AGENT_SILENT_SECONDS:
            self._silent()
        if buffer.expired:
            buffer.expired = False
            self._thread.post(self._agent.come_back)
        error = buffer.errors.take(wanted)
        if error is not None:
            buffer.asked(boot_time(), wanted)
            # The agent's frames in its traceback still run: what clears them (`unittest` does) would end the agent.
            raise error.with_traceback(None)
        without_offset = self._agent.partitions.without_offset
        if self._raised_before:
            self._raised_before = False
        elif without_offset or self._raised_at:
            self._raise_without_offset(without_offset, wanted)

    def _raise_without_offset(self, partitions: Collection[Partition], wanted: Collection[Partition]) -> None:
        now = boot_time()
        self._raised_at = {p: at for p, at in self._raised_at.items() if p in partitions}
        for partition in sorted(partitions):
            if now - self._raised_at.get(partition, -math.inf) < RAISED_AGAIN_SECONDS:
                continue
            stream = self._buffer.streams.get(partition)
            sought = stream is not None and stream.seeking  # the agent will hear of it in a moment
            if (not wanted or partition in wanted) and not sought:
                self._raised_at[partition], self._raised_before = now, True
                self._buffer.asked(now, wanted)
                raise NoOffsetForPartitionError(TopicPartition(*partition))

    def raise_if_died(self) -> None:
        """After a wait: an agent whose thread has ended is an error from now on."""
        buffer = self._buffer
        if not buffer.closing and not buffer.errors.for_good and not self._thread.alive:
            buffer.fail(
                KafkaError(
                    "The agent's thread has ended, so nothing is fetched and no heartbeat is sent any more; the log "
                    "says why. The group notices by the session timeout. Stop this consumer and start a new one."
                ),
                for_good=True,
            )

    def _silent(self) -> None:
        """An agent that ended is an error here, one that is stuck is said with where, every now and then."""
        if not self._thread.alive:
            raise KafkaError("The agent's thread has ended: nothing is consumed any more. Restart this consumer.")
        self._buffer.agent_seen_at = now = boot_time()  # looked at once per period
        if now - self._silent_told_at < SILENT_AGAIN_SECONDS:
            return
        self._silent_told_at = now
        log.error(
            "The agent's thread has not answered for %.0f s, so heartbeats are late and the group may give this "
            "member's partitions away. Something holds the interpreter's lock, or the agent hangs here:\n%s",
            AGENT_SILENT_SECONDS,
            self._thread.where(),
        )
