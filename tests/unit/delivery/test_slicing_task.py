"""One member looks at its queues, with a real machine and record buffer: what it counts, and when it passes work on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRebalanceListener
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import MemberSettings
from loadtrim_agent.delivery import slicing_task
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.listener import IncrementalRebalanceListener, Listener
from loadtrim_agent.delivery.loads_task import LoadsTask
from loadtrim_agent.delivery.metering_task import MeteringTask
from loadtrim_agent.delivery.oldest_first import OldestFirst
from loadtrim_agent.delivery.own_arrivals import Arrived
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from loadtrim_agent.delivery.slicing_task import LOOK_SECONDS, SlicingTask, pause_seconds, turn_of
from loadtrim_agent.kafka.fetch.chunk import Chunk, frame
from loadtrim_agent.metering.cost import Cost
from loadtrim_agent.metering.meter import MeterConfig, MeterSnapshot
from loadtrim_agent.metering.readings import PartitionSnapshot, PartitionState, PartitionWork
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.planning.slicing import SlicingOff
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.runtime.observer import AgentObserver
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LoadRecord, PlanRecord, PromiseRecord, ReleaseRecord
from loadtrim_agent.wire.telemetry_records import Capacity, Untold
from sim.driver import GROUP, ME, OTHER, Driver, release
from unit.kafka.fetch.batches import batch

P0, P1 = Partition("orders", 0), Partition("orders", 1)
COST = 0.01
OBJECTIVE = 0.5


def chunk(partition: Partition, first: int, count: int, *, age: float = 0.0) -> Chunk:
    stamp = int((wall_time() - age) * 1000)
    framed = frame(
        partition,
        first,
        batch(first, [(n, stamp, b"") for n in range(first, first + count)]),
        (),
        committed_only=False,
        check_crcs=True,
    )
    assert framed is not None
    return framed


class Fetcher:
    """A fetcher that knows the ends that the test says."""

    def __init__(self) -> None:
        self.ends: dict[Partition, int] = {}

    def end_offset(self, partition: Partition) -> int | None:
        return self.ends.get(partition)

    def end_offset_at(self, partition: Partition) -> float | None:
        return wall_time() if partition in self.ends else None


class House:
    """A member of a real machine with P0 and P1, and one other member that has nothing to do."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.driver = Driver(auto_commit=settings.pop("auto_commit", True))
        self.driver.now = boot_time()
        others = {} if settings.pop("alone", False) else {OTHER: ()}
        self.driver.running(0, 1, offset=0, owns={ME: (0, 1), **others})
        self.commands: list[c.Command] = []
        self.buffer = RecordBuffer(loop, loop)
        self.buffer.lease_until = boot_time() + 1_000.0
        self.fetcher = Fetcher()
        self.listener = Listener(loop, ErrorBoundary(AgentObserver()), DeliveryGate(self.buffer))
        metrics = Metrics(CollectorRegistry(), "g", "c", OBJECTIVE)
        self.metering = MeteringTask(MeterConfig(group=GROUP, sla_seconds=OBJECTIVE), metrics)
        given = {"slicing": "auto", "sla_seconds": OBJECTIVE, **settings}
        self.loads = LoadsTask(self.metering)
        self.loads._told_at = math.inf
        self.task = SlicingTask(MemberSettings(**given), self.metering, self.loads)
        self.task.attach(self, self.listener, self.buffer, self.fetcher)  # type: ignore[arg-type]
        self.works = {partition: PartitionWork(COST, 20 * COST, 0.0) for partition in (P0, P1)}
        self.metering.meter.work_of = self.works.get  # type: ignore[method-assign]
        self.metered()
        self.task.entered()
        self.task._work.soft_at = boot_time()
        for partition in (P0, P1):
            stream = Stream(partition, self.driver.acquisition_of(partition), 0)
            stream.running = True
            self.buffer.put(stream)
            self.task.acquired(stream, None)
            self.arrived(partition).acquired_at -= 10.0

    # As the agent is to the task.

    def snapshot(self) -> MachineSnapshot:
        return self.driver.machine.snapshot()

    def feed(self, event: e.Event) -> None:
        self.driver.now = event.now
        self.commands += self.driver.machine.handle(event)

    # What tests do.

    def arrived(self, partition: Partition) -> Arrived:
        found = self.task._arrivals.of(partition)
        assert found is not None
        return found

    def metered(self, **fields: Any) -> None:
        blank = self.metering.meter.snapshot(wall_time())
        values = {"capacity": Capacity(1.0), **fields}
        self.metering.snapshot: MeterSnapshot = replace(blank, **values)

    def read(self, record: Record) -> None:
        self.driver.now = boot_time()
        self.driver.read(record)
        if isinstance(record, LoadRecord):
            self.task.loaded(record)
        elif isinstance(record, PromiseRecord):
            self.task.promised(record)
        elif isinstance(record, ReleaseRecord):
            self.task.released(record.key, record.target)

    def loaded(self, member: str = OTHER, work: float = 0.0) -> None:
        self.read(LoadRecord(group=GROUP, member=member, at=0.0, generation=1, work=work, rate=0.0, capacity=1.0))

    def fetched(self, partition: Partition, count: int, first: int = 0, *, age: float = 0.0) -> None:
        stream, more = self.buffer.streams[partition], chunk(partition, first, count, age=age)
        self.buffer.feed(stream, more)
        self.task.fetched(stream, more, self.fetcher.ends.get(partition, more.end))

    def promises(self) -> list[PromiseRecord]:
        records = [command.record for command in self.commands if isinstance(command, c.AppendCommand)]
        return [record for record in records if isinstance(record, PromiseRecord)]

    def bounds(self) -> list[tuple[Partition, int]]:
        return [(each.partition, each.until) for each in self.commands if isinstance(each, c.BoundCommand)]


async def test_what_will_not_be_done_in_time_is_passed_on() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    assert house.task.look()
    (promise,) = house.promises()
    assert promise.target == OTHER
    assert 0.0 < promise.work <= 0.4 + 1e-6
    assert house.bounds() == [(promise.key, promise.until)]
    assert house.task.looks >= 1


async def test_what_is_kept_is_done_here_first() -> None:
    """The other one is too busy for a whole partition: the bound is where the excess begins."""
    house = House()
    house.loaded(work=0.25)
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    house.task.look()
    (promise,) = house.promises()
    waits = {P0: 30, P1: 40}[promise.key]
    assert 0 < promise.until < waits
    assert promise.work == pytest.approx((waits - promise.until) * COST)
    assert promise.seconds == pytest.approx(promise.until * COST)


async def test_a_burst_is_told_before_anything_is_passed_on() -> None:
    """How much came to others was guessed by how much came here, and keys fall by chance: it was off by a quarter."""
    house = House()
    house.loads._told_at = -math.inf
    house.loaded()
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    assert house.task.look()
    assert house.promises() == []
    assert house.loads._soon.is_set()
    assert house.task.look()
    assert len(house.promises()) == 1, "once: others tell it meanwhile, too"


async def test_who_is_alone_tells_nobody_and_passes_nothing_on() -> None:
    house = House(alone=True)
    house.loads._told_at = -math.inf
    house.fetched(P0, 60)
    assert house.task.look(), "the oldest is delivered first"
    assert not house.loads._soon.is_set()
    assert (house.promises(), house.task.looks) == ([], 0)


async def test_little_that_comes_at_once_is_told_and_not_looked_at() -> None:
    house = House()
    house.loads._told_at = -math.inf
    house.fetched(P0, 10)
    assert not house.task.look()
    assert house.loads._soon.is_set()
    assert house.task.looks == 0


async def test_the_first_burst_after_a_quiet_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waited at the last look was taken to wait still, though nothing had been looked at since."""
    house = House()
    house.loads._told_at = -math.inf
    house.fetched(P0, 10)
    assert not house.task.look(), "little waits, so the next look is at what is fetched next"
    house.loads._soon.clear()
    house.buffer.take_many((), None)
    house.buffer.take_many((), None)
    at = boot_time() + 0.2
    monkeypatch.setattr(slicing_task, "boot_time", lambda: at)
    house.fetched(P0, 12, 10)
    assert not house.task.look()
    assert house.loads._soon.is_set()


async def test_what_waits_since_a_quiet_look_is_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.loads._told_at = -math.inf
    house.fetched(P0, 10)
    house.task.look()
    house.loads._soon.clear()
    at = boot_time() + 0.02
    monkeypatch.setattr(slicing_task, "boot_time", lambda: at)
    house.fetched(P0, 1, 10)
    house.task.look()
    assert not house.loads._soon.is_set()


async def test_what_waited_before_slices_were_off_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.loads._told_at = -math.inf
    house.fetched(P0, 70)
    house.task.look()
    monkeypatch.setattr(house.task, "off", lambda: SlicingOff.REBALANCE)
    house.task.look()
    monkeypatch.undo()
    house.loads._soon.clear()
    house.task.look()
    assert house.loads._soon.is_set(), "it may have been worked off meanwhile, and come anew"


async def test_what_came_with_a_partition_came_to_its_last_owner() -> None:
    house = House()
    house.arrived(P0).acquired_at = boot_time()
    house.fetched(P0, 20, age=0.3)
    assert not house.task._work._came
    house.fetched(P1, 20)
    assert [seconds for _, seconds in house.task._work._came] == [pytest.approx(0.5)], "at 40 records/s of both"


def coming_to(target: str, rate: float) -> PromiseRecord:
    return PromiseRecord(
        group=GROUP, member=OTHER, at=0.0, generation=1, topic="orders", partition=2, version=0, source=OTHER,
        target=target, work=0.1, rate=rate,
    )  # fmt: skip


async def test_what_arrives_in_a_promised_partition_is_known_when_it_comes() -> None:
    house = House()
    house.driver = Driver()
    house.driver.running(0, 1, offset=0, owns={ME: (0, 1), OTHER: (2,), "m3": ()})
    house.task.entered()
    promise = coming_to(ME, 0.3)
    assert house.task.work_rate_of(promise.key) is None
    house.read(promise)
    house.read(msgspec.structs.replace(promise))  # an append may land twice
    assert [house.task.work_rate_of(promise.key) for _ in range(2)] == [0.3, None], "for this one handoff"
    house.read(msgspec.structs.replace(promise, taken_back=True))
    house.read(msgspec.structs.replace(promise, at=1.0))
    house.read(msgspec.structs.replace(promise, at=1.0, taken_back=True))
    assert house.task.work_rate_of(promise.key) is None, "it was taken back"
    house.read(release(1, 2, 0, OTHER, ME))
    assert house.task.work_rate_of(promise.key) is None


async def test_who_does_not_subscribe_the_topic_keeps_nobody_from_giving() -> None:
    """It was the idlest, was refused, and was chosen again at each look."""
    house = House()
    house.driver = Driver()
    house.driver.running(0, 1, offset=0, owns={ME: (0, 1), OTHER: (), "m3": ()})
    membership = house.driver.machine.membership
    assert membership.assignment is not None
    members = dict(membership.assignment.members)
    members[OTHER] = msgspec.structs.replace(members[OTHER], topics=("another",))
    membership.assignment = msgspec.structs.replace(membership.assignment, members=members)
    house.task.entered()
    house.loaded()
    house.loaded("m3", work=0.05)
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    house.task.look()
    assert [promise.target for promise in house.promises()] == ["m3"]


async def test_what_arrives_in_what_was_promised_to_others_or_before_is_not() -> None:
    house = House()
    house.driver = Driver()
    house.driver.running(0, 1, offset=0, owns={ME: (0, 1), OTHER: (2,), "m3": ()})
    house.task.entered()
    house.read(coming_to("m3", 0.3))
    assert house.task.work_rate_of(coming_to("m3", 0.3).key) is None
    house.task._arrivals.expect(P1, 0.3)
    house.task.entered()
    assert house.task.work_rate_of(P1) is None, "promises end with their generation"


async def test_all_in_time_is_left_alone_and_little_is_not_looked_at() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 10)
    assert not house.task.look(), "a fifth of the objective"
    assert house.task.looks == 0
    house.fetched(P1, 10)
    assert house.task.look()
    assert house.promises() == []


@pytest.mark.looptime
async def test_the_oldest_head_is_first_while_much_waits() -> None:
    """Round by round again as soon as little waits."""
    house = House()
    house.metered(partitions=costing(COST))
    turns = house.buffer.turns
    running = asyncio.create_task(house.task.run())
    house.fetched(P0, 10)
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert turns.oldest_first is None
    house.fetched(P1, 10)
    streams = house.buffer.streams
    await seen(lambda: turns.oldest_first == turn_of(house.metering.snapshot, OBJECTIVE))
    assert house.buffer.streams is not streams, "the run of now ends"
    streams = house.buffer.streams
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert house.buffer.streams is streams, "once"
    house.buffer.take_many((), None)
    house.buffer.take_many((), None)
    await seen(lambda: turns.oldest_first is None)
    running.cancel()


async def seen(condition: Callable[[], bool]) -> None:
    """Wait for a look: where the machine is busy one takes longer, and the next one comes later."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError("it was not seen")


def costing(cost: float) -> tuple[PartitionSnapshot, ...]:
    """Return what is known of both partitions, where only the first has done records."""
    return tuple(
        PartitionSnapshot(
            partition=partition,
            state=PartitionState.RUNNING,
            position=0,
            committed=0,
            end_offset=0,
            lag_records=0,
            lag_seconds=0.0,
            arrival_rate=20.0,
            cost=known,
            queue_seconds=0.0,
        )
        for partition, known in ((P0, Cost(cost, 0.0)), (P1, None))
    )


@pytest.mark.parametrize(("cost", "records"), [(1.0, 1), (0.006, 3)])
async def test_a_turn_of_the_oldest_is_as_long_as_a_look(cost: float, records: int) -> None:
    house = House()
    house.metered(partitions=costing(cost), clock_offset_seconds=3.0)
    assert turn_of(house.metering.snapshot, OBJECTIVE) == OldestFirst(records, OBJECTIVE, 3.0)


@pytest.mark.parametrize("cost", [0.0003, 1e-5, 0.0])
async def test_where_turns_are_short_the_oldest_is_not_looked_for(cost: float) -> None:
    """With 1,000 partitions it took as long as a record of 10 us, for nothing."""
    house = House()
    house.metered(partitions=costing(cost))
    assert turn_of(house.metering.snapshot, OBJECTIVE) is None


async def test_what_is_not_fetched_yet_counts() -> None:
    house = House()
    house.loaded()
    house.fetcher.ends[P0] = 60
    house.fetched(P0, 10)
    house.fetched(P1, 10)
    assert {each.partition: each.work for each in house.task._own()} == pytest.approx({P0: 0.6, P1: 0.1})
    assert house.task.look()
    assert [each.key for each in house.promises()] == [P1], "nobody could do the other one in time"


async def test_a_batch_in_hand_counts_for_what_is_left_of_it() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 60)
    batch_in_hand = house.buffer.take_many((P0,), 60)
    assert len(batch_in_hand[P0]) == 60
    house.fetched(P1, 10)
    own = {each.partition: each.work for each in house.task._own()}
    assert own[P0] == pytest.approx(0.6, abs=0.05)
    assert own[P1] == pytest.approx(0.1)
    await asyncio.sleep(0.1)
    assert {each.partition: each.work for each in house.task._own()}[P0] == pytest.approx(0.5, abs=0.05)


async def test_what_is_promised_is_as_good_as_gone() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    house.task.look()
    (promise,) = house.promises()
    house.read(promise)
    house.task.look()
    assert len(house.promises()) == 1
    assert {each.partition: each.work for each in house.task._own()}[promise.key] == pytest.approx(promise.until * COST)


async def test_what_was_promised_to_a_member_counts_for_it() -> None:
    house = House()
    house.driver = Driver()
    house.driver.now = boot_time()
    house.driver.running(0, 1, offset=0, owns={ME: (0, 1), OTHER: (2,)})
    house.task.entered()
    house.loaded()
    house.fetched(P0, 20)
    house.fetched(P1, 15)
    house.task.look()
    assert house.promises() == []
    house.read(
        PromiseRecord(
            group=GROUP,
            member=OTHER,
            at=0.0,
            generation=1,
            topic="orders",
            partition=2,
            version=0,
            source=OTHER,
            target=ME,
            until=5,
            work=0.3,
        )
    )
    house.task.look()
    assert len(house.promises()) == 1


async def test_work_that_has_gone_is_the_other_ones() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    house.task.look()
    (promise,) = house.promises()
    house.read(promise)
    house.read(release(1, promise.partition, 0, ME, OTHER))
    assert [moved.work for moved in house.task._work._moved[OTHER]] == [promise.work]
    assert [moved.work for moved in house.task._work._moved[ME]] == [-promise.work]


@pytest.mark.parametrize("why", ["silent", "victim", "leaving"])
async def test_who_is_given_nothing(why: str) -> None:
    house = House()
    if why != "silent":
        house.loaded()
    if why == "victim":
        house.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, victims=(OTHER,)))
    if why == "leaving":
        house.driver.machine.peers.announce_leaving(OTHER)
        house.driver.feed(e.TickEvent)
    house.fetched(P0, 30)
    house.fetched(P1, 40)
    house.task.look()
    assert house.promises() == []


async def test_a_partition_that_user_code_paused_stays() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 60)
    house.buffer.streams[P0].paused = True
    house.fetched(P1, 15)
    house.task.look()
    assert house.promises() == []


async def test_producers_clocks_that_are_behind_make_nothing_late() -> None:
    """Nothing was there when the broker was asked last, so that these cannot be an hour old."""
    house = House()
    house.loaded()
    house.fetched(P0, 1)
    house.fetched(P0, 20, 1, age=3_600.0)
    house.fetched(P1, 15)
    assert house.task.look()
    assert house.promises() == []


async def test_producers_clocks_that_are_ahead_are_clamped() -> None:
    house = House()
    house.fetched(P0, 20, age=-3_600.0)
    assert house.arrived(P0).newest_at <= wall_time()


async def test_a_difference_is_halved_for_comfort_and_seldom_in_a_group() -> None:
    house = House()
    house.loaded()
    house.fetched(P0, 20)
    house.fetched(P1, 15)
    house.task.look()
    assert house.promises() == []
    house.task._work.soft_at = float("-inf")
    house.task.look()
    (promise,) = house.promises()
    assert promise.soft
    house.read(promise)
    assert house.task._work.soft_at > 0.0


async def test_an_old_backlog_is_as_old_as_it_says() -> None:
    house = House()
    house.fetched(P0, 20, age=3_600.0)
    assert wall_time() - house.arrived(P0).newest_at == pytest.approx(3_600.0, abs=1.0)


class Plain(ConsumerRebalanceListener):  # type: ignore[misc]
    """Told of all that is held, whenever something comes or goes."""

    def on_partitions_assigned(self, assigned: object) -> None: ...

    def on_partitions_revoked(self, revoked: object) -> None: ...


class Incremental(IncrementalRebalanceListener):
    """Told of what comes and goes."""

    def on_partitions_assigned(self, assigned: object) -> None: ...

    def on_partitions_revoked(self, revoked: object) -> None: ...


@pytest.mark.parametrize(
    ("off", "settings"),
    [
        (SlicingOff.SETTING, {"slicing": "off"}),
        (SlicingOff.SHADOW, {"mode": "shadow"}),
        (SlicingOff.MANUAL_COMMITS, {"auto_commit": False}),
        (SlicingOff.OBJECTIVE, {"sla_seconds": 0.19}),
        (SlicingOff.NOTHING, {}),
    ],
)
async def test_where_it_is_off_by_what_is_set(off: SlicingOff, settings: dict[str, Any]) -> None:
    house = House(**settings)
    assert house.task.off() is off
    house.loaded()
    house.fetched(P0, 60)
    house.fetched(P1, 60)
    assert house.task.look() == (off is SlicingOff.NOTHING)


async def test_where_it_is_off_by_what_happens() -> None:
    house = House()
    task = house.task
    house.listener.target = Plain()
    assert task.off() is SlicingOff.LISTENER
    house.listener.target = Incremental()
    assert task.off() is SlicingOff.NOTHING
    house.metered(untold=Untold.KEPT)
    assert task.off() is SlicingOff.UNTOLD
    house.metered(untold=Untold.BRIEFLY)
    assert task.off() is SlicingOff.NOTHING
    house.driver.feed(e.LogFailedEvent, failed=True)
    assert task.off() is SlicingOff.LOG
    assert task.lasting_off() is SlicingOff.NOTHING, "one report of it would start a replica"
    house.driver.feed(e.LogFailedEvent, failed=False)
    assert task.off() is SlicingOff.NOTHING
    house.driver.heartbeat_answered(27)
    assert task.off() is SlicingOff.REBALANCE
    assert task.lasting_off() is SlicingOff.NOTHING, "the group is not sized anew for it"
    house.driver.into(2, **{ME: (0, 1), OTHER: ()})
    assert task.off() is SlicingOff.NOTHING
    house.driver.feed(e.LeaveWantedEvent, deadline=house.driver.now + 5.0)
    assert task.off() is SlicingOff.LEAVING


async def test_it_is_off_where_new_owners_restore_for_a_good_part_of_the_objective() -> None:
    house = House()
    stream = house.buffer.streams[P0]
    for _ in range(4):
        house.task.acquired(stream, 0.6 * OBJECTIVE)
    assert house.task.off() is SlicingOff.NOTHING, "as long as few are measured"
    house.task.acquired(stream, 0.6 * OBJECTIVE)
    assert house.task.off() is house.task.lasting_off() is SlicingOff.HANDOFFS
    for _ in range(6):
        house.task.acquired(stream, 0.02)
    assert house.task.off() is SlicingOff.NOTHING, "the median of the last ones counts"


async def test_nothing_is_looked_at_in_an_idle_group() -> None:
    house = House()
    looks: list[bool] = []
    look = house.task.look

    def counted() -> bool:
        looks.append(look())
        return looks[-1]

    house.task.look = counted  # type: ignore[method-assign]
    running = asyncio.create_task(house.task.run())
    await asyncio.sleep(5 * LOOK_SECONDS)
    assert looks == []
    house.loaded()
    house.fetched(P0, 2)
    await asyncio.sleep(6 * LOOK_SECONDS)
    assert looks == [False], "once for what was fetched"
    house.fetched(P0, 40, 2)
    async with asyncio.timeout(10.0):  # a look in which the machine stood still is rested for
        while len(looks) <= 3:  # noqa: ASYNC110 - what is waited for happens in the code under test
            await asyncio.sleep(LOOK_SECONDS)
    assert looks[-1]
    running.cancel()


async def test_a_member_that_does_not_slice_has_no_task() -> None:
    house = House(slicing="off")
    await asyncio.wait_for(house.task.run(), 1.0)
    house.fetched(P0, 60)
    assert house.arrived(P0).end == -1


def test_looks_that_take_long_are_taken_less_often() -> None:
    """2.3 ms in a group of a hundred: each 20 ms they would take a ninth of a core."""
    assert pause_seconds(0.000_3) == LOOK_SECONDS
    assert pause_seconds(0.000_3, 0.5) == 0.1, "nobody is there to pass anything on to"
    assert pause_seconds(0.000_3, 0.05) == LOOK_SECONDS
    assert pause_seconds(0.002_3) == pytest.approx(0.002_3 / 0.03)
