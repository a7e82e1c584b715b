"""Random schedules: load and faults, then healing, then what must hold at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import MovePlan, ReleaseRecord

from .controllog import AppendFate
from .coordinator import CommitRequest, FetchRequest
from .member import SimMember
from .network import Fate
from .options import FaultOptions, SimOptions, drawn_options
from .scheduler import START_SECONDS
from .world import World

__all__ = ["Chaos", "Report", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one run came to; equal for equal seeds."""

    seed: int
    steps: int
    virtual_seconds: float
    records: int
    counts: dict[str, int]


class Chaos:
    """Pulls the world's levers at random times."""

    def __init__(self, seed: int, options: SimOptions | None = None, *, trace: bool = False) -> None:
        self.options = options or drawn_options(seed)
        self.seed = seed
        self.world = World(seed, self.options, trace=trace)
        self.rng = self.world.scheduler.rng
        self._on = True
        """Whether faults are still made."""
        self._last_crash_only = True
        self._slices = random.Random(f"slices of {seed}")
        self._takeovers = random.Random(f"takeovers of {seed}")
        world = self.world
        world.cost_seconds = self._cost
        world.listener_seconds = lambda: self.rng.choice((0.0, 0.0, 0.0, self.rng.uniform(0.0, 0.3)))
        world.lookup_seconds = lambda: self.rng.uniform(0.002, 0.02)
        world.metadata_seconds = lambda: self.rng.uniform(1.0, 4.0)
        world.network.fate_of = self._request_fate
        world.log.fate_of = self._append_fate
        world.log.read_seconds = lambda: self.rng.uniform(0.0005, self.options.load.log_seconds_max)
        world.coordinator.successor = random.Random(f"leaders of {seed}").choice
        world.coordinator.refuses_sync = lambda: self._chance(self.options.faults.sync_refused_share)

    def run(self) -> Report:
        """The whole run.

        Raises:
            Violation: an invariant does not hold.
        """
        world, options = self.world, self.options
        world.calm = options.faults == FaultOptions()
        for _ in range(options.load.members):
            self._start_member()
        self._arm()
        world.run(options.fault_seconds)
        self._on = False
        world.heal()
        world.calm = True
        # A move in progress when it is looked at is no fault: let it end.
        world.run(options.group.drain_seconds + options.load.slow_record_seconds_max)
        world.check_healed()
        self._work_off()
        records = sum(data.end for data in world.data.values())
        return Report(
            seed=self.seed,
            steps=world.scheduler.steps,
            virtual_seconds=world.scheduler.now - START_SECONDS,
            records=records,
            counts=dict(sorted(world.counts.items())),
        )

    # -- load ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        load, faults = self.options.load, self.options.faults
        rates: list[tuple[float, Callable[[], None]]] = [
            (load.records_per_second, self._produce),
            (load.moves_per_second, self._move),
            (load.plans_per_second, self._plan),
            (load.joins_per_second, self._join),
            (load.leaves_per_second, self._leave),
            (load.enlargements_per_second, self._enlarge),
            (load.subscription_changes_per_second, self._resubscribe),
            (load.foreign_joins_per_second, self._foreign),
            (faults.crashes_per_second, self._crash),
            (faults.freezes_per_second, self._freeze),
            (faults.stalls_per_second, self._stall),
            (faults.removals_per_second, self._remove),
            (faults.failovers_per_second, self._failover),
            (faults.reader_lags_per_second, self._lag),
            (faults.gaps_per_second, self._gap),
            (faults.log_failures_per_second, self._fail_log),
        ]
        for rate, action in rates:
            if rate > 0:
                self._again(rate, action)
        if load.slices_per_second > 0:
            self._slice_again(load.slices_per_second)

    def _slice_again(self, rate: float) -> None:
        """Slice at random times, drawn apart from all else."""

        def happen() -> None:
            if self._on:
                self._slice()
                self._slice_again(rate)

        self.world.scheduler.after(self._slices.expovariate(rate), happen)

    def _slice(self) -> None:
        """A slice at any bound: behind, at, or beyond what is there; with a time that is right, or far too short."""
        rng, alive = self._slices, self.world.alive
        owners = [m for m in alive if m.user.slots]
        if not owners:
            return
        member, target = rng.choice(owners), rng.choice(alive)
        partition = rng.choice(sorted(member.user.slots))
        if rng.random() < 0.1:
            member.drop_slice(partition)
            return
        until = member.user.slots[partition].position + rng.choice((-1, 0, 0, 1, 1, 2, 3, 6))
        member.slice(partition, target.member, until, rng.choice((0.0, 0.01, 0.1, 0.5, 2.0)))

    def _again(self, rate: float, action: Callable[[], None]) -> None:
        def happen() -> None:
            if self._on:
                action()
                self._again(rate, action)

        self.world.scheduler.after(self.rng.expovariate(rate), happen)

    def _start_member(self) -> SimMember:
        topics = tuple(sorted(self.world.topics))
        if self.options.load.mixed_subscriptions and self.rng.random() < 0.5:
            topics = (self.rng.choice(topics),)
        usable = not (self.options.load.foreign_joins_per_second and self.rng.random() < 0.1)
        member = self.world.join(topics, log_usable=usable)
        if not usable and self.rng.random() < 0.5:
            self.world.scheduler.after(self.rng.uniform(0.0, 5.0), member.find_log)
        return member

    def _produce(self) -> None:
        self.world.produce(self.rng.choice(sorted(self.world.data)), self.rng.choice((1, 1, 1, 3)))

    def _some(self) -> SimMember | None:
        alive = self.world.alive
        return self.rng.choice(alive) if alive else None

    def _move(self) -> None:
        member, target = self._some(), self._some()
        if member is not None and target is not None and member.machine.snapshot().assigned:
            member.move(self.rng.choice(sorted(member.machine.snapshot().assigned)), target.member)

    def _plan(self) -> None:
        leaders = [m for m in self.world.alive if m.machine.snapshot().is_leader and not (m.frozen or m.stalled)]
        alive = [m for m in self.world.alive if m.member]
        for leader in leaders:
            moves = []
            for _ in range(self.rng.randint(1, 3)):
                source, target = self.rng.choice(alive), self.rng.choice(alive)
                assigned = sorted(source.machine.snapshot().assigned)
                if assigned:
                    partition = self.rng.choice(assigned)
                    moves.append(
                        MovePlan(
                            topic=partition.topic,
                            partition=partition.partition,
                            source=source.member,
                            target=target.member,
                        )
                    )
            leader.write_plan(tuple(moves))

    def _join(self) -> None:
        if len(self.world.alive) < self.options.load.members_max:
            self._start_member()

    def _leave(self) -> None:
        member = self._some()
        if member is not None and len(self.world.alive) > 1:
            member.leave(release=self.rng.random() < 0.8, come_back=self.rng.random() < 0.3)

    def _enlarge(self) -> None:
        topic = self.rng.choice(sorted(self.world.topics))
        if self.world.topics[topic] < 8:
            self.world.enlarge(topic, self.world.topics[topic] + 1)

    def _resubscribe(self) -> None:
        member = self._some()
        if member is not None:
            every = sorted(self.world.topics)
            member.subscribe(tuple(every) if self.rng.random() < 0.5 else (self.rng.choice(every),))

    def _foreign(self) -> None:
        if sum(not f.gone for f in self.world.foreign.values()) < 2:
            member = self.world.join_foreign()
            stay = self.rng.uniform(1.0, self.options.load.foreign_stay_seconds_max)
            self.world.scheduler.after(stay, member.leave)

    def _cost(self) -> float:
        if self._chance(self.options.load.slow_record_share):
            return self.rng.uniform(0.0, self.options.load.slow_record_seconds_max)
        return self.rng.uniform(0.001, self.options.load.cost_seconds_max)

    # -- faults --------------------------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self._on and share > 0 and self.rng.random() < share

    def _request_fate(self, source: str, request: Any) -> Fate:
        rng, faults = self.rng, self.options.faults
        slowest = self.options.load.network_seconds_max
        there, back = rng.uniform(0.0005, slowest), rng.uniform(0.0005, slowest)
        if not self._on:
            return Fate(request_seconds=there, answer_seconds=back)
        if self._chance(faults.slow_share):
            there, back = rng.uniform(0, faults.slow_seconds_max), rng.uniform(0, faults.slow_seconds_max)
        once = isinstance(request, CommitRequest | FetchRequest)
        if self._chance(faults.break_share):
            breaks = rng.uniform(0.0, 0.5)
            kind = rng.choice(("before", "after", "late"))
            if kind == "late" and not once:
                return Fate(breaks_seconds=breaks, late_seconds=rng.uniform(0.0, faults.late_seconds_max))
            if kind == "after" and not (once and there > breaks):
                return Fate(request_seconds=there, answered=False, breaks_seconds=max(breaks, there))
            return Fate(arrives=False, breaks_seconds=breaks)
        if self._chance(faults.black_hole_share):
            return Fate(request_seconds=there, arrives=rng.random() < 0.5, answered=False)
        copy = None
        if not once and self._chance(faults.repeat_share):
            copy = rng.uniform(0.0, faults.late_seconds_max)
        return Fate(request_seconds=there, answer_seconds=back, copy_seconds=copy)

    def _append_fate(self, source: str, record: Record) -> AppendFate:
        rng, faults = self.rng, self.options.faults
        slowest = self.options.load.log_seconds_max
        land, back = rng.uniform(0.0005, slowest), rng.uniform(0.0005, slowest)
        member = self.world.members.get(source)
        if not self._on:
            return AppendFate(land_seconds=land, answer_seconds=back)
        if member is not None and self.world.scheduler.now < member.reader.blocked_until and rng.random() < 0.8:
            return AppendFate(lands=False, acknowledged=False, answer_seconds=rng.uniform(0.1, 2.0))
        if self._chance(faults.append_lost_share):
            return AppendFate(lands=False, acknowledged=False, answer_seconds=rng.uniform(0.01, 1.0))
        if self._chance(faults.append_unknown_share):
            return AppendFate(land_seconds=land, acknowledged=False, answer_seconds=rng.uniform(0.01, 1.0))
        if self._chance(faults.append_late_share):
            late = rng.uniform(0.0, faults.late_seconds_max)
            return AppendFate(land_seconds=late, acknowledged=False, answer_seconds=rng.uniform(0.0, late))
        copy = rng.uniform(0.0, faults.late_seconds_max) if self._chance(faults.append_repeated_share) else None
        vanishes = isinstance(record, ReleaseRecord) and self._chance(faults.append_vanished_share * 4)
        return AppendFate(land_seconds=land, answer_seconds=back, copy_seconds=copy, vanishes=vanishes)

    def _crash(self) -> None:
        member = self._some()
        if member is not None:
            member.crash()
            if len(self.world.alive) < 1 or self.rng.random() < 0.7:
                self.world.scheduler.after(self.rng.uniform(0.0, 3.0), self._join)

    def _pause_seconds(self) -> float:
        return self.rng.choice((0.2, 1.0, 1.0)) * self.rng.uniform(0.1, self.options.faults.pause_seconds_max)

    def _freeze(self) -> None:
        member = self._some()
        if member is not None and not (member.frozen or member.stalled):
            member.freeze(self._pause_seconds())

    def _stall(self) -> None:
        member = self._some()
        if member is not None and not (member.frozen or member.stalled):
            member.stall(self._pause_seconds())

    def _remove(self) -> None:
        member = self._some()
        if member is not None and member.member in self.world.coordinator.members:
            member.removed = member.member
            self.world.coordinator.remove_by_administrator(member.member)

    def _failover(self) -> None:
        coordinator = self.world.coordinator
        if coordinator.up:
            coordinator.fail(silent=self.rng.random() < 0.5)
            down = self.rng.uniform(0.0, self.options.faults.failover_seconds_max)
            loads = self._takeovers.choice((0.0, self._takeovers.uniform(0.0, 1.0)))
            elsewhere = self._takeovers.random() < 0.7
            take_over = partial(self.world.take_over, loads_seconds=loads, elsewhere=elsewhere)
            self.world.scheduler.after(down, take_over)

    def _lag(self) -> None:
        member = self._some()
        if member is not None:
            seconds = self.rng.uniform(0.0, self.options.faults.reader_lag_seconds_max)
            member.reader.block(self.world.scheduler.now + seconds)

    def _gap(self) -> None:
        if self.rng.random() < 0.5:
            self.world.log.truncate(self.rng.randint(1, 8))
        else:
            member = self._some()
            if member is not None:
                behind = self.rng.uniform(0.0, 1.0)
                member.reader.block(self.world.scheduler.now + behind)
                self.world.scheduler.after(behind, member.reader.skip_to_end)

    def _fail_log(self) -> None:
        member = self._some()
        if member is not None:
            member.fail_log(self.rng.uniform(0.5, self.options.faults.log_failure_seconds_max))

    # -- the end -------------------------------------------------------------------------------------------------

    def _work_off(self) -> None:
        """Everything produced is done and committed in the end."""
        world = self.world
        world.cost_seconds = lambda: 0.002
        world.run(self.options.drain_out_seconds)
        for partition, data in sorted(world.data.items()):
            if not any(partition.topic in m.machine.snapshot().topics for m in world.alive):
                continue
            if data.done_below < data.end:
                world.violated("I2", f"{partition} ends at {data.end}, done is only what lies below {data.done_below}")
            committed = world.coordinator.offsets.get(partition, 0)
            if self.options.group.auto_commit and data.end and committed != data.end:
                world.violated("I2", f"{partition} is done up to {data.end} and committed at {committed}")


def simulate(seed: int, options: SimOptions | None = None) -> Report:
    """One random schedule.

    Raises:
        Violation: an invariant does not hold; InvariantError: a machine contradicts itself.
    """
    return Chaos(seed, options).run()
