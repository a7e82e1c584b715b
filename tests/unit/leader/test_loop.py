"""The leader's loop contains what breaks: a record costs itself, a plan that breaks costs what was read before."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.errors import KafkaTimeoutError
from msgspec import structs
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from loadtrim_agent.common import error_boundary
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import AgentTasks
from loadtrim_agent.kafka.control_log import TelemetryEntry
from loadtrim_agent.leader import loop
from loadtrim_agent.leader.instances import Instances
from loadtrim_agent.leader.loop import GroupView, LeaderLoop, PlannerThread
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.planning.planner import Planner
from loadtrim_agent.planning.values import GroupState, MemberState, PlanConfig
from loadtrim_agent.protocol.slices import SlicesView
from loadtrim_agent.wire.ownership_records import MemberEntry, MovePlan, PromiseRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord
from unit.planning.virtual_group import T, partition

CONFIG = PlanConfig(group="g")
NO_SLICES = SlicesView(able=True, own={}, promises={})
P0, P1, P2 = (Partition("t", number) for number in range(3))
STATE = GroupState(generation=1, leader="a", members={"a": MemberState(joined_at=T)}, owners={partition(0): "a"})


def report(sequence: int, member: str = "a", **more: Any) -> ReportRecord:
    more.setdefault("slots_start", T + sequence)
    more.setdefault("slots", (0.05,) * 10)
    entries = (PartitionReport(topic=partition(0).topic, partition=0, arrived=100, cost_mean=0.005),)
    return ReportRecord(group="g", member=member, at=T, sequence=sequence, generation=1, partitions=entries, **more)


async def test_a_record_that_breaks_the_planner_is_skipped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = Planner.observe

    def fragile(self: Planner, record: ReportRecord, *rest: Any) -> None:
        if record.member == "evil":
            raise ZeroDivisionError
        observe(self, record, *rest)

    monkeypatch.setattr(Planner, "observe", fragile)
    planner = PlannerThread(CONFIG)
    for second in range(5):
        planner.observe(TelemetryEntry(report(second, slots=(0.05,) * 10), T + second + 1, replayed=False))
        planner.observe(TelemetryEntry(report(second, "evil"), T + second + 1, replayed=False))
    decision = await planner.decide(T + 5, STATE)
    assert decision.rate > 0.0, f"all of the others counts: {decision.reason}"
    assert planner.left_out() == {"planner_record": 5}
    planner.observe(TelemetryEntry(report(6, slots_start=T + 1e6), T + 6, replayed=False))
    await planner.decide(T + 6, STATE)
    assert planner.left_out() == {"report_slot_time": 1}, "told once"


async def test_names_in_reports_do_not_pile_up() -> None:
    snapshot = SimpleNamespace(
        assignment=None, owners={}, partition_counts={}, member="a", generation=1, leaving=frozenset(),
        manual_override=None, slices=NO_SLICES,
    )  # fmt: skip
    group: Any = SimpleNamespace(snapshot=lambda: snapshot)
    instances = Instances("pod-1")
    view = GroupView(group, instances)
    for number in range(100):
        view.observe(report(number, f"stranger-{number}"))
    view.state({}, None, None)
    assert len(instances._said) <= 16
    assert view.weights == {}


def test_what_is_advised_or_promised_is_on_its_way_until_its_owner_has_given_it_away() -> None:
    """A member that slices gives away what a plan has named, too: to another member, and before the plan is read."""
    members = {
        name: MemberEntry(attempt=1, topics=("t",), owns=(("t", (number,)),)) for number, name in enumerate("abc")
    }
    promise = PromiseRecord(
        group="g", member="b", at=T, generation=1, topic="t", partition=1, source="b", target="c", version=1, turn=0,
        work=0.5, until=7,
    )  # fmt: skip
    snapshot = SimpleNamespace(
        assignment=SimpleNamespace(members=members), owners={P0: "a", P1: "b", P2: "c"}, partition_counts={"t": 3},
        member="a", generation=1, leaving=frozenset(), manual_override=None,
        slices=SlicesView(able=True, own={}, promises={P1: promise}),
    )  # fmt: skip
    group: Any = SimpleNamespace(snapshot=lambda: snapshot)
    view = GroupView(group, Instances("pod-1"))
    move = MovePlan(topic="t", partition=0, source="a", target="b", reason="")
    view.advised(DecisionRecord(
        group="g", member="a", at=T, generation=1, sequence=1, outcome="move", reason="", moves=(move,)
    ))  # fmt: skip
    assert view.state({}, None, None).in_flight == {P0: "b", P1: "c"}
    snapshot.owners, snapshot.slices = {P0: "c", P1: "c", P2: "c"}, NO_SLICES
    assert view.state({}, None, None).in_flight == {}, "its owner gave it to another one"


class BrokenPlans:
    """Stands for the planner's thread: every decision breaks."""

    def __init__(self, _: PlanConfig) -> None:
        self.seen: list[TelemetryEntry] = []
        PLANNERS.append(self)

    def observe(self, entry: TelemetryEntry) -> None:
        self.seen.append(entry)

    async def decide(self, *_: object) -> DecisionRecord:
        raise OverflowError


PLANNERS: list[BrokenPlans] = []


@pytest.mark.looptime
async def test_planning_that_broke_does_not_read_the_same_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last 300 s were replayed, so that planning broke every 10 s for five minutes."""
    clock = SimpleNamespace(now=T)
    monkeypatch.setattr(loop, "wall_time", lambda: clock.now)
    monkeypatch.setattr(loop, "PlannerThread", BrokenPlans)
    monkeypatch.setattr(LeaderLoop, "_decide_while_clock_runs", lambda self, _c, _t, planner: planner.decide())
    since: list[float] = []

    def telemetry(begin: float) -> object:
        since.append(begin)
        return SimpleNamespace(read=_nothing)

    counts: list[str] = []
    boundary = ErrorBoundary(SimpleNamespace(error=counts.append))
    config = PlanConfig(group="g", baseline_topic="")
    group: Any = SimpleNamespace(log=SimpleNamespace(telemetry=telemetry), queries=None)
    nothing: Any = SimpleNamespace()
    leader = LeaderLoop(config, {}, group, Instances("a"), nothing, nothing, boundary, AgentTasks(nothing, boundary))
    leader.last = DecisionRecord(
        group="g", member="a", at=T, generation=1, sequence=41, outcome="none", reason="because"
    )
    PLANNERS.clear()
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        task = asyncio.create_task(leader._guarded())
        await asyncio.sleep(5.0)
        clock.now = T + 10.0
        await asyncio.sleep(10.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert counts == ["planning", "planning"]
    assert _levels(caplog, "Planning broke") == ["ERROR", "DEBUG"], "the same again, as it may for ever"
    assert since == [T - 300.0, T]
    assert [[entry.record for entry in planner.seen] for planner in PLANNERS] == [[leader.last], [leader.last]]


async def _nothing(_: object) -> None:
    return None


async def test_telemetry_of_another_group_is_passed_over() -> None:
    """Groups may share a control topic, and whoever may write to it may name any of them."""
    heard: list[TelemetryEntry] = []
    own, foreign = report(1), msgspec.structs.replace(report(2, "stranger"), group="victim")
    told = DecisionRecord(
        group="victim",
        member="a",
        at=T,
        generation=1,
        sequence=9,
        outcome="none",
        reason="because",
        state={"wanted": 9},
    )
    entries = [TelemetryEntry(record, T, replayed=True) for record in (foreign, told, own)]

    async def read(hear: Any) -> None:
        for entry in entries:
            hear(entry)

    boundary = ErrorBoundary(SimpleNamespace(error=lambda _: None))
    nothing: Any = SimpleNamespace()
    leader = LeaderLoop(CONFIG, {}, nothing, Instances("a"), nothing, nothing, boundary, AgentTasks(nothing, boundary))
    tail: Any = SimpleNamespace(read=read)
    planner: Any = SimpleNamespace(observe=heard.append)
    await leader._listen(tail, planner)
    assert [entry.record for entry in heard] == [own]


def led(reconciler: Any, **settings: Any) -> LeaderLoop:
    """A leader that asks this reconciler, and has nothing else."""
    nothing: Any = SimpleNamespace()
    boundary = ErrorBoundary(SimpleNamespace(error=lambda _: None))
    tasks = AgentTasks(nothing, boundary)
    config = structs.replace(CONFIG, **settings)
    return LeaderLoop(config, {}, nothing, Instances("a"), nothing, reconciler, boundary, tasks)


async def test_a_scaler_is_told_that_a_rollout_is_under_way() -> None:
    """One that lowers to no fewer than work would publish the surplus, and its autoscaler make it last."""
    asked: list[Any] = []
    leader = led(SimpleNamespace(want=asked.append, observed=lambda replicas, instances: None), templated="pod")
    decision = DecisionRecord(
        group="g", member="a", at=T, generation=1, sequence=1, outcome="none", reason="", replicas_wanted=1,
        state={"wanted": 1.0},
    )  # fmt: skip
    for newer in ("pod-cccccc-ccccc", "pod-bbbbbb-ccccc"):
        pods = {"a": "pod-bbbbbb-bbbbb", "b": newer}
        members = {member: MemberState(instance=pod, joined_at=T) for member, pod in pods.items()}
        group = GroupState(generation=1, leader="a", members=members, owners={partition(0): "a", partition(1): "b"})
        leader._ask(decision, group)
    assert [(request.replicas, request.rollout) for request in asked] == [(1, True), (1, False)]


async def test_pods_of_another_workload_are_no_replicas_of_the_scaled_one() -> None:
    """A canary of one pod made the workload beside it one larger: all members were wanted of that one alone."""
    asked: list[Any] = []
    seen: list[Any] = []
    reconciler: Any = SimpleNamespace(want=asked.append, observed=lambda *told: seen.append(told))
    leader = led(reconciler, templated="pod")
    pods = {"a": "pod-bbbbbb-bbbbb", "b": "pod-bbbbbb-ccccc", "c": "pod-canary-bbbbbb-bbbbb"}
    members = {member: MemberState(instance=pod, joined_at=T) for member, pod in pods.items()}
    group = GroupState(generation=1, leader="a", members=members, owners=dict.fromkeys(map(partition, range(9)), "a"))
    stays, goes = replace(wants(3), replicas_actual=3), replace(wants(2), replicas_actual=3, victims=("c",))
    for decision in (stays, replace(wants(7), replicas_actual=3), goes):
        leader._ask(decision, group)
    assert [request.replicas for request in asked] == [2, 6, 2]
    assert {request.victims for request in asked} == {()}, "nobody takes the pod of the other workload away"
    assert {request.staying for request in asked} == {("pod-bbbbbb-bbbbb", "pod-bbbbbb-ccccc")}
    assert seen == [(2, ["pod-bbbbbb-bbbbb", "pod-bbbbbb-ccccc"])] * 3


async def test_what_stands_by_the_scaler_is_planned_with() -> None:
    leader: Any = led(SimpleNamespace(standing=6))
    told: list[int | None] = []
    leader._group = SimpleNamespace(snapshot=lambda: SimpleNamespace(is_leader=True))
    leader._rates = SimpleNamespace(look=_nothing, rates=None)
    leader._view = SimpleNamespace(
        look_at_unowned=lambda: _nothing(None), owners={}, state=lambda *_: told.append(leader._view.standing)
    )

    async def decide(*_: object) -> None:
        raise OverflowError

    planner: Any = SimpleNamespace(decide=decide)
    with pytest.raises(OverflowError):
        await leader._decide_while_clock_runs(SimpleNamespace(), lambda: _nothing(None), planner)
    assert told == [6]


async def test_the_first_plan_of_a_leader_is_written_also_where_there_is_nothing_to_do() -> None:
    """A victim of an earlier leader, drained and not ready, learns from it that it is none any more."""
    written: list[Any] = []

    through = True

    async def write(record: Any) -> bool:
        written.append(record)
        return through

    control: Any = SimpleNamespace(write=write, publish=_ignore)
    snapshot = SimpleNamespace(assignment={}, member="a", generation=1)
    group: Any = SimpleNamespace(snapshot=lambda: snapshot)
    silent: Any = SimpleNamespace(
        leader=_ignore_now, replicas=_ignore_now, unowned=_ignore_now, want=_ignore_now, observed=_ignore_now
    )
    boundary = ErrorBoundary(SimpleNamespace(error=lambda _: None))
    tasks: Any = SimpleNamespace(spawn_contained=_spawn)
    config = structs.replace(CONFIG, can_scale=False)
    leader = LeaderLoop(config, {}, group, Instances("a"), silent, silent, boundary, tasks)

    async def act(sequence: int, *victims: str) -> int:
        written.clear()
        decision = DecisionRecord(
            group="g", member="a", at=T, generation=1, sequence=sequence, outcome="none", reason="", victims=victims
        )
        await leader._act(control, decision, STATE)
        return len(written)

    leader.set_leader(True)
    assert await act(1) == 1
    assert written[0].victims == ()
    assert await act(2) == 0, "they know it"
    assert await act(3, "b") == 1
    assert await act(4) == 1
    assert await act(5) == 0
    leader.set_leader(True)
    assert await act(6) == 1, "members drop plans of an older generation"
    through = False
    assert await act(7, "b") == 1
    assert await act(8) == await act(9) == 1, "the log did not take it"
    through = True
    assert await act(10) == 1
    assert await act(11) == 0
    leader.set_leader(False)
    leader.set_leader(True)
    assert await act(12) == 1, "another one may have led meanwhile"


async def test_what_a_leader_decides_about_is_shown() -> None:
    """The alerts on lag at the maximum and on partitions without an owner read these."""
    registry = CollectorRegistry()
    control: Any = SimpleNamespace(write=_ignore, publish=_ignore)
    group: Any = SimpleNamespace(snapshot=lambda: SimpleNamespace(assignment={}, member="a", generation=1))
    boundary = ErrorBoundary(SimpleNamespace(error=lambda _: None))
    config = PlanConfig(group="g", max_replicas=4, can_scale=False)
    metrics, silent = Metrics(registry, "g", "c", 1.0), SimpleNamespace(want=_ignore_now)
    tasks: Any = SimpleNamespace(spawn_contained=_spawn)
    leader = LeaderLoop(config, {}, group, Instances("a"), metrics, silent, boundary, tasks)
    leader.set_leader(True)
    decision = DecisionRecord(
        group="g", member="a", at=T, generation=1, sequence=1, outcome="none", reason="",
        replicas_wanted=3, replicas_actual=2,
    )  # fmt: skip
    owners = {partition(number): "a" if number < 4 else None for number in range(6)}
    await leader._act(control, decision, replace(STATE, owners=owners))

    def shown() -> dict[str, float | None]:
        return {
            state: registry.get_sample_value("loadtrim_replicas", {"group": "g", "state": state})
            for state in ("wanted", "actual", "max")
        }

    assert shown() == {"wanted": 3, "actual": 2, "max": 4}
    assert registry.get_sample_value("loadtrim_partitions_unowned", {"group": "g"}) == 2
    leader.stop()
    assert set(shown().values()) == {None}, "it has left: a process that hangs would show them for ever"
    assert registry.get_sample_value("loadtrim_leader", {"group": "g", "client_id": "c"}) == 0


class Wishes:
    """Stands for the reconciler: what was asked for, in order."""

    def __init__(self) -> None:
        self.replicas: list[int] = []
        self.withdrawn = 0

    def observed(self, *_: object) -> None:
        pass

    def want(self, request: Any) -> None:
        if request is None:
            self.withdrawn += 1
        else:
            self.replicas.append(request.replicas)


async def leading(control: Any, snapshot: Any, **queries: Any) -> tuple[LeaderLoop, Wishes, Any]:
    """A leader of a group with a control topic like this, and its tasks."""
    boundary = ErrorBoundary(SimpleNamespace(error=lambda _: None))
    silent: Any = SimpleNamespace(leader=_ignore_now, replicas=_ignore_now, unowned=_ignore_now)
    group: Any = SimpleNamespace(snapshot=lambda: snapshot, **queries)
    wishes: Any = Wishes()
    tasks = AgentTasks(silent, boundary)
    await tasks.open()
    leader = LeaderLoop(CONFIG, {}, group, Instances("a"), silent, wishes, boundary, tasks)  # type: ignore[arg-type]
    return leader, wishes, tasks


def wants(replicas: int, sequence: int = 1) -> DecisionRecord:
    return DecisionRecord(
        group="g", member="a", at=T, generation=1, sequence=sequence, outcome="scale", reason="",
        replicas_wanted=replicas, replicas_actual=1, state={"wanted": float(replicas)},
    )  # fmt: skip


@pytest.mark.looptime
async def test_replicas_are_asked_for_while_the_control_topic_takes_nothing() -> None:
    """Each record is tried for 40 s; so late was the request, and the next decision."""
    control: Any = SimpleNamespace(write=_never, publish=_never)
    leader, wishes, tasks = await leading(control, SimpleNamespace(assignment={}, member="a", generation=1))
    async with asyncio.timeout(5.0):
        await leader._act(control, wants(3), replace(STATE, owners={partition(number): "a" for number in range(3)}))
    assert wishes.replicas == [3]
    assert leader._victims is None, "the next decision writes its plan again"
    await tasks.close()


async def test_what_was_asked_for_is_withdrawn_where_the_group_is_held() -> None:
    """It was asked for again every ten seconds, while somebody changed the replicas by hand."""
    control: Any = SimpleNamespace(write=_nothing, publish=_never)
    leader, wishes, tasks = await leading(control, SimpleNamespace(assignment={}, member="a", generation=1))
    leader._ask(wants(3), replace(STATE, owners={partition(number): "a" for number in range(3)}))
    leader._ask(replace(wants(3, 2), outcome="hold", reason_code="brake"), STATE)
    assert (wishes.replicas, wishes.withdrawn) == ([3], 1)
    assert leader._view.requested is None
    await tasks.close()


async def test_a_plan_of_the_generation_before_is_not_written_and_counts_for_nothing() -> None:
    snapshot = SimpleNamespace(assignment={}, member="a", generation=1)
    written: list[Any] = []

    async def publish(*_: object, **__: object) -> bool:
        snapshot.generation += 1
        return True

    async def write(record: Any) -> bool:
        written.append(record)
        snapshot.generation += 1
        return True

    control: Any = SimpleNamespace(write=write, publish=publish)
    leader, _, tasks = await leading(control, snapshot)
    await leader._act(control, wants(3), STATE)
    assert written == []
    control.publish = _ignore
    snapshot.generation = 1
    await leader._act(control, wants(3), STATE)
    assert (len(written), leader._victims) == (1, None), "it was of the generation that had gone meanwhile"
    await tasks.close()


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["never", "refused", "left out"])
async def test_what_waits_without_an_owner_holds_no_decision_up(how: str) -> None:
    """Each look was tried for 40 s, and its end broke planning, which forgot what was reported."""
    entries = {"a": MemberEntry(attempt=1, topics=("t",), owns=())}
    snapshot = SimpleNamespace(
        assignment=SimpleNamespace(members=entries), owners={}, partition_counts={"t": 1}, member="a", generation=1
    )

    async def end_offsets(partitions: Any) -> Any:
        if how == "never":
            await asyncio.get_running_loop().create_future()
        if how == "refused":
            raise KafkaTimeoutError("no answer in time")
        return {}

    async def committed(partitions: Any, **_: object) -> Any:
        return SimpleNamespace(code=0, offsets=dict.fromkeys(partitions, 7))

    group: Any = SimpleNamespace(
        snapshot=lambda: snapshot,
        queries=SimpleNamespace(end_offsets=end_offsets),
        requests=SimpleNamespace(committed=committed),
    )
    view = GroupView(group, Instances("a"))
    async with asyncio.timeout(5.0):
        await view.look_at_unowned()
    assert view._unowned == {}


@pytest.mark.looptime
async def test_planning_begins_anew_where_the_clock_was_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was known stood still until the clock had caught up: a partition that had gone quiet was never seen so."""
    now = asyncio.get_running_loop().time
    clock = SimpleNamespace(ahead=T)
    monkeypatch.setattr(loop, "wall_time", lambda: now() + clock.ahead)
    monkeypatch.setattr(loop, "boot_time", now)
    snapshot = SimpleNamespace(is_leader=False)
    leader, _, tasks = await leading(SimpleNamespace(), snapshot)
    deciding = asyncio.create_task(leader._decide_while_clock_runs(*[SimpleNamespace()] * 3))  # type: ignore[arg-type]
    await asyncio.sleep(60.0)
    clock.ahead += 0.5
    await asyncio.sleep(5.0)
    assert not deciding.done(), "what is corrected slowly is no step"
    clock.ahead -= 600.0
    async with asyncio.timeout(5.0):
        await deciding
    assert "The clock was set by -600 s." in caplog.text
    await tasks.close()


@pytest.mark.looptime
async def test_behind_a_clock_that_was_set_planning_goes_on_from_what_was_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It began at sequence 1, which members pass over; or with the patience of the other clock."""
    decided: list[int] = []

    async def decide(self: LeaderLoop, control: object, telemetry: object, planner: BrokenPlans) -> None:
        decided.append(len(PLANNERS))
        if len(decided) == 1:
            self.last = wants(3, sequence=41)
            self.last = msgspec.structs.replace(self.last, state={"wanted": 3.0, "fit_since": T - 3600.0})
            self._view._joined_at["a"] = T + 3600.0
            self._clock_set(-600.0)
        else:
            await asyncio.get_running_loop().create_future()

    async def read(hear: Any) -> None:
        hear(TelemetryEntry(msgspec.structs.replace(wants(3, sequence=41), state={"down_at": T}), T, replayed=True))

    monkeypatch.setattr(loop, "PlannerThread", BrokenPlans)
    monkeypatch.setattr(LeaderLoop, "_decide_while_clock_runs", decide)
    control = SimpleNamespace(telemetry=lambda since: SimpleNamespace(read=read))
    snapshot = SimpleNamespace(member="a", owners={}, assignment=None)
    leader, _, tasks = await leading(SimpleNamespace(), snapshot, log=control, queries=None)
    leader._config = structs.replace(CONFIG, baseline_topic="")
    PLANNERS.clear()
    leading_task = asyncio.create_task(leader._guarded())
    await asyncio.sleep(2 * loop.CLOCK_PAUSE_SECONDS)
    assert decided == [1, 2], "a planner of its own"
    (entry,) = PLANNERS[1].seen
    assert isinstance(entry.record, DecisionRecord)
    assert (entry.record.sequence, entry.record.state) == (41, {"wanted": 3.0})
    assert not leader._view._joined_at
    leading_task.cancel()
    await asyncio.gather(leading_task, return_exceptions=True)
    await tasks.close()


async def test_what_an_earlier_leader_decided_counts_also_where_it_is_read_after_the_first_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Much telemetry is read in parts. A leader that missed the rest would begin at a sequence that nobody heeds."""
    heard: list[int] = []

    async def decide(self: LeaderLoop, control: object, listen: Any, planner: BrokenPlans) -> None:
        self.last = wants(3, sequence=1)
        await listen()
        heard.extend(entry.record.sequence for entry in planner.seen)
        await asyncio.get_running_loop().create_future()

    parts = [wants(3, sequence=40), wants(3, sequence=41)]

    async def read(hear: Any) -> None:
        hear(TelemetryEntry(parts.pop(0), T, replayed=True))

    monkeypatch.setattr(loop, "PlannerThread", BrokenPlans)
    monkeypatch.setattr(LeaderLoop, "_decide_while_clock_runs", decide)
    control = SimpleNamespace(telemetry=lambda since: SimpleNamespace(read=read))
    leader, _, tasks = await leading(SimpleNamespace(), SimpleNamespace(), log=control, queries=None)
    leader._config = structs.replace(CONFIG, baseline_topic="")
    leading_task = asyncio.create_task(leader._guarded())
    async with asyncio.timeout(5.0):
        while len(heard) < 2:  # noqa: ASYNC110 - what is waited for happens in the code under test
            await asyncio.sleep(0)
    assert heard == [40, 41]
    leading_task.cancel()
    await asyncio.gather(leading_task, return_exceptions=True)
    await tasks.close()


@pytest.mark.looptime
async def test_a_write_that_breaks_is_counted_and_the_next_decision_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object, **__: object) -> bool:
        raise ZeroDivisionError

    control: Any = SimpleNamespace(write=broken, publish=broken)
    leader, _, tasks = await leading(control, SimpleNamespace(assignment={}, member="a", generation=1))
    counts: list[str] = []
    leader._boundary = ErrorBoundary(SimpleNamespace(error=counts.append))
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        await leader._act(control, wants(3), STATE)
    assert counts == ["planning"] * 2
    assert _levels(caplog, "A decision could not be written") == ["ERROR", "DEBUG"]
    assert leader._victims is None
    assert "is off from now on" not in caplog.text
    await tasks.close()


@pytest.mark.looptime
async def test_slow_plans_are_complained_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a warning each second for as long as the leader's pod was throttled."""
    now = asyncio.get_running_loop().time
    for module in (loop, error_boundary):
        monkeypatch.setattr(module, "boot_time", now)
    monkeypatch.setattr(loop, "wall_time", lambda: T + now())
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=now))
    snapshot: Any = SimpleNamespace(is_leader=True, generation=2)
    leader, wishes, tasks = await leading(None, snapshot, feed=_ignore_now)
    leader._metrics = SimpleNamespace(plan=_ignore_now)  # type: ignore[assignment]
    leader._view = SimpleNamespace(  # type: ignore[assignment]
        look_at_unowned=_ignore, owners=None, weights={}, state=lambda *_: SimpleNamespace(generation=1)
    )
    wishes.standing = None  # type: ignore[attr-defined]
    counts: list[str] = []
    leader._boundary = ErrorBoundary(SimpleNamespace(error=counts.append))
    takes = 1.5

    async def decide(*_: object) -> DecisionRecord:
        await asyncio.sleep(takes)
        return wants(3)

    planner: Any = SimpleNamespace(decide=decide, left_out=dict)
    deciding = asyncio.create_task(leader._decide_while_clock_runs(None, _ignore, planner))  # type: ignore[arg-type]
    for takes, seconds in ((1.5, 600.0), (0.1, 30.0), (1.5, 30.0), (0.1, 90.0), (1.5, 5.0)):  # noqa: B007
        await asyncio.sleep(seconds)
    deciding.cancel()
    await asyncio.gather(deciding, return_exceptions=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2, "and again after a quick minute"
    assert len(counts) > 300
    assert set(counts) == {"slow_planning"}
    await tasks.close()


def _levels(caplog: pytest.LogCaptureFixture, begin: str) -> list[str]:
    return [record.levelname for record in caplog.records if record.getMessage().startswith(begin)]


async def _never(*_: object, **__: object) -> bool:
    await asyncio.get_running_loop().create_future()
    return False


async def _ignore(*_: object, **__: object) -> None:
    return None


def _ignore_now(*_: object, **__: object) -> None:
    return None


def _spawn(coroutine: Any, name: str) -> Any:
    if name != "leading":
        return asyncio.create_task(coroutine)
    coroutine.close()
    return SimpleNamespace(cancel=lambda: None)
