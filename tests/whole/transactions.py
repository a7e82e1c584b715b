"""A model of Kafka's transaction coordinator: producers' ids and epochs, open transactions, offsets that wait in them.

A transaction is one entry here, whichever nodes lead its partitions; its end is seen everywhere at once. Source: KIP-98
(transactions), KIP-447 (offsets fenced by the generation). Not modelled: markers in the logs, and readers of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiokafka.record.memory_records import MemoryRecords

from loadtrim_agent.common.partition import Partition

from .kernel import Kernel
from .requests import API, Incoming, encode_answer

__all__ = ["Groups", "TransactionCoordinator"]

NOT_COORDINATOR, INVALID_EPOCH, INVALID_STATE, UNKNOWN_PRODUCER = 16, 47, 48, 49
OUT_OF_ORDER, DUPLICATE = 45, 46
_PRODUCER = struct.Struct(">qhii")
"""Producer id, its epoch, first sequence number, count of records."""
_PRODUCER_AT = 43
Reply = Callable[[bytes], None]


class Groups(Protocol):
    """The coordinators of groups, as transactions need them."""

    def refusal(self, group: str, member: str, generation: int, node: int) -> int:
        """Return the code for a transaction's offsets of this member; 0: they are taken."""

    def commit(self, group: str, member: str, offsets: dict[Partition, int]) -> None:
        """The offsets are the group's."""


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int
    timeout_seconds: float
    open: bool = False
    ended_by: bool | None = None
    """Whether the last transaction was committed, for who asks again; None: there was none."""
    number: int = 0
    """Counts transactions, so that the time limit of an earlier one does nothing."""
    values: list[bytes] = field(default_factory=list)
    group: str = ""
    member: str = ""
    offsets: dict[Partition, int] = field(default_factory=dict)
    sequences: dict[Partition, int] = field(default_factory=dict)
    """Partition -> next sequence number."""


class TransactionCoordinator:
    """All transactional ids of a cluster.

    Args:
        kernel: virtual time.
        groups: takes offsets.
        node: tells the node that coordinates, -1: none does.
    """

    def __init__(self, kernel: Kernel, groups: Groups, node: Callable[[], int]) -> None:
        self._kernel = kernel
        self._groups = groups
        self.node = node
        self._producers: dict[str, _Producer] = {}
        self.on_output: Callable[[bytes], None] = lambda value: None
        """Is told each record that a committed transaction has put out."""
        self.handlers: dict[int, Callable[[Incoming, Reply, int], None]] = {
            API.INIT_PRODUCER_ID: self._init,
            API.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            API.ADD_OFFSETS_TO_TXN: self._add_offsets,
            API.TXN_OFFSET_COMMIT: self._send_offsets,
            API.END_TXN: self._end,
        }

    def unstable(self, group: str) -> set[Partition]:
        """Return the partitions of which an open transaction holds an offset."""
        waiting = [one.offsets for one in self._producers.values() if one.open and one.group == group]
        return set().union(*waiting)

    def produced(self, at: Partition, data: bytes) -> int:
        """A batch comes for a partition; return an error code. :data:`DUPLICATE`: it is there already."""
        producer_id, epoch, sequence, count = _PRODUCER.unpack_from(data, _PRODUCER_AT)
        if producer_id < 0:
            return 0
        producer = next((one for one in self._producers.values() if one.producer_id == producer_id), None)
        if producer is None:
            return UNKNOWN_PRODUCER
        if producer.epoch != epoch:
            return INVALID_EPOCH
        expected = producer.sequences.get(at, 0)
        if sequence != expected:
            return DUPLICATE if sequence < expected else OUT_OF_ORDER
        if not producer.open:
            return INVALID_STATE
        producer.sequences[at] = expected + count
        producer.values += [record.value for record in MemoryRecords(data).next_batch() or ()]
        return 0

    # -- requests ------------------------------------------------------------------------------------------------

    def _init(self, request: Incoming, reply: Reply, node: int) -> None:
        if node != self.node():
            reply(encode_answer(request, 0, NOT_COORDINATOR, -1, -1))
            return
        body = request.body
        producer = self._producers.get(body.transactional_id)
        if producer is None:
            producer = _Producer(len(self._producers), 0, body.transaction_timeout_ms / 1000)
            self._producers[body.transactional_id] = producer
        else:
            self._fence(producer)
        reply(encode_answer(request, 0, 0, producer.producer_id, producer.epoch))

    def _add_partitions(self, request: Incoming, reply: Reply, node: int) -> None:
        code = self._check(request, node)
        if not code:
            self._open(self._producers[request.body.transactional_id])
        reply(
            encode_answer(request, 0, [(topic, [(i, code) for i in indexes]) for topic, indexes in request.body.topics])
        )

    def _add_offsets(self, request: Incoming, reply: Reply, node: int) -> None:
        code = self._check(request, node)
        if not code:
            producer = self._producers[request.body.transactional_id]
            self._open(producer)
            producer.group = request.body.group_id
        reply(encode_answer(request, 0, code))

    def _send_offsets(self, request: Incoming, reply: Reply, node: int) -> None:
        """Of the group's coordinator: the offsets wait for the transaction's end."""
        body = request.body
        code = self._groups.refusal(body.group_id, body.member_id, body.generation_id, node)
        code = code or self._epoch_code(body)
        if not code:
            producer = self._producers[body.transactional_id]
            if producer.open:
                producer.member = body.member_id
                producer.offsets |= {Partition(topic, i): at for topic, rows, _ in body.topics for i, at, *_ in rows}
            else:
                code = INVALID_STATE
        reply(
            encode_answer(
                request, 0, [(topic, [(row[0], code, {}) for row in rows], {}) for topic, rows, _ in body.topics], {}
            )
        )

    def _end(self, request: Incoming, reply: Reply, node: int) -> None:
        code, committed = self._check(request, node), bool(request.body.transaction_result)
        if not code:
            producer = self._producers[request.body.transactional_id]
            if producer.open:
                self._close(producer, committed=committed)
            elif producer.ended_by is not committed:
                code = INVALID_STATE
        reply(encode_answer(request, 0, code))

    # -- transactions --------------------------------------------------------------------------------------------

    def _check(self, request: Incoming, node: int) -> int:
        return NOT_COORDINATOR if node != self.node() else self._epoch_code(request.body)

    def _epoch_code(self, body: Any) -> int:
        producer = self._producers.get(body.transactional_id)
        if producer is None or producer.producer_id != body.producer_id:
            return UNKNOWN_PRODUCER
        return 0 if producer.epoch == body.producer_epoch else INVALID_EPOCH

    def _open(self, producer: _Producer) -> None:
        if producer.open:
            return
        producer.open = True
        producer.number += 1
        self._kernel.scheduler.after(producer.timeout_seconds, self._too_long, producer, producer.number)

    def _too_long(self, producer: _Producer, number: int) -> None:
        if producer.open and producer.number == number:
            self._fence(producer)

    def _fence(self, producer: _Producer) -> None:
        """Whoever uses the id now is out; what it had begun is aborted."""
        if producer.open:
            self._close(producer, committed=False)
        producer.epoch += 1
        producer.sequences.clear()

    def _close(self, producer: _Producer, *, committed: bool) -> None:
        producer.open, producer.ended_by = False, committed
        values, offsets = producer.values, producer.offsets
        producer.values, producer.offsets = [], {}
        if committed:
            for value in values:
                self.on_output(value)
            if offsets:
                self._groups.commit(producer.group, producer.member, offsets)
