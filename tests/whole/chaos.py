"""Random schedules for the whole product: load and faults, then healing, then what must hold at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import LoadRecord, MovePlan, PlanRecord
from loadtrim_agent.wire.topic_names import control_topic
from sim.scheduler import START_SECONDS

from .member import GROUP, threads_in_charge
from .programs import FIRST_PROGRAMS, LISTENERS, PROGRAMS
from .requests import API
from .world import TOPIC, Member, Options, World

__all__ = ["NOTHING", "Chaos", "Report", "drawn_options", "simulate"]

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
TELLING_SHARE = 0.1
"""Of the runs. Chosen."""
NAMING_SHARE = 0.1
CHANGING_SHARE = 0.1
"""Of the runs, and half of those with members that gather. Chosen."""
SLICING_SHARE = 0.3
"""Of the runs. Chosen."""
NOTHING = encode(LoadRecord(group="", member="", at=0.0, generation=-1))
"""A record that means nothing to anybody."""
PLAN_SEQUENCE = 1_000_000
"""Above the leader's own."""

RATES: dict[str, float] = {
    "crash": 0.03,
    "stop": 0.02,
    "end": 0.04,
    "join": 0.08,
    "freeze": 0.03,
    "suspend": 0.01,
    "block": 0.03,
    "cut": 0.15,
    "cut_late": 0.04,
    "deny": 0.01,
    "black_hole": 0.05,
    "slow": 0.04,
    "node_down": 0.02,
    "failover": 0.03,
    "remove": 0.02,
    "refuse": 0.03,
    "truncate_log": 0.02,
    "expire_log": 0.02,
    "clock_jump": 0.02,
    "foreign": 0.02,
    "enlarge": 0.01,
}
"""Faults a second in a run that has all of them. Chosen: some 20 in 30 s."""
LOSE_OFFSETS_RATE = 0.05
KIP848_RATE = 0.15
BROKER_ASSIGNED_MAX = 2
"""Members of the consumer protocol at a time."""
LARGE_SHARE = 0.02
"""Of the runs; each costs some four of the others."""
LARGE_MEMBERS, LARGE_PARTITIONS = (21, 30), (41, 64)
LARGE_FAULT_SECONDS = 10.0
NOT_WITH_TRANSACTIONS = ("cut_late", "foreign", "kip848", "lose_offsets")
"""A request of an earlier transaction that comes late is taken for one of the next (KIP-890); others' commits and lost
offsets repeat what was put out."""


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


def drawn_options(seed: int) -> Options:
    """Draw a run's options: mostly small groups, each with some of the faults, some with none."""
    rng = random.Random(f"options {seed}")
    kinds = sorted(RATES)
    chosen = rng.sample(kinds, rng.choice((0, 2, 4, 4, 8, len(kinds))))
    if rng.random() < 0.7:
        chosen = [kind for kind in chosen if kind != "foreign"]
    factor = rng.choice((0.5, 1.0, 2.0))
    rates = {kind: RATES[kind] * factor for kind in chosen}
    for kind in ("end", "join"):
        rates.setdefault(kind, RATES[kind])
    size = rng.choice((1, 1, 1, 1, 1, 2, 5))
    members = rng.randint(2, 4) * size
    partitions = rng.randint(3, 8) * size
    drain_seconds = rng.choice((1.0, 2.0, 5.0))
    auto_commit = rng.random() < 0.8
    options = Options(
        members=members,
        members_max=members + 2,
        partitions=partitions,
        drain_seconds=drain_seconds,
        auto_commit=auto_commit,
        records_per_second=rng.choice((2.0, 10.0, 40.0)),
        fault_seconds=30.0 / size,
        drift_max=rng.choice((0.0, 0.02, 0.05)),
        moves_per_second=rng.choice((0.0, 0.3, 2.0)),
        listeners=rng.random() < 0.3,
        **_drawn_later(seed, rates, auto_commit=auto_commit),
    )
    return _naming(seed, _changing(seed, _gathering(seed, _slicing(seed, _telling(seed, _large(seed, options))))))


def _slicing(seed: int, options: Options) -> Options:
    """Return the options with members that slice, in some of the runs: more load, no listeners where they were rare."""
    rng = random.Random(f"slicing {seed}")
    if rng.random() >= SLICING_SHARE:
        return options
    return replace(options, slicing=True, records_per_second=max(40.0, options.records_per_second))


def _large(seed: int, options: Options) -> Options:
    """Return the options of a large group in some of the runs, drawn apart like what else came later."""
    rng = random.Random(f"size {seed}")
    if rng.random() >= LARGE_SHARE:
        return options
    members, partitions = rng.randint(*LARGE_MEMBERS), rng.randint(*LARGE_PARTITIONS)
    return replace(
        options,
        members=members,
        members_max=members,
        partitions=partitions,
        fault_seconds=LARGE_FAULT_SECONDS,
        moves_per_second=2.0,
    )


def _telling(seed: int, options: Options) -> Options:
    """Return the options with members that say themselves what is done, in some of the runs."""
    if random.Random(f"says what is done {seed}").random() >= TELLING_SHARE:
        return options
    return replace(options, programs=("tells", *options.programs[:2]))


def _changing(seed: int, options: Options) -> Options:
    """Return the options with members that subscribe anew, pause and go back, in some of the runs."""
    rng = random.Random(f"changes it {seed}")
    if rng.random() < CHANGING_SHARE:
        options = replace(options, programs=("changes_its_mind", *options.programs[:2]))
    return replace(options, changes_its_mind=bool(options.gathers) and rng.random() < 0.5)


def _naming(seed: int, options: Options) -> Options:
    """Return the options with members that name the partitions they ask for, in some of the runs."""
    rng = random.Random(f"names partitions {seed}")
    if rng.random() >= NAMING_SHARE:
        return options
    named = rng.choice(("names_partitions", "has_a_task_for_each"))
    return replace(options, programs=(named, *options.programs[:2]))


def _gathering(seed: int, options: Options) -> Options:
    """Return the options with members that gather records and forget them, in half of the runs that could have them."""
    rng = random.Random(f"gathers {seed}")
    if options.auto_commit or options.transactions or rng.random() >= 0.5:
        return options
    gathers = "plain" if rng.random() < 0.5 else "incremental"
    return replace(options, gathers=gathers, names_offsets=rng.random() >= 0.7)


def _drawn_later(seed: int, rates: dict[str, float], *, auto_commit: bool) -> dict[str, Any]:
    """Draw what came to be drawn later, apart: what a seed had before it still has."""
    rng = random.Random(f"more options {seed}")
    programs = tuple(sorted(PROGRAMS)) if rng.random() < 0.3 else FIRST_PROGRAMS
    if rng.random() < 0.1:
        rates["lose_offsets"] = LOSE_OFFSETS_RATE
    transactions = not auto_commit and rng.random() < 0.6
    if rng.random() < 0.1:
        rates["kip848"] = KIP848_RATE
        if rng.random() < 0.4:
            rates["foreign"] = RATES["foreign"] * 3
    converts_back = rng.random() < 0.8
    if transactions:
        for kind in NOT_WITH_TRANSACTIONS:
            rates.pop(kind, None)
    return {
        "programs": programs,
        "transactions": transactions,
        "rates": tuple(sorted(rates.items())),
        "converts_back": converts_back or "kip848" not in rates,
    }


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
        for _ in range(self.rng.choice((1, 1, 1, 5))):
            self.world.produce(self.rng.randrange(self.world.cluster.topics[TOPIC]))

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
        count = cluster.topics[TOPIC] + 1
        cluster.create(TOPIC, count)
        self.world.journal.of(Partition(TOPIC, count - 1))

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
