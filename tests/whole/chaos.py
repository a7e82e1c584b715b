"""Random schedules for the whole product: load and faults, then healing, then what must hold at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import LoadRecord, MovePlan, PlanRecord
from loadtrim_agent.wire.topic_names import control_topic
from sim.scheduler import START_SECONDS

from .drawn import drawn_options
from .member import GROUP, threads_in_charge
from .programs import LISTENERS
from .requests import API
from .world import Member, Options, World

__all__ = ["NOTHING", "Chaos", "Report", "simulate"]

HEALED_SECONDS = 12.0
"""Beside the rebalance timeout: new metadata, a coordinator found, members restarted. Chosen."""
WORK_OFF_SECONDS = 40.0
SETTLE_SECONDS = 2.0
"""After the last fault, before all is looked at for the first time."""
FOREIGN_STAY_SECONDS_MAX = 8.0
REFUSALS = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
DENIALS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (30, (API.JOIN_GROUP, API.SYNC_GROUP, API.HEARTBEAT, API.OFFSET_COMMIT, API.OFFSET_FETCH)),
    (30, (API.HEARTBEAT,)),
    (29, (API.OFFSET_COMMIT,)),
    (29, (API.OFFSET_FETCH,)),
)
"""GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED."""
GROUP_REQUESTS = (API.JOIN_GROUP, API.SYNC_GROUP, API.HEARTBEAT, API.OFFSET_COMMIT, API.OFFSET_FETCH)
EVICTION_SHARE = 0.01
"""Of the requests of a fetch session: its broker has given its place to another one. Chosen: some five in a run."""
NOTHING = encode(LoadRecord(group="", member="", at=0.0, generation=-1))
"""A record that means nothing to anybody."""
PLAN_SEQUENCE = 1_000_000
"""Above the leader's own."""

BROKER_ASSIGNED_MAX = 2
"""Members of the consumer protocol at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run came to; equal for equal seeds."""

    seed: int
    rounds: int
    virtual_seconds: float
    delivered: int
    repeats: int
    requests: int
    counts: Counter[tuple[str, str]]


class Chaos:
    """Pulls the world's levers at random times."""

    def __init__(self, seed: int, options: Options | None = None, *, trace: bool = False) -> None:
        self.seed = seed
        self.options = options or drawn_options(seed)
        self.world = World(seed, self.options, trace=trace)
        self.rng = self.world.kernel.rng
        self._plans = PLAN_SEQUENCE
        self._growth = random.Random(f"growth {seed}")
        self._loads = random.Random(f"loads {seed}")
        self.world.cluster.group(GROUP).successor = random.Random(f"leaders {seed}").choice
        evictions = random.Random(f"evictions {seed}")
        self.world.cluster.evicts = lambda: self.world.faulty and evictions.random() < EVICTION_SHARE

    def run(self) -> Report:
        """The whole run.

        Raises:
            Violation: something does not hold. StuckError: virtual time does not get on.
        """
        world, kernel, options = self.world, self.world.kernel, self.options
        with kernel.in_charge(), threads_in_charge():
            if "kip848" in dict(options.rates) and self.rng.random() < 0.5:
                self._kip848()  # the group is not ours yet: it is taken
            for _ in range(options.members):
                self._join()
            self._arm()
            kernel.run(options.fault_seconds)
            self._heal()
            kernel.run(SETTLE_SECONDS)
            self._see_healed()
            if any(guest.alive for guest in world.broker_assigned):
                self._guests_leave()
                self._see_healed()
            return Report(
                seed=self.seed,
                rounds=kernel.rounds,
                virtual_seconds=kernel.now - START_SECONDS,
                delivered=world.journal.delivered_count,
                repeats=world.journal.repeats,
                requests=world.cluster.counts.total(),
                counts=world.counts,
            )

    def _see_healed(self) -> None:
        world = self.world
        bound = 2 * self.options.session_timeout_seconds + HEALED_SECONDS + WORK_OFF_SECONDS
        world.kernel.run_until(self._all_done, seconds=bound)
        world.journal.healed()

    def _guests_leave(self) -> None:
        """So far all was well with members of the consumer protocol in the group; it must be without them."""
        for guest in self.world.broker_assigned:
            guest.stop()
        self.world.disturbed()
        self.world.kernel.run(SETTLE_SECONDS)

    def _all_done(self) -> bool:
        journal = self.world.journal
        return journal.owned_once() and all(
            data.done_below == data.end and not journal.must_be_committed(data) for data in journal.partitions.values()
        )

    # -- load ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._again(self.options.records_per_second, self._produce)
        if self.options.moves_per_second:
            self._again(self.options.moves_per_second, self._move)
        for name, rate in self.options.rates:
            self._again(rate, getattr(self, f"_{name}"))

    def _again(self, rate: float, action: Callable[[], None]) -> None:
        def happen() -> None:
            if self.world.faulty:
                action()
                self._again(rate, action)

        self.world.kernel.scheduler.after(self.rng.expovariate(rate), happen)

    def _produce(self) -> None:
        counts = self.world.cluster.topics
        partitions = [Partition(topic, index) for topic in self.options.topics for index in range(counts[topic])]
        for _ in range(self.rng.choice((1, 1, 1, 5))):
            self.world.produce(self.rng.choice(partitions))

    def _join(self) -> None:
        if len(self.world.alive) < self.options.members_max:
            listener = self.rng.choice(sorted(LISTENERS)) if self.options.listeners else ""
            self.world.join(self.rng.choice(self.options.programs), listener)

    def _move(self) -> None:
        members = [m for m in self.world.alive if m.agent is not None and m.agent.snapshot().stable]
        leader = next((m for m in members if m.agent is not None and m.agent.snapshot().is_leader), None)
        if leader is None or leader.agent is None or leader.agent.log is None:
            return
        snapshot = leader.agent.snapshot()
        owners = sorted((snapshot.owners or {}).items())
        if not owners:
            return
        (topic, index), source = self.rng.choice(owners)
        target = self.rng.choice(sorted(snapshot.assignment.members)) if snapshot.assignment else source
        if target == source:
            return
        self._plans += 1
        plan = PlanRecord(
            group=GROUP,
            member=snapshot.member,
            at=0.0,
            generation=snapshot.generation,
            sequence=self._plans,
            moves=(MovePlan(topic=topic, partition=index, source=source, target=target),),
        )
        leader.process.loops[-1].create_task(leader.agent.log.write(plan))

    # -- faults --------------------------------------------------------------------------------------------------

    def _some(self, fault: str) -> Member | None:
        alive = [m for m in self.world.alive if not m.foreign]
        if not alive:
            return None
        member = self.rng.choice(alive)
        phase = member.agent.snapshot().phase.value if member.agent is not None else "starting"
        self.world.counts[fault, phase] += 1
        member.disturbed()
        self.world.note(member.name, f"meets {fault}")
        return member

    def _counted(self, fault: str, seconds: float = 0.0) -> None:
        """A fault meets everybody, and lasts so long."""
        self.world.counts[fault, "-"] += 1
        self.world.disturbed(seconds)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.kernel.scheduler.after(seconds, action)

    def _crash(self) -> None:
        member = self._some("crash")
        if member is not None:
            member.crash()
            self._later(self.rng.uniform(0.0, 3.0), self._join)

    def _stop(self) -> None:
        if len(self.world.alive) > 1:
            member = self._some("stop")
            if member is not None:
                member.stop()

    def _end(self) -> None:
        if len(self.world.alive) > 1:
            member = self._some("end")
            if member is not None:
                member.end()

    def _freeze(self) -> None:
        member = self._some("freeze")
        if member is not None:
            seconds = self.rng.choice((0.3, 1.0, 1.5)) * self.rng.uniform(0.1, 8.0)
            member.process.freeze(seconds)
            member.disturbed(seconds)

    def _suspend(self) -> None:
        member = self._some("suspend")
        if member is not None:
            seconds = self.rng.uniform(0.5, 12.0)
            member.process.freeze(seconds, suspend=True)
            member.disturbed(seconds)

    def _block(self) -> None:
        member = self._some("block")
        if member is not None:
            seconds = self.rng.uniform(0.1, 5.0)
            member.block(seconds)
            member.disturbed(seconds)

    def _cut(self) -> None:
        member = self._some("cut")
        if member is not None:
            for connection in self.world.network.of(member.process):
                if self.rng.random() < 0.5:
                    connection.cut()

    def _cut_late(self) -> None:
        """Connections break, and what was on its way arrives all the same, later: a commit among it, perhaps."""
        member = self._some("cut_late")
        if member is not None:
            for connection in self.world.network.of(member.process):
                connection.late_seconds = self.rng.uniform(0.0, self.options.session_timeout_seconds / 2)
                connection.cut()
            self.world.commits_may_go_back = True

    def _deny(self) -> None:
        """The group, or its offsets, may not be used for a while: ACLs were taken away."""
        code, kinds = self.rng.choice(DENIALS)
        self.world.cluster.refuse = lambda key: code if key in kinds else 0
        seconds = self.rng.uniform(1.0, 8.0)
        self._counted("deny", seconds)
        self._later(seconds, self._accept)

    def _black_hole(self) -> None:
        member = self._some("black_hole")
        if member is not None:
            for connection in self.world.network.of(member.process):
                if self.rng.random() < 0.3:
                    connection.silent = True

    def _slow(self) -> None:
        member = self._some("slow")
        network = self.world.network
        if member is None:
            return
        most = self.rng.uniform(0.01, self.options.session_timeout_seconds / 4)
        network.slow[member.process] = most
        seconds = self.rng.uniform(0.5, 6.0)
        member.disturbed(seconds)
        self._later(seconds, lambda: network.slow.pop(member.process, None) and None)

    def _node_down(self) -> None:
        cluster = self.world.cluster
        node = self.rng.choice(cluster.nodes)
        if cluster.away:
            return
        self._lose(node)
        seconds = self.rng.uniform(0.5, 6.0)
        self._counted("node_down", seconds)
        self._later(seconds, self._restore)

    def _lose(self, node: int) -> None:
        cluster = self.world.cluster
        cluster.away.add(node)
        if node == cluster.coordinator_node:
            cluster.group(GROUP).fail(silent=True)
        cluster.forget_sessions(node)
        self.world.network.down(node)
        cluster.elect()

    def _restore(self) -> None:
        cluster = self.world.cluster
        for node in sorted(cluster.away):
            self.world.network.up(node)
        cluster.away.clear()
        if not cluster.group(GROUP).up:
            cluster.coordinator_node = self.rng.choice(cluster.nodes)
            self._take_over()
        cluster.elect()

    def _failover(self) -> None:
        cluster = self.world.cluster
        group = cluster.group(GROUP)
        if not group.up:
            return
        group.fail(silent=self.rng.random() < 0.5)
        before, cluster.coordinator_node = cluster.coordinator_node, self.rng.choice(cluster.nodes)
        if "kip848" in dict(self.options.rates) and cluster.coordinator_node == before:
            # The one fail-over that nobody could notice; what it may cost such groups is a known limit.
            self.world.network.down(before)
            self.world.network.up(before)
        seconds = self.rng.uniform(0.0, 4.0)
        self._counted("failover", seconds)
        self._later(seconds, lambda: None if group.up or cluster.away else self._take_over())

    def _take_over(self) -> None:
        group = self.world.cluster.group(GROUP)
        classic = group.assigning is None
        group.take_over(loads_seconds=self._loads.choice((0.0, self._loads.uniform(0.0, 1.5))) if classic else 0.0)

    def _remove(self) -> None:
        member = self._some("remove")
        if member is not None and member.agent is not None:
            member.excused_at = self.world.kernel.now
            member.removed = member.agent.snapshot().member
            self.world.cluster.group(GROUP).remove_by_administrator(member.removed)

    def _refuse(self) -> None:
        code = int(self.rng.choice(REFUSALS))
        kinds = self.rng.sample(GROUP_REQUESTS, self.rng.randint(1, 3))

        self.world.cluster.refuse = lambda key: code if key in kinds else 0
        seconds = self.rng.uniform(0.5, 4.0)
        self._counted("refuse", seconds)
        self._later(seconds, self._accept)

    def _accept(self) -> None:
        self.world.cluster.refuse = lambda key: 0

    def _truncate_log(self) -> None:
        """The log loses its end, and may have grown again, past what its readers have read, before anybody asks."""
        log = Partition(control_topic(GROUP), 0)
        store = self.world.cluster.stores.get(log)
        if store is not None:
            self._counted("truncate_log")
            grown = [NOTHING] * self._growth.choice((0, 0, 1, 3, 8))
            self.world.cluster.cut(log, store.end - self.rng.randint(1, 6), *grown)

    def _expire_log(self) -> None:
        store = self.world.cluster.stores.get(Partition(control_topic(GROUP), 0))
        if store is not None:
            self._counted("expire_log")
            store.expire(store.end - self.rng.randint(0, 3))

    def _clock_jump(self) -> None:
        member = self._some("clock_jump")
        if member is not None:
            member.process.clock.skew_seconds += self.rng.choice((-1, 1)) * self.rng.uniform(0.5, 100.0)

    def _foreign(self) -> None:
        if any(m.foreign and m.alive for m in self.world.members):
            return
        self._counted("foreign")
        member = self.world.join("iterates", foreign=True)
        self._later(self.rng.uniform(1.0, FOREIGN_STAY_SECONDS_MAX), member.stop)

    def _kip848(self) -> None:
        """A member of the consumer protocol comes; it leaves after a while, or dies and is expelled later."""
        world = self.world
        if sum(member.alive for member in world.broker_assigned) >= BROKER_ASSIGNED_MAX:
            return
        self._counted("kip848")
        if "foreign" in dict(self.options.rates):
            self._foreign()  # a group of ours alone would refuse it
        member = world.join_broker_assigned()
        end = member.crash if self.rng.random() < 0.3 else member.stop
        self._later(self.rng.uniform(1.0, FOREIGN_STAY_SECONDS_MAX), lambda: end() if world.faulty else None)

    def _lose_offsets(self) -> None:
        """Somebody has deleted what the group had committed."""
        self._counted("lose_offsets")
        self.world.cluster.group(GROUP).offsets.clear()
        self.world.journal.offsets_lost()

    def _enlarge(self) -> None:
        cluster = self.world.cluster
        self._counted("enlarge")
        topic = self._growth.choice(self.options.topics)
        count = cluster.topics[topic] + 1
        cluster.create(topic, count)
        self.world.journal.of(Partition(topic, count - 1))

    # -- the end -------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """The last fault is over: nodes are there, nothing is slow, somebody consumes."""
        world = self.world
        world.faulty = False
        world.disturbed()
        self._accept()
        world.network.slow.clear()
        world.cluster.away.add(-1)  # so that what is restored is restored once
        self._restore()
        for connection in list(world.network.connections):
            if connection.silent:
                connection.cut()
        for member in world.alive:
            member.process.frozen_until = min(member.process.frozen_until, world.kernel.now)
            member.process._thaw()
            if member.foreign:
                member.stop()
        self._revive()

    def _revive(self) -> None:
        """Have somebody consume, as long as the run lasts: what was refused for good ends its member."""
        if not any(m.stopping_at is None for m in self.world.alive):
            self._join()
        self._later(1.0, self._revive)


def simulate(seed: int, options: Options | None = None) -> Report:
    """Play one random schedule; see :meth:`Chaos.run`."""
    return Chaos(seed, options).run()
