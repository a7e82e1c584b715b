"""The whole product on a model of Kafka: processes with real consumers and agents, a cluster, a journal."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from loadtrim.assigned_anew import IN_HAND_SECONDS_MAX
from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.group_config import LOADTRIM
from loadtrim_agent.runtime.agent import Agent

from .broker import Cluster
from .broker_assigned import BrokerAssigned
from .journal import LOOK_SECONDS, Journal, Violation
from .kernel import Clock, Kernel, Process
from .member import GROUP, SimConsumer, WatchedGate, foreign_consumer, transactional_producer
from .network import Network
from .programs import (
    FIRST_PROGRAMS,
    FORGETTING,
    LATER_PROGRAMS,
    LISTENER_SECONDS,
    LISTENERS,
    OUTPUT,
    PROGRAMS,
    Forgets,
    Gathered,
    commits_by_hand,
    gathers,
    transacts,
)
from .requests import API

__all__ = ["SECOND_TOPIC", "TOPIC", "Member", "Options", "World"]

TOPIC, SECOND_TOPIC = "load", "others"
DISTURBED_SECONDS = 8.0
"""So long after a fault a partition may stand still: connections and metadata are looked for anew. Chosen."""
HARMLESS = frozenset(("end", "join", "stop"))
"""What happens in a run where nothing goes wrong."""
WORK_OFF_COST_SECONDS_MAX = 0.005
"""Longest that a record takes once the faults are over, so that what waits is worked off."""
DENIED = (29, 30)
"""TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED: a commit that they refuse is not sent again."""
SLICED_OBJECTIVE_SECONDS = 0.25
"""Chosen: two to three records; slicing is off below 0.2 s."""
MIXED_SECONDS = 8.0
"""So long after a foreign member has gone the rules of mixed groups hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is made of."""

    members: int = 3
    members_max: int = 5
    partitions: int = 5
    topics: tuple[str, ...] = (TOPIC,)
    """Topics that the group consumes, each with so many partitions. With several, programs that change their mind
    subscribe some of them, and seek."""
    session_timeout_seconds: float = 6.0
    drain_seconds: float = 2.0
    auto_commit: bool = True
    records_per_second: float = 10.0
    fault_seconds: float = 30.0
    drift_max: float = 0.05
    """Clocks run at most so much faster or slower than the broker's, as a share."""
    cost_seconds_max: float = 0.1
    slow_record_share: float = 0.02
    slow_record_seconds_max: float = 3.0
    moves_per_second: float = 0.5
    listeners: bool = False
    slicing: bool = False
    """Members give partitions away by their own decision; the objective is so short that they have reason to."""
    programs: tuple[str, ...] = FIRST_PROGRAMS
    gathers: str = ""
    """Every program gathers records and forgets them at a rebalance, with listeners of this kind; only without
    auto-commit and transactions."""
    changes_its_mind: bool = False
    """These subscribe anew, pause and go back between two calls."""
    names_offsets: bool = False
    """These name in their commits what they have done."""
    transactions: bool = False
    """Every program puts its offsets into transactions; only without auto-commit."""
    converts_back: bool = True
    """The group is a classic one again when the last member of the consumer protocol has gone, not when all have."""
    metadata_max_age_seconds: float | None = None
    """None: each consumer draws its own, 1 to 5 s, so that what metadata tell is met soon."""
    rates: tuple[tuple[str, float], ...] = ()
    """Fault -> how often, per second."""


class Member:
    """One process of the group with user code; a new one for each start."""

    def __init__(self, world: World, name: str, program: str, listener: str, *, foreign: bool) -> None:
        self.world = world
        self.name = name
        self.program = program
        self.foreign = foreign
        options, rng = world.options, world.kernel.rng
        drift = rng.uniform(-options.drift_max, options.drift_max)
        self.process = Process(world.kernel, name, Clock(rate=1 + drift, skew_seconds=rng.uniform(-2.0, 2.0)))
        self.rng = random.Random(rng.random())
        self.in_hand: dict[Partition, dict[int, float]] = {}
        """Partition -> offset -> when user code was given it; minus infinity: at a time when it was unaware."""
        self.consumer: Any = None
        self.excused_at = -1.0
        """Virtual time of the last moment from which on what it had done may be repeated."""
        self.removed = ""
        """Id under which an administrator removed it from the group."""
        self.transactional_id = ""
        self.stopping_at: float | None = None
        self.left = False
        self._started = False
        self._had_lease = False
        self._granted_to = ""
        """Id under which it has its lease."""
        self._disturbed_at = float("-inf")
        self.waits_for_records = False
        self._listener = listener
        self._stop_task: asyncio.Task[None] | None = None
        self.gathered = Gathered()
        self.topics = options.topics
        """What it subscribes."""
        self.remembers: set[TopicPartition] = set()
        """What it held when it last changed its mind."""
        self._forgetting = None if foreign else FORGETTING.get(options.gathers)
        by_hand = transacts if options.transactions else gathers if options.gathers else commits_by_hand
        programs = {**PROGRAMS, **LATER_PROGRAMS}
        self._work = (foreign and _plain) or (programs[program] if options.auto_commit else by_hand)
        self.task = self.process.run(self._main())
        self.task.add_done_callback(self._ended)

    # -- the process ---------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        options, kernel = self.world.options, self.world.kernel
        kwargs: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "session_timeout_ms": int(options.session_timeout_seconds * 1000),
            "enable_auto_commit": options.auto_commit,
            "auto_commit_interval_ms": 1000,
        }
        if options.metadata_max_age_seconds is not None:
            kwargs["metadata_max_age_ms"] = int(options.metadata_max_age_seconds * 1000)
        if self.foreign:
            self.consumer = foreign_consumer(kernel, self.name, *self.topics, **kwargs)
        else:
            settings: dict[str, Any] = {"drain_seconds": options.drain_seconds}
            if options.slicing:
                settings |= {"slicing": "auto", "sla_seconds": SLICED_OBJECTIVE_SECONDS}
            self.consumer = SimConsumer(kernel, self.name, settings=settings, **kwargs)
            self.subscribe()
        try:
            await self.consumer.start()
            self._started = True
            await self._work(self)
        except Exception:
            self.excused_at = kernel.now  # a call that fails makes nothing done
            raise
        finally:
            self._begins_to_stop()
            await self.consumer.stop()
            self._look_at_stop()
            self.left = True

    def subscribe(self) -> None:
        """Subscribe its topics, with a new listener where it has one."""
        kind = self._forgetting or LISTENERS.get(self._listener)
        self.consumer.subscribe(list(self.topics), listener=kind(self) if kind else None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """User code may be told of the outside's faults, and of nothing else."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self.world.note(self.name, f"ended with {error!r}")
        self.excused_at = self.world.kernel.now
        if not self.foreign and not _expected(error):
            self.world.violated("user", f"user code of {self.name} was told {error!r}")

    def stop(self) -> None:
        """Another task of the process calls ``stop()``, as a shutdown hook does."""
        if self.foreign and not self._started:
            self.crash()  # aiokafka's stop() beside start() leaves a member behind that commits for ever
        elif self._stop_task is None and self.consumer is not None and not self.process.gone:
            self._begins_to_stop()
            self._stop_task = self.process.run(self.consumer.stop())

    def end(self) -> None:
        """SIGTERM: the iteration ends after the record in hand, and user code calls ``stop()``."""
        if self.foreign or self.agent is None:
            self.stop()
        else:
            self._begins_to_stop()
            self.consumer._client.end_iteration(False)

    def crash(self) -> None:
        """``kill -9``."""
        self.excused_at = self.world.kernel.now
        self.in_hand.clear()
        if self.transactional_id:
            self.world.orphaned_ids.append(self.transactional_id)
        self.process.kill()

    def block(self, seconds: float) -> None:
        self.process.block(self.process.loops[0], seconds)

    # -- user code -----------------------------------------------------------------------------------------------

    def cost(self) -> float:
        return self.world.cost(self.rng)

    def took(self, record: Any) -> None:
        partition = Partition(record.topic, record.partition)
        self.world.journal.delivered(self, partition, record.offset)
        taken_at = self.world.kernel.now if not self.unaware else float("-inf")
        self.in_hand.setdefault(partition, {})[record.offset] = taken_at

    def did(self, record: Any) -> None:
        partition = Partition(record.topic, record.partition)
        offsets = self.in_hand.get(partition)
        if offsets is not None:
            offsets.pop(record.offset, None)
            if not offsets:
                del self.in_hand[partition]
        self.world.journal.done(self, partition, record.offset)

    def dropped(self, record: Any) -> None:
        """User code has let go of it; whether it was done is told by the transaction's end."""
        self.in_hand.get(Partition(record.topic, record.partition), {}).pop(record.offset, None)

    def forget(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """User code forgets what it has gathered, of these partitions; None: of all."""
        records, self.gathered.records = self.gathered.records, []
        for record in records:
            if partitions is None or (record.topic, record.partition) in partitions:
                self.dropped(record)
            else:
                self.gathered.records.append(record)

    def works_too_long(self) -> frozenset[Partition]:
        """Return of which partitions it has had something in hand for as long as a rebalance waits, if it waits."""
        options = self.world.options
        if options.auto_commit or options.transactions:
            return frozenset()
        latest = self.world.kernel.now - IN_HAND_SECONDS_MAX / (1 + options.drift_max)
        return frozenset(partition for partition, taken in self.in_hand.items() if min(taken.values()) <= latest)

    def producer(self) -> AIOKafkaProducer:
        """Return a producer: under an id of its own, or of a process that was killed."""
        orphans = self.world.orphaned_ids
        name = orphans.pop() if orphans and self.rng.random() < 0.5 else f"t-{self.name}"
        self.transactional_id = name
        return transactional_producer(self.world.kernel, name)

    async def work(self, record: Any) -> None:
        self.took(record)
        await asyncio.sleep(self.cost())
        self.did(record)

    # -- what is seen of it --------------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent | None:
        return None if self.foreign or self.consumer is None else self.consumer.agent

    @property
    def alive(self) -> bool:
        return not self.process.gone and not self.left and not self.task.done()

    @property
    def has_lease(self) -> bool:
        agent = self.agent
        return (
            agent is not None and not self.process.gone and self.process.boot_time < agent.partitions.gate.lease_until
        )

    @property
    def unaware(self) -> bool:
        """Return whether it was removed from the group and has not heard of that: no protocol could help."""
        agent = self.agent
        return agent is not None and bool(self.removed) and agent.snapshot().member == self.removed

    @property
    def well(self) -> bool:
        """Return whether nothing keeps it from delivering what it owns: not frozen or stopping, no fault has met it.

        A rebalance does not; in a mixed group it does. A lease that is over may come of a fault alone.
        """
        agent = self.agent
        if agent is None or not self.alive or self.process.frozen or self.stopping_at is not None:
            return False
        if self.world.kernel.now < self._disturbed_at + DISTURBED_SECONDS:
            return False
        return not self.world.mixed_lately or (agent.snapshot().stable and self.has_lease)

    @property
    def hears_nothing(self) -> bool:
        """Return whether a connection of its swallows everything: that lasts until it is given up."""
        return any(connection.silent for connection in self.world.network.of(self.process))

    @property
    def listener_seconds(self) -> float:
        """Return how long calls of its listener may hold a partition up."""
        return Forgets.SECONDS if self._forgetting else LISTENER_SECONDS.get(self._listener, 0.0)

    def disturbed(self, seconds: float = 0.0) -> None:
        """A fault meets this member, and lasts so long."""
        self._disturbed_at = max(self._disturbed_at, self.world.kernel.now + seconds)

    @property
    def mixed(self) -> bool:
        """Return whether it makes the group a mixed one, or is in one."""
        agent = self.agent
        return self.foreign or (agent is not None and agent.snapshot().protocol not in ("", LOADTRIM))

    @property
    def ought_to_deliver(self) -> list[Partition]:
        """What it owns and does not give away, by what the protocol says, whether its streams run or not."""
        agent = self.agent
        assigned = agent.snapshot().assigned if agent is not None and self.alive else {}
        return [p for p, entry in assigned.items() if entry.state.delivered and p.topic in self.topics]

    @property
    def delivers(self) -> set[Partition]:
        agent = self.agent
        if agent is None or not self.alive:
            return set()
        return {p for p, stream in agent.buffer.streams.items() if stream.running}

    def position(self, partition: Partition) -> int:
        agent = self.agent
        assert agent is not None
        stream = agent.buffer.streams.get(partition)
        return stream.position if stream is not None and not stream.paused else 1 << 62

    def excused_since(self, at: float) -> bool:
        return self.excused_at >= at or self.unaware

    def look(self) -> None:
        """Note what excuses repeats: a lease that ended, a drain that took too long."""
        agent, world = self.agent, self.world
        if agent is None or self.process.gone:
            return
        buffer = agent.buffer
        if not self._granted_to:
            gate = agent.partitions.gate
            assert isinstance(gate, WatchedGate)
            gate.on_lease = self._leased
            self._granted_to = agent.snapshot().member
        self.waits_for_records = not self.in_hand and buffer.sleep.asleep
        if self.has_lease:
            self._had_lease = True
        elif self._had_lease and not self.left:
            self.excused_at = world.kernel.now
            if world.calm and self.stopping_at is None and agent.condition.failure is None:
                world.violated("I4", f"the lease of {self.name} ended, though nothing had happened")
        if self.unaware:
            self.excused_at = world.kernel.now
        if self.stopping_at is not None:
            self._look_at_stop()
        self._look_for_breakage(agent)

    def _begins_to_stop(self) -> None:
        if self.stopping_at is None:  # the drain's deadline is that of the first call
            self.stopping_at = self.world.kernel.now
        self._look_at_stop()

    def _look_at_stop(self) -> None:
        """Excuse repeats where the drain took too long, or this member's last commit may not be taken."""
        world = self.world
        assert self.stopping_at is not None
        late = world.kernel.now > self.stopping_at + world.options.drain_seconds * 0.9
        if late or world.cluster.refuse(API.OFFSET_COMMIT) in DENIED or self.hears_nothing:
            self.excused_at = world.kernel.now

    def _leased(self, before: float, until: float) -> None:
        """I4: a lease that becomes shorter pauses all that is owned. The coordinator must have forgotten the member."""
        agent, world = self.agent, self.world
        if agent is None:
            return
        granted_to, self._granted_to = self._granted_to, agent.snapshot().member
        gives_up = until < before and self.process.boot_time < before
        if not gives_up or self.stopping_at is not None or agent.condition.failure is not None or world.mixed_lately:
            return
        if granted_to in world.cluster.group(GROUP).members:
            world.violated("I4", f"{self.name} gave up its lease, though it is in the group as {granted_to}")

    def _look_for_breakage(self, agent: Agent) -> None:
        failure = agent.condition.failure
        if isinstance(failure, InvariantError) or (failure is not None and not _expected(failure)):
            self.world.violated("agent", f"the agent of {self.name} failed: {failure!r}")
        errors = self.consumer._client.services._errors
        for where in ("planning", "gathering", "reports", "loads", "leading"):
            if errors[where]:
                self.world.violated("agent", f"{where} broke in {self.name}")


async def _plain(member: Member) -> None:
    async for record in member.consumer:
        await member.work(record)


def _expected(failure: BaseException) -> bool:
    from aiokafka.errors import ConsumerStoppedError, InconsistentGroupProtocolError, KafkaError

    if isinstance(failure, InconsistentGroupProtocolError):
        return False  # all members offer what every other one can speak
    return isinstance(failure, KafkaError | ConsumerStoppedError | OSError | TimeoutError)


class World:
    """See the module's text. Use within ``kernel.in_charge()`` and ``threads_in_charge()``."""

    def __init__(self, seed: int, options: Options, *, trace: bool = False) -> None:
        self.options = options
        self.kernel = Kernel(seed)
        self.cluster = Cluster(self.kernel)
        self.network = Network(self.kernel, self.cluster)
        self.journal = Journal(self)
        self.members: list[Member] = []
        self.broker_assigned: list[BrokerAssigned] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        """(fault, phase of the member that it met)."""
        self.trace: deque[str] | None = deque(maxlen=20_000) if trace else None
        self.faulty = True
        self.calm = {kind for kind, _ in options.rates} <= HARMLESS
        """Nothing goes wrong in this run: no lease runs out."""
        self.commits_may_go_back = False
        """A commit may have reached the coordinator late, after a newer one (docs/protocol.md, rule 13)."""
        self.orphaned_ids: list[str] = []
        """Transactional ids of processes that were killed."""
        self._names = 0
        self._disturbed_at = float("-inf")
        self._mixed_at = float("-inf")
        self._foreign_at = float("-inf")
        for topic in options.topics:
            self.cluster.create(topic, options.partitions)
            for index in range(options.partitions):
                self.journal.of(Partition(topic, index))
        self.cluster.group(GROUP).on_commit = self.journal.committed
        self.cluster.group(GROUP).converts_back = options.converts_back
        if options.transactions:
            self.cluster.create(OUTPUT, 1)
            self.cluster.transactions.on_output = self._put_out
        self._tick()

    # -- levers --------------------------------------------------------------------------------------------------

    def join(self, program: str, listener: str = "", *, foreign: bool = False) -> Member:
        self._names += 1
        member = Member(self, f"{'f' if foreign else 'p'}{self._names}", program, listener, foreign=foreign)
        self.members.append(member)
        if foreign:
            self.note_mixed()  # it may have records in hand before the next look
        self.note(member.name, f"starts: {program} {listener}")
        return member

    def join_broker_assigned(self) -> BrokerAssigned:
        """Start a member of the consumer protocol."""
        self._names += 1
        member = BrokerAssigned(self, f"k{self._names}", TOPIC)
        self.broker_assigned.append(member)
        return member

    def cost(self, rng: random.Random) -> float:
        """Draw how long user code takes for a record."""
        options = self.options
        if self.faulty and rng.random() < options.slow_record_share:
            return rng.uniform(0.0, options.slow_record_seconds_max)
        return rng.uniform(0.001, options.cost_seconds_max if self.faulty else WORK_OFF_COST_SECONDS_MAX)

    def produce(self, partition: Partition) -> None:
        self.journal.produced(partition, self.cluster.put(partition, b"x"))

    def _put_out(self, value: bytes) -> None:
        index, offset = map(int, value.split(b":"))
        self.journal.put_out(Partition(TOPIC, index), offset)

    def disturbed(self, seconds: float = 0.0) -> None:
        """A fault that meets everybody happens, and lasts so long: partitions may stand still for a while."""
        self._disturbed_at = max(self._disturbed_at, self.kernel.now + seconds)

    # -- what is asked -------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Member]:
        return [m for m in self.members if m.alive]

    @property
    def disturbed_lately(self) -> bool:
        return self.kernel.now < self._disturbed_at + DISTURBED_SECONDS

    @property
    def mixed_lately(self) -> bool:
        return self.kernel.now < self._mixed_at + MIXED_SECONDS

    @property
    def foreign_lately(self) -> bool:
        """Return whether aiokafka's own auto-commit may be at work, which commits what is in hand."""
        return self.kernel.now < self._foreign_at + MIXED_SECONDS

    def mixed_since(self, at: float) -> bool:
        """Return whether the group was a mixed one at that time or later."""
        return self._mixed_at >= at

    @property
    def may_go_back(self) -> bool:
        """Return whether a commit below an earlier one is no fault of the product's."""
        return self.mixed_lately or self.commits_may_go_back

    @property
    def _broker_assigns(self) -> bool:
        group = self.cluster.group(GROUP).assigning
        return group is not None and bool(group.members)

    def note(self, who: str, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.kernel.now:10.4f} {who:4} {text}")

    def violated(self, name: str, text: str) -> None:
        """Say that something does not hold; the first one counts."""
        if self.kernel.violation is None:
            self.kernel.violation = Violation(name, f"{text} (at {self.kernel.now:.4f})")

    def note_mixed(self) -> None:
        """The group is a mixed one, or the broker's, now."""
        self._mixed_at = self.kernel.now

    def _tick(self) -> None:
        if any(m.alive and m.mixed for m in self.members) or self._broker_assigns:
            self.note_mixed()
        if any(m.alive and m.foreign for m in self.members):
            self._foreign_at = self.kernel.now
        for member in self.members:
            if not member.left:
                member.look()
        self.journal.look()
        self.kernel.scheduler.after(LOOK_SECONDS / 5, self._tick)
