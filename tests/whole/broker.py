"""A model of a Kafka cluster that speaks Kafka's requests: logs, groups, fetch sessions, long polls, a coordinator.

Not modelled: replication (a log is one log, whoever leads it), quotas, authentication.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.group_config import Code
from sim.coordinator import (
    CommitRequest,
    FetchRequest,
    GroupState,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    SyncReply,
    SyncRequest,
)

from .group import GroupModel
from .kernel import EPOCH_SECONDS, Kernel
from .network import FIRST_PORT, HOST, Connection
from .requests import API, VERSIONS, Incoming, encode_answer, read_request
from .storage import PartitionStore, batch_of
from .transactions import TransactionCoordinator

__all__ = ["Cluster"]

UNKNOWN_TOPIC, OUT_OF_RANGE, NOT_LEADER, COORDINATOR_AWAY, TOPIC_EXISTS = 3, 1, 6, 15, 36
UNSTABLE_OFFSET = 88
TOPIC_DENIED = 29
"""Refuses partitions. Every other code of an OffsetFetch answer refuses the group, and no partition is told then."""
OF_A_TRANSACTION = 1
"""Kind of the coordinator that is looked for."""
TRANSACTIONS = Partition("__transaction_state", 0)
"""Its leader coordinates all transactions."""
NO_SESSION, UNKNOWN_SESSION, WRONG_EPOCH = 0, 70, 71
Reply = Callable[[bytes], None]


@dataclass(slots=True)
class _Session:
    """An incremental fetch session (KIP-227)."""

    epoch: int
    wanted: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    """Partition -> (offset, largest answer in bytes)."""
    told_end: dict[Partition, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Poll:
    """A fetch that waits for records."""

    request: Incoming
    wanted: dict[Partition, tuple[int, int]]
    session: int
    reply: Reply
    client: Connection
    done: bool = False


class Cluster:
    """Nodes 0 to n-1, which share all logs.

    Args:
        kernel: virtual time.
        nodes: how many.
    """

    def __init__(self, kernel: Kernel, nodes: int = 3) -> None:
        self._kernel = kernel
        self.nodes = list(range(nodes))
        self.away: set[int] = set()
        self.stores: dict[Partition, PartitionStore] = {}
        self.topics: dict[str, int] = {}
        self.groups: dict[str, GroupModel] = {}
        self.coordinator_node = 0
        self.counts: Counter[int] = Counter()
        """Requests by API key."""
        self.refuse: Callable[[int], int] = lambda key: 0
        """Error code to answer a group request with, whatever it says; 0: none."""
        self.evicts: Callable[[], bool] = lambda: False
        """Whether a fetch session makes room for another one now."""
        self._sessions: dict[tuple[int, int], _Session] = {}
        """(node, id): a broker keeps its own, in memory."""
        self._session_ids = 0
        self._polls: dict[Partition, list[_Poll]] = {}
        self._led: dict[Partition, int] = {}
        """Partition -> its last leader, where it is not the one that it had first."""
        self.transactions = TransactionCoordinator(kernel, self, lambda: self.leader(TRANSACTIONS))
        self._handlers: dict[int, Callable[[Incoming, Reply, Connection], None]] = {
            API.PRODUCE: self._produce,
            API.FETCH: self._fetch,
            API.LIST_OFFSETS: self._list_offsets,
            API.METADATA: self._metadata,
            API.OFFSET_COMMIT: self._commit,
            API.OFFSET_FETCH: self._committed,
            API.FIND_COORDINATOR: self._find_coordinator,
            API.JOIN_GROUP: self._join,
            API.HEARTBEAT: self._heartbeat,
            API.LEAVE_GROUP: self._leave,
            API.SYNC_GROUP: self._sync,
            API.DESCRIBE_GROUPS: self._describe,
            API.API_VERSIONS: self._versions,
            API.CREATE_TOPICS: self._create_topics,
        }

    # -- the world's levers --------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int, *, append_time: bool = False) -> None:
        """Create a topic, or give it more partitions."""
        for index in range(self.topics.get(topic, 0), partitions):
            self.stores[Partition(topic, index)] = PartitionStore(append_time=append_time)
        self.topics[topic] = partitions

    def put(self, partition: Partition, value: bytes) -> int:
        """Append one record as a producer would; return its offset."""
        now_ms = self._now_ms()
        offset = self.stores[partition].append(batch_of([value], now_ms), now_ms)
        self._feed(partition)
        return offset

    def put_batches(self, batches: Mapping[Partition, Sequence[tuple[float, bytes]]]) -> None:
        """Append a batch of (time, value) to each of these partitions at once, as a producer that lingers does."""
        now_ms = self._now_ms()
        for partition, records in batches.items():
            times = [int((EPOCH_SECONDS + at) * 1000) for at, _ in records]
            self.stores[partition].append(batch_of([value for _, value in records], *times), now_ms)
        for partition in batches:
            self._feed(partition)

    def cut(self, partition: Partition, end: int, *values: bytes) -> None:
        """Lose the records from ``end`` on by an unclean election. The new leader has these before anybody asks."""
        store, now_ms = self.stores[partition], self._now_ms()
        store.truncate(max(store.start, end))
        for value in values:
            store.append(batch_of([value], now_ms), now_ms)
        self.wake_polls()

    def group(self, name: str) -> GroupModel:
        """Return the model of a group's coordinator."""
        if name not in self.groups:
            self.groups[name] = GroupModel(self._kernel, self.topics)
        return self.groups[name]

    def leader(self, partition: Partition) -> int:
        """Return the node that leads a partition, -1: none does now."""
        up = [node for node in self.nodes if node not in self.away]
        if not up:
            return -1
        first = self._first_leader(partition)
        return first if first in up else up[first % len(up)]

    def _first_leader(self, partition: Partition) -> int:
        return (partition.partition + len(partition.topic)) % len(self.nodes)

    def _now_ms(self) -> int:
        return int((EPOCH_SECONDS + self._kernel.now) * 1000)

    # -- requests ------------------------------------------------------------------------------------------------

    def serve(self, node: int, frame: bytes, reply: Reply, client: Connection) -> None:
        """See :class:`whole.network.Serves`."""
        request = read_request(frame)
        self.counts[request.key] += 1
        if request.key in self.transactions.handlers:
            self.transactions.handlers[request.key](request, reply, client.node)
        else:
            self._handlers[request.key](request, reply, client)

    def _versions(self, request: Incoming, reply: Reply, client: Connection) -> None:
        reply(encode_answer(request, 0, [(key, *span) for key, span in sorted(VERSIONS.items())]))

    def _metadata(self, request: Incoming, reply: Reply, client: Connection) -> None:
        asked = request.body.topics
        names = sorted(self.topics) if asked is None or (not asked and request.version == 0) else asked
        brokers = [(node, HOST, FIRST_PORT + node) for node in self.nodes if node not in self.away]
        topics = []
        for topic in names:
            partitions = []
            for index in range(self.topics.get(topic, 0)):
                entry = (0, index, self.leader(Partition(topic, index)), self.nodes, self.nodes)
                partitions.append(entry if request.version < 5 else (*entry, []))
            code = 0 if topic in self.topics else UNKNOWN_TOPIC
            topics.append((code, topic, False, partitions) if request.version else (code, topic, partitions))
        if request.version == 0:
            reply(encode_answer(request, brokers, topics))
            return
        racked = [(*broker, None) for broker in brokers]
        controller = brokers[0][0] if brokers else -1
        fields: list[Any] = [racked, controller, topics]
        if request.version >= 2:
            fields = [racked, "cluster", controller, topics]
        if request.version >= 3:
            fields = [0, *fields]
        reply(encode_answer(request, *fields))

    def _create_topics(self, request: Incoming, reply: Reply, client: Connection) -> None:
        answers = []
        for topic, partitions, *_, configs in request.body.create_topic_requests:
            stamped = dict(configs).get("message.timestamp.type") == "LogAppendTime"
            code = TOPIC_EXISTS if topic in self.topics else 0
            if not code:
                self.create(topic, partitions, append_time=stamped)
            answers.append((topic, code, None) if request.version else (topic, code))
        reply(encode_answer(request, *([0] if request.version >= 2 else []), answers))

    # -- logs ----------------------------------------------------------------------------------------------------

    def _produce(self, request: Incoming, reply: Reply, client: Connection) -> None:
        topics = []
        for topic, partitions in request.body.topics:
            entries: list[tuple[int, ...]] = []
            for index, data in partitions:
                at = Partition(topic, index)
                code = self._code(at, client) or self.transactions.produced(at, bytes(data))
                now_ms = self._now_ms()
                offset = -1 if code else self.stores[at].append(bytes(data), now_ms)
                entry = (index, code, offset, now_ms)
                entries.append(entry if request.version < 5 else (*entry, 0))
                if not code:
                    self._feed(at)
            topics.append((topic, entries))
        reply(encode_answer(request, topics, 0))

    def _code(self, at: Partition, client: Connection) -> int:
        if at not in self.stores:
            return UNKNOWN_TOPIC
        return 0 if self.leader(at) == client.node else NOT_LEADER

    def _list_offsets(self, request: Incoming, reply: Reply, client: Connection) -> None:
        topics = []
        for topic, partitions in request.body.topics:
            entries = []
            for index, timestamp in partitions:
                at = Partition(topic, index)
                code = self._code(at, client)
                entries.append((index, code, *((-1, -1) if code else self._offset(at, timestamp))))
            topics.append((topic, entries))
        reply(encode_answer(request, *([0] if request.version >= 2 else []), topics))

    def _offset(self, at: Partition, timestamp: int) -> tuple[int, int]:
        store = self.stores[at]
        if timestamp == -1:
            return -1, store.end
        if timestamp == -2:
            return -1, store.start
        return store.offset_at(timestamp)

    def _fetch(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body = request.body
        wanted: dict[Partition, tuple[int, int]] = {}
        for topic, partitions in body.topics:
            for index, *numbers in partitions:
                offset = numbers[1] if request.version >= 9 else numbers[0]
                wanted[Partition(topic, index)] = (offset, numbers[-1])
        session = NO_SESSION
        if request.version >= 7 and body.session_epoch != -1:
            code, session, wanted = self._in_session(client.node, body, wanted)
            if code:
                reply(encode_answer(request, 0, code, 0, []))
                return
        poll = _Poll(request, wanted, session, reply, client)
        if not self._ready(poll):
            for at in wanted:
                self._polls.setdefault(at, []).append(poll)
            self._kernel.scheduler.after(body.max_wait_time / 1000, self._answer_poll, poll)
        else:
            self._answer_poll(poll)

    def _in_session(
        self, node: int, body: Any, wanted: dict[Partition, tuple[int, int]]
    ) -> tuple[int, int, dict[Partition, tuple[int, int]]]:
        """(error code, session id, all that it fetches)."""
        if body.session_epoch == 0:
            self._sessions.pop((node, body.session_id), None)
            self._session_ids += 1
            self._sessions[node, self._session_ids] = _Session(1, dict(wanted))
            return 0, self._session_ids, wanted
        if self.evicts():
            self._sessions.pop((node, body.session_id), None)
        session = self._sessions.get((node, body.session_id))
        if session is None:
            return UNKNOWN_SESSION, 0, {}
        if session.epoch != body.session_epoch:
            return WRONG_EPOCH, 0, {}
        session.epoch += 1
        session.wanted.update(wanted)
        for topic, indexes in body.forgotten_topics_data:
            for index in indexes:
                session.wanted.pop(Partition(topic, index), None)
                session.told_end.pop(Partition(topic, index), None)
        return 0, body.session_id, dict(session.wanted)

    def _ready(self, poll: _Poll) -> bool:
        """Return whether there is something to answer at once."""
        for at, (offset, _) in poll.wanted.items():
            code = self._code(at, poll.client)
            if code or offset != self.stores[at].end:
                return True
        return poll.request.body.max_wait_time == 0

    def _feed(self, at: Partition) -> None:
        """Answer the polls that wait for this partition."""
        for poll in self._polls.pop(at, []):
            self._answer_poll(poll)

    def forget_sessions(self, node: int) -> None:
        """A broker is gone, and its memory with it."""
        self._sessions = {key: session for key, session in self._sessions.items() if key[0] != node}

    def elect(self) -> None:
        """Brokers have come or gone: where another one leads now, a new epoch begins."""
        for at, store in self.stores.items():
            before, now = self._led.get(at, self._first_leader(at)), self.leader(at)
            if now not in (before, -1):
                self._led[at] = now
                store.epoch += 1
        self.wake_polls()

    def wake_polls(self) -> None:
        """Answer every poll: leaders have changed."""
        for at in list(self._polls):
            self._feed(at)

    def _answer_poll(self, poll: _Poll) -> None:
        if poll.done:
            return
        poll.done = True
        for at in poll.wanted:
            waiting = self._polls.get(at)
            if waiting is not None and poll in waiting:
                waiting.remove(poll)
        session = self._sessions.get((poll.client.node, poll.session))
        left = poll.request.body.max_bytes
        topics: dict[str, list[Any]] = {}
        for at, (offset, most) in poll.wanted.items():
            code, end, data = self._read(at, offset, min(most, max(1, left)), poll.client)
            left -= len(data)
            if session is not None:
                if not data and not code and session.told_end.get(at) == end:
                    continue
                session.told_end[at] = end
            start = self.stores[at].start if at in self.stores else -1
            known = [at.partition, code, end, end]
            if poll.request.version >= 5:
                known.append(start)
            topics.setdefault(at.topic, []).append((*known, [], data))
        answer: list[Any] = [0, list(topics.items())]
        if poll.request.version >= 7:
            answer = [0, 0, poll.session, list(topics.items())]
        poll.reply(encode_answer(poll.request, *answer))

    def _read(self, at: Partition, offset: int, max_bytes: int, client: Connection) -> tuple[int, int, bytes]:
        code = self._code(at, client)
        if code:
            return code, -1, b""
        store = self.stores[at]
        if not store.start <= offset <= store.end:
            return OUT_OF_RANGE, store.end, b""
        return 0, store.end, store.read(offset, max_bytes)

    # -- groups --------------------------------------------------------------------------------------------------

    def _find_coordinator(self, request: Incoming, reply: Reply, client: Connection) -> None:
        of_transaction = request.version and request.body.coordinator_type == OF_A_TRANSACTION
        node = self.transactions.node() if of_transaction else self.coordinator_node
        code = COORDINATOR_AWAY if node in self.away or node < 0 else 0
        where = (node, HOST, FIRST_PORT + node) if not code else (-1, "", -1)
        reply(encode_answer(request, *([0, code, None] if request.version else [code]), *where))

    def _here(self, group: str, client: Connection) -> GroupModel:
        """Return the group's coordinator, or one that answers that it is not (NOT_COORDINATOR)."""
        model = self.group(group)
        if client.node == self.coordinator_node:
            return model
        elsewhere = GroupModel(self._kernel, self.topics)
        elsewhere.up = False
        return elsewhere

    def _join(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body, version = request.body, request.version
        rebalance_ms = body.rebalance_timeout if version else body.session_timeout
        asked = JoinRequest(
            body.member_id,
            tuple(name for name, _ in body.group_protocols),
            tuple(body.group_protocols),
            body.session_timeout / 1000,
            rebalance_ms / 1000,
        )

        def answer(told: JoinReply) -> None:
            members = [(m, None, data) if version >= 5 else (m, data) for m, data in told.members]
            fields = [told.code, told.generation, told.protocol, told.leader, told.member, members]
            reply(encode_answer(request, *([0] if version >= 2 else []), *fields))

        code = self.refuse(request.key)
        if code:
            answer(JoinReply(code))
        else:
            self._here(body.group, client).serve(asked, answer)

    def _sync(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body = request.body
        asked = SyncRequest(body.member_id, body.generation_id, dict(body.group_assignment))

        def answer(told: SyncReply) -> None:
            data = told.answer if isinstance(told.answer, bytes) else b""
            reply(encode_answer(request, *([0] if request.version else []), told.code, data))

        code = self.refuse(request.key)
        if code:
            answer(SyncReply(code))
        else:
            self._here(body.group, client).serve(asked, answer)

    def _heartbeat(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body = request.body

        def answer(code: int) -> None:
            reply(encode_answer(request, *([0] if request.version else []), int(code)))

        code = self.refuse(request.key)
        if code:
            answer(code)
        else:
            self._here(body.group, client).serve(HeartbeatRequest(body.member_id, body.generation_id), answer)

    def _leave(self, request: Incoming, reply: Reply, client: Connection) -> None:
        def answer(code: int) -> None:
            reply(encode_answer(request, *([0] if request.version else []), int(code)))

        self._here(request.body.group, client).serve(LeaveRequest(request.body.member_id), answer)

    def _commit(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body = request.body
        offsets = {Partition(topic, index): offset for topic, rows in body.topics for index, offset, _ in rows}

        def answer(codes: dict[Partition, int]) -> None:
            topics: dict[str, list[tuple[int, int]]] = {}
            for at, code in codes.items():
                topics.setdefault(at.topic, []).append((at.partition, code))
            reply(encode_answer(request, *([0] if request.version >= 3 else []), list(topics.items())))

        code = self.refuse(request.key)
        if code:
            answer(dict.fromkeys(offsets, code))
            return
        asked = CommitRequest(body.consumer_id, body.consumer_group_generation_id, offsets)
        self._here(body.consumer_group, client).serve(asked, answer)

    def _committed(self, request: Incoming, reply: Reply, client: Connection) -> None:
        body = request.body
        asked = [Partition(entry[0], index) for entry in body.topics for index in entry[1]]

        def answer(offsets: dict[Partition, int] | int) -> None:
            code = offsets if isinstance(offsets, int) else 0
            of_partitions = code if code == TOPIC_DENIED else 0
            of_group = code - of_partitions
            unstable = self.transactions.unstable(body.consumer_group) if request.version >= 7 else ()
            topics: dict[str, list[Any]] = {}
            for at in () if of_group and request.version >= 2 else asked:
                offset = offsets.get(at, -1) if isinstance(offsets, dict) else -1
                if request.version >= 6:
                    waits = at in unstable and body.require_stable
                    entry = (at.partition, offset, -1, "", UNSTABLE_OFFSET if waits else of_partitions, {})
                else:
                    entry = (at.partition, offset, "", code)
                topics.setdefault(at.topic, []).append(entry)
            if request.version >= 6:
                rows = [(topic, entries, {}) for topic, entries in topics.items()]
                reply(encode_answer(request, 0, rows, of_group, {}))
            else:
                fields = [list(topics.items()), *([of_group] if request.version >= 2 else [])]
                reply(encode_answer(request, *([0] if request.version >= 3 else []), *fields))

        code = self.refuse(request.key)
        if code:
            answer(code)
        else:
            self._here(body.consumer_group, client).serve(FetchRequest(tuple(asked)), answer)

    def refusal(self, group: str, member: str, generation: int, node: int) -> int:
        """See :class:`whole.transactions.Groups`."""
        model = self.group(group)
        if node != self.coordinator_node or not model.up:
            return int(Code.NOT_COORDINATOR)
        if model.loads:
            return int(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return model.refusal(member, generation, transactional=True)

    def commit(self, group: str, member: str, offsets: dict[Partition, int]) -> None:
        """See :class:`whole.transactions.Groups`."""
        for at, offset in offsets.items():
            self.group(group).commit_offset(member, at, offset)

    def _describe(self, request: Incoming, reply: Reply, client: Connection) -> None:
        rows = []
        for name in request.body.groups:
            group = self.group(name)
            told = group.protocol if group.state is GroupState.STABLE else ""
            code = Code.COORDINATOR_LOAD_IN_PROGRESS if group.loads else Code.NONE
            rows.append((code, name, group.state.value, "consumer", told, []))
        reply(encode_answer(request, rows))
