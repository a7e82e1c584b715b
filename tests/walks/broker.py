"""A Kafka broker in this process: enough of the protocol for consumers of loadtrim, and no more.

The broker listens on a socket, so that everything on the consumer's side of it is the real code. It has one node, keeps
everything in memory, answers fetches without sessions, and completes a rebalance when every known member has joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any

from aiokafka.protocol import admin, commit, coordination, fetch, group, metadata, offset, produce
from aiokafka.record.default_records import DefaultRecordBatchBuilder

__all__ = ["MemoryBroker", "memory_broker"]

NODE = 1
_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_REBALANCE_IN_PROGRESS = 27
_OFFSET_AT, _COUNT_AT = struct.Struct(">q"), struct.Struct(">i")
_COUNT_POSITION = 57
"""Byte position of the number of records in a record batch, version 2."""
_WHICH = {
    kind.API_KEY: kind
    for kind in (
        produce.ProduceRequest_v3,
        fetch.FetchRequest_v10,
        offset.OffsetRequest_v1,
        metadata.MetadataRequest_v5,
        commit.OffsetCommitRequest_v2,
        commit.OffsetFetchRequest_v3,
        coordination.FindCoordinatorRequest_v0,
        group.JoinGroupRequest_v2,
        group.HeartbeatRequest_v0,
        group.LeaveGroupRequest_v0,
        group.SyncGroupRequest_v0,
        admin.ApiVersionRequest_v0,
    )
}
"""The one version of each request that the broker knows."""

Log = list[tuple[int, bytes]]
"""Record batches with the offset behind each."""


class _Group:
    """One consumer group."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, list[tuple[str, bytes]]] = {}
        """Member -> its protocols with metadata."""
        self.joining: dict[str, asyncio.Future[None]] = {}
        self.assignments: asyncio.Future[dict[str, bytes]] | None = None
        self.committed: dict[tuple[str, int], int] = {}
        self.names = 0

    @property
    def rebalancing(self) -> bool:
        return bool(self.joining)

    def join(self, member: str, protocols: list[tuple[str, bytes]]) -> str:
        if not member:
            self.names += 1
            member = f"member-{self.names}"
        self.members[member] = protocols
        self.joining.setdefault(member, asyncio.get_running_loop().create_future())
        self._complete()
        return member

    def leave(self, member: str) -> None:
        self.members.pop(member, None)
        self.joining.pop(member, None)
        self._complete()

    def _complete(self) -> None:
        if self.joining and self.joining.keys() == self.members.keys():
            self.generation += 1
            self.assignments = asyncio.get_running_loop().create_future()
            waiting, self.joining = self.joining, {}
            for future in waiting.values():
                future.set_result(None)

    def protocol(self) -> str:
        """The first protocol of the first member that all members offer."""
        offered = [[name for name, _ in protocols] for protocols in self.members.values()]
        return next(name for name in offered[0] if all(name in names for names in offered))


class MemoryBroker:
    """Topics and groups of one test.

    Args:
        topics: name -> number of partitions.
    """

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics = dict(topics)
        self.port = 0
        self.logs: dict[tuple[str, int], Log] = defaultdict(list)
        self.groups: dict[str, _Group] = defaultdict(_Group)
        self._appended = asyncio.Condition()
        self._answer: dict[int, Callable[[Any], Any]] = {
            0: self._produce,
            1: self._fetch,
            2: self._offsets,
            3: self._metadata,
            8: self._commit,
            9: self._committed,
            10: self._find_coordinator,
            11: self._join,
            12: self._heartbeat,
            13: self._leave,
            14: self._sync,
            18: self._versions,
        }

    # -- what a test does ----------------------------------------------------------------------------------------

    async def send(self, topic: str, partition: int, *values: bytes | None) -> int:
        """Append records to a partition; return the offset of the first."""
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 20)
        for index, value in enumerate(values):
            builder.append(index, int(time.time() * 1000), None, value, [])
        return await self._append(topic, partition, bytes(builder.build()))

    def play(self, api_key: int, answer: Callable[[Any], Any]) -> None:
        """Have requests of one kind answered by a test; where it answers None, as ever."""
        usual = self._answer[api_key]

        def played(request: Any) -> Any:
            told = answer(request)
            return usual(request) if told is None else told

        self._answer[api_key] = played

    def end(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record."""
        log = self.logs[topic, partition]
        return log[-1][0] if log else 0

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """Return the committed offset, -1 if there is none."""
        return self.groups[group_id].committed.get((topic, partition), -1)

    # -- connections ---------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                data = await reader.readexactly(size)
                key, _, correlation, name_bytes = _HEADER.unpack_from(data)
                request = _WHICH[key].decode(BytesIO(data[_HEADER.size + max(0, name_bytes) :]))
                answer = self._answer[key](request)
                if asyncio.iscoroutine(answer):
                    answer = await answer
                body = _LENGTH.pack(correlation) + answer.encode()
                writer.write(_LENGTH.pack(len(body)) + body)
                await writer.drain()
        writer.close()

    # -- logs ----------------------------------------------------------------------------------------------------

    async def _append(self, topic: str, partition: int, data: bytes) -> int:
        first = self.end(topic, partition)
        batch = bytearray(data)
        _OFFSET_AT.pack_into(batch, 0, first)
        (count,) = _COUNT_AT.unpack_from(batch, _COUNT_POSITION)
        self.logs[topic, partition].append((first + count, bytes(batch)))
        async with self._appended:
            self._appended.notify_all()
        return first

    async def _produce(self, request: Any) -> Any:
        told = []
        for topic, partitions in request.topics:
            entries = [(index, 0, await self._append(topic, index, data), -1) for index, data in partitions]
            told.append((topic, entries))
        return produce.ProduceResponse_v3(topics=told, throttle_time_ms=0)

    async def _fetch(self, request: Any) -> Any:
        asked = [(topic, index, at) for topic, entries in request.topics for index, _, at, *_ in entries]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.max_wait_time / 1000), self._appended:
                await self._appended.wait_for(lambda: any(self.end(t, p) > at for t, p, at in asked))
        topics: dict[str, list[Any]] = {}
        for topic, index, at in asked:
            end = self.end(topic, index)
            data = b"".join(batch for behind, batch in self.logs[topic, index] if behind > at)
            topics.setdefault(topic, []).append((index, 0, end, end, 0, None, data))
        return fetch.FetchResponse_v10(throttle_time_ms=0, error_code=0, session_id=0, topics=list(topics.items()))

    def _offsets(self, request: Any) -> Any:
        def told(topic: str, index: int, at: int) -> tuple[int, int, int, int]:
            return index, 0, -1, 0 if at == -2 else self.end(topic, index)

        topics = [(topic, [told(topic, index, at) for index, at in entries]) for topic, entries in request.topics]
        return offset.OffsetResponse_v1(topics=topics)

    def _metadata(self, request: Any) -> Any:
        names = self.topics if not request.topics else request.topics
        topics = [
            (0, name, False, [(0, index, NODE, [NODE], [NODE], []) for index in range(self.topics[name])])
            if name in self.topics
            else (3, name, False, [])
            for name in names
        ]
        return metadata.MetadataResponse_v5(
            throttle_time_ms=0,
            brokers=[(NODE, "127.0.0.1", self.port, None)],
            cluster_id="memory",
            controller_id=NODE,
            topics=topics,
        )

    # -- groups --------------------------------------------------------------------------------------------------

    def _find_coordinator(self, request: Any) -> Any:
        return coordination.FindCoordinatorResponse_v0(
            error_code=0, coordinator_id=NODE, host="127.0.0.1", port=self.port
        )

    async def _join(self, request: Any) -> Any:
        members = self.groups[request.group]
        member = members.join(request.member_id, request.group_protocols)
        if member in members.joining:
            await members.joining[member]
        leader, protocol = next(iter(members.members)), members.protocol()
        listed = [(name, dict(protocols)[protocol]) for name, protocols in members.members.items()]
        return group.JoinGroupResponse_v2(
            throttle_time_ms=0,
            error_code=0,
            generation_id=members.generation,
            group_protocol=protocol,
            leader_id=leader,
            member_id=member,
            members=listed if member == leader else [],
        )

    async def _sync(self, request: Any) -> Any:
        assignments = self.groups[request.group].assignments
        assert assignments is not None
        if request.group_assignment:
            assignments.set_result(dict(request.group_assignment))
        given = await assignments
        return group.SyncGroupResponse_v0(error_code=0, member_assignment=given.get(request.member_id, b""))

    def _heartbeat(self, request: Any) -> Any:
        code = _REBALANCE_IN_PROGRESS if self.groups[request.group].rebalancing else 0
        return group.HeartbeatResponse_v0(error_code=code)

    def _leave(self, request: Any) -> Any:
        self.groups[request.group].leave(request.member_id)
        return group.LeaveGroupResponse_v0(error_code=0)

    def _commit(self, request: Any) -> Any:
        committed = self.groups[request.consumer_group].committed
        for topic, entries in request.topics:
            for index, at, _ in entries:
                committed[topic, index] = at
        topics = [(topic, [(index, 0) for index, *_ in entries]) for topic, entries in request.topics]
        return commit.OffsetCommitResponse_v2(topics=topics)

    def _committed(self, request: Any) -> Any:
        def told(topic: str, index: int) -> tuple[int, int, str, int]:
            return index, self.committed(request.consumer_group, topic, index), "", 0

        topics = [(topic, [told(topic, index) for index in indexes]) for topic, indexes in request.topics]
        return commit.OffsetFetchResponse_v3(throttle_time_ms=0, topics=topics, error_code=0)

    def _versions(self, request: Any) -> Any:
        known = [(key, kind.API_VERSION, kind.API_VERSION) for key, kind in sorted(_WHICH.items())]
        return admin.ApiVersionResponse_v0(error_code=0, api_versions=known)


@contextlib.asynccontextmanager
async def memory_broker(topics: dict[str, int]) -> AsyncIterator[MemoryBroker]:
    """Run a broker for as long as the block takes."""
    broker = MemoryBroker(topics)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()  # not waited for: from Python 3.12 on that takes until each request is answered
