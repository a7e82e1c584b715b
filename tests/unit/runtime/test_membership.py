"""The machine driven: events one after the other, ticks when they are due, commits of user code, commands in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.errors import (
    CommitFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    UnknownTopicOrPartitionError,
)

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import Code, GroupConfig
from loadtrim_agent.protocol.snapshot import AssignedView
from loadtrim_agent.runtime import membership
from loadtrim_agent.runtime.membership import COMMIT_AGAIN_SECONDS, MembershipDriver, UserCommits
from loadtrim_agent.runtime.observer import AgentObserver
from walks.scenes import TOPIC, consumer, stage

ONE, TWO, THREE = (Partition("orders", index) for index in range(3))
NEVER = float("inf")
HANDLED_MAX = 20


class ScriptedMachine:
    """A machine that commands two counts for each event, named by the event's time, and wants one tick."""

    def __init__(self, due: float = NEVER) -> None:
        self.due = due
        self.handled: list[float] = []

    def handle(self, event: e.Event) -> list[c.Command]:
        self.handled.append(event.now)
        if len(self.handled) > HANDLED_MAX:
            self.due = NEVER  # enough to see that it is woken again and again
        if event.now >= self.due:
            self.due = NEVER
        return [c.FetchTopicsCommand(topics=(f"{event.now:g}", which)) for which in ("first", "second")]

    def wakeup(self) -> float:
        return self.due


class Sink:
    """Carries nothing out, and says what it was told to."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.meanwhile: list[Callable[[], None]] = []
        """Called one by one while commands are carried out."""

    def carry_out(self, command: Any) -> None:
        self.told.append(" ".join(command.topics))
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def finish(self, machine: Any) -> None:
        self.told.append("finish")

    def leave_group(self, member: str) -> None:
        raise AssertionError("nothing broke")


def driven(machine: ScriptedMachine) -> tuple[MembershipDriver, Sink]:
    observer = AgentObserver()
    failures = SimpleNamespace(raise_to_user=lambda error: None)
    driver = MembershipDriver(GroupConfig(group="g", topics=()), failures, observer, ErrorBoundary(observer))  # type: ignore[arg-type]
    driver.machine = machine  # type: ignore[assignment]
    driver.sink = sink = Sink()
    return driver, sink


async def test_an_event_that_comes_while_commands_are_carried_out_waits_its_turn() -> None:
    """The rest of the commands would be carried out after those of a later state."""
    driver, sink = driven(ScriptedMachine())
    sink.meanwhile.append(lambda: driver.feed(e.TickEvent(now=2.0)))
    driver.feed(e.TickEvent(now=1.0))
    assert sink.told == ["1 first", "1 second", "finish", "2 first", "2 second", "finish"]


@pytest.mark.looptime
async def test_a_tick_comes_when_it_is_due_and_not_before(looptime: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is woken too early does nothing, and wants to be woken at the same time again."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("loadtrim_agent.runtime.membership.boot_time", loop.time)
    machine = ScriptedMachine(due=loop.time() + 3.0)
    driver, _ = driven(machine)
    due = machine.due
    driver.feed(e.TickEvent(now=loop.time()))
    await asyncio.sleep(5.0)
    first, *ticks = machine.handled
    assert first < due
    assert len(ticks) == 1
    assert due <= ticks[0] < due + 0.01


def view(acquisition_id: int, state: AssignedState = AssignedState.RUNNING, committed: int | None = 0) -> AssignedView:
    return AssignedView(acquisition_id=acquisition_id, state=state, committed=committed, held_up=False)


class Office:
    """Commits of user code, with a machine that answers when the test does."""

    def __init__(self, *, auto_commit: bool = True, done: dict[Partition, int | None] | None = None) -> None:
        self.config = GroupConfig(group="g", topics=(), auto_commit=auto_commit)
        self.assigned = {ONE: view(1), TWO: view(2, committed=5), THREE: view(3)}
        self.wanted: list[e.CommitWantedEvent] = []
        done = done or {}
        streams = {p: Stream(p, v.acquisition_id, 0) for p, v in self.assigned.items()}
        partitions = SimpleNamespace(
            buffer=SimpleNamespace(streams=streams),
            positions=SimpleNamespace(
                done_offset=lambda stream: done.get(stream.partition), behind=lambda stream, offset: offset
            ),
        )
        self.commits = UserCommits(self, partitions, SimpleNamespace(unanswered_commits={}), None)  # type: ignore[arg-type]

    def snapshot(self) -> Any:
        return self

    def feed(self, event: Any) -> None:
        self.wanted.append(event)

    async def commit(self, code: int) -> None:
        """Commit an offset, which is answered with this code."""
        committing = asyncio.ensure_future(self.commits.commit({ONE: (7, "")}))
        await asyncio.sleep(0)
        self.commits.result(c.CommitResultCommand(request=self.wanted[-1].request, code=code))
        await committing


async def test_the_auto_commit_takes_what_is_done_and_not_committed() -> None:
    office = Office(done={ONE: 4, TWO: 5})
    office.commits.commit_done()
    [event] = office.wanted
    assert event.request == 0
    assert event.offsets == {ONE: e.OffsetCommit(acquisition_id=1, offset=4)}, "the others have nothing new"


@pytest.mark.looptime
async def test_an_interval_of_nothing_between_auto_commits_takes_no_core(looptime: object) -> None:
    """``auto_commit_interval_ms=0``, which Kafka allows, looked for what is done again and again."""
    office = Office(done={ONE: 4})
    committing = asyncio.create_task(office.commits.run_auto_commit(0.0))
    await asyncio.sleep(1.01)
    committing.cancel()
    assert len(office.wanted) == 20


async def test_the_auto_commit_takes_everything_once_a_minute() -> None:
    """A topic was made anew: the broker had forgotten its offsets, and a quiet partition was never committed again."""
    office = Office(done={ONE: 4, TWO: 5})
    office.commits._all_at -= COMMIT_AGAIN_SECONDS
    for _ in range(2):
        office.commits.commit_done()
    assert [sorted(event.offsets) for event in office.wanted] == [[ONE, TWO], [ONE]]


async def test_with_manual_commits_nothing_is_committed_by_itself() -> None:
    office = Office(auto_commit=False, done={ONE: 4, TWO: 9})
    office.commits.commit_done()
    assert [event.offsets for event in office.wanted] == [{}], "who asked is answered all the same"


@pytest.mark.parametrize("code", [Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS])
async def test_a_commit_of_what_was_given_away_is_told(code: Code) -> None:
    with pytest.raises(CommitFailedError, match="given to another member"):
        await Office().commit(code)


async def test_a_commit_ends_well_or_as_the_broker_says() -> None:
    office = Office()
    await office.commit(Code.NONE)
    assert office.wanted[0].offsets == {ONE: e.OffsetCommit(acquisition_id=1, offset=7)}
    with pytest.raises(UnknownTopicOrPartitionError):
        await office.commit(UnknownTopicOrPartitionError.errno)


async def test_a_lease_wakes_user_code_only_where_it_had_none_and_never_one_that_failed() -> None:
    async with stage() as broker, consumer(broker) as one:
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        woken: list[float] = []
        agent.buffer.wake = lambda: woken.append(agent.buffer.lease_until)
        sink, later = agent.driver.sink, boot_time() + 100.0
        agent.buffer.lease_until = 0.0
        sink.carry_out(c.LeaseCommand(until=later))
        assert woken == [later], "user code that waits without a lease sleeps without a time"
        sink.carry_out(c.LeaseCommand(until=later + 1.0))
        assert (woken, agent.buffer.lease_until) == ([later], later + 1.0)
        agent.raise_to_user(KafkaError("broken"))
        sink.carry_out(c.LeaseCommand(until=later + 2.0))
        assert agent.buffer.lease_until == agent.partitions.gate.lease_until == 0.0


@pytest.mark.looptime
async def test_a_commit_without_an_answer_counts_as_made() -> None:
    """The broker was asked while it refused a commit for now, took it then, and the record was handed out again."""
    office = Office(auto_commit=False)
    office.assigned[TWO] = msgspec.structs.replace(office.assigned[TWO], committing=7)
    asked: list[list[Partition]] = []

    async def committed(partitions: list[Partition]) -> dict[Partition, int | None]:
        asked.append(partitions)
        return dict.fromkeys(partitions, 5)

    office.commits.committed = committed  # type: ignore[method-assign, assignment]
    committing = asyncio.ensure_future(office.commits.commit({TWO: (7, "")}))
    last = asyncio.ensure_future(office.commits.committed_last([ONE, TWO], 2.0))
    await asyncio.sleep(1.9)
    assert not last.done()
    assert await last == {ONE: 5, TWO: 7}
    assert asked == [[ONE]]
    assert await office.commits.committed_last([TWO], 0.0) == {TWO: 7}
    assert asked == [[ONE]], "nothing is left to be asked"
    committing.cancel()


async def test_partitions_are_opened_when_all_of_an_events_commands_were_carried_out() -> None:
    """Together, so that they share a call of the listener; and after what else the event asks for."""
    async with stage() as broker, consumer(broker) as one:
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        opened: list[list[Partition]] = []
        agent.partitions.open = lambda commands: opened.append([command.partition for command in commands])
        sink = agent.driver.sink
        for index in (7, 8):
            sink.carry_out(c.OpenCommand(partition=Partition(TOPIC, index), acquisition_id=index, offset=0))
        assert opened == []
        for _ in range(2):
            sink.finish(agent.driver.machine)
        assert opened == [[Partition(TOPIC, 7), Partition(TOPIC, 8)]], "once"


async def test_what_one_event_opens_and_drops_is_not_opened() -> None:
    """It was opened after it had been dropped. Nobody dropped that stream any more, and what was fetched for the next
    acquisition went there: the records were skipped."""
    async with stage() as broker, consumer(broker) as one:
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        sink, lost, kept = agent.driver.sink, Partition(TOPIC, 7), Partition(TOPIC, 8)
        agent.partitions.prefetching.begin_at({lost: 0, kept: 0})
        for partition in (lost, kept):
            sink.carry_out(c.OpenCommand(partition=partition, acquisition_id=7, offset=0))
        sink.carry_out(c.DropCommand(partition=lost, acquisition_id=7))
        sink.carry_out(c.DropCommand(partition=kept, acquisition_id=6))
        sink.finish(agent.driver.machine)
        assert [partition for partition in agent.partitions.buffer.streams if partition in (lost, kept)] == [kept]
        assert lost not in agent.partitions.prefetching, "nor fetched any more"


@pytest.mark.parametrize(
    ("state", "spoken", "usable"),
    [
        ("Stable", "loadtrim", False),
        ("Stable", "loadtrim", True),
        ("Stable", "sticky", False),
        ("PreparingRebalance", "", False),
        ("CompletingRebalance", "", True),
        ("Dead", "", False),
        ("", "", False),
    ],
)
async def test_a_group_that_speaks_ours_is_asked_again_by_a_member_that_has_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, state: str, spoken: str, *, usable: bool
) -> None:
    """A coordinator that took over knows our protocol alone: a member that offered the others only ended."""
    monkeypatch.setattr(membership, "REFUSED_SECONDS", 0.0)
    async with stage() as broker, consumer(broker) as one:
        agent: Any = one._client.link.need_agent()  # type: ignore[union-attr]
        agent.driver.use_log(usable)
        joined: list[None] = []
        agent.driver.join_again = lambda: joined.append(None)

        async def describe() -> tuple[str, str]:
            return state, spoken

        agent.requests.describe = describe

        async def refuse() -> None:
            agent.driver.sink.carry_out(c.FailCommand(code=Code.INCONSISTENT_GROUP_PROTOCOL))
            for _ in range(10):
                await asyncio.sleep(0)

        def said() -> int:
            return sum("cannot use the control topic" in each.getMessage() for each in caplog.records)

        for _ in range(2):
            await refuse()
        waits = not usable and (spoken == "loadtrim" or state in ("PreparingRebalance", ""))
        says = waits and spoken == "loadtrim"
        assert len(joined) == (2 if waits else 0)
        assert isinstance(agent.condition.failure, InconsistentGroupProtocolError) != waits
        assert said() == says
        agent.driver.sink.carry_out(c.EnteredCommand(generation=2, member="m", leader="m", protocol="loadtrim"))
        await refuse()
        assert said() == 2 * says, "each time it begins"
