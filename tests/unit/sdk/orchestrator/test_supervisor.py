"""The orchestrator's decisions, without a process."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from loadtrim.orchestrator.supervisor import (
    Command,
    DropCommand,
    Event,
    ExitedEvent,
    KillAllEvent,
    KillCommand,
    Phase,
    PlanEvent,
    PlanOutcome,
    PlanSequence,
    ScaleEvent,
    StartCommand,
    StopEvent,
    Supervisor,
    SupervisorConfig,
    TerminateCommand,
    TickEvent,
    WaitCommand,
    WantedState,
)
from loadtrim_agent.common.errors import InvariantError


def plan(
    replicas: int,
    *victims: str,
    staying: tuple[str, ...] = (),
    sequence: int = 1,
    generation: int = 1,
    group: str = "payments",
) -> WantedState:
    order = PlanSequence(generation=generation, sequence=sequence)
    return WantedState(group=group, replicas=replicas, victims=victims, staying=staying, plan=order)


def begun(replicas: int = 1, **config: float) -> Supervisor:
    supervisor = Supervisor(SupervisorConfig(name="pay", replicas=replicas, **config))  # type: ignore[arg-type]
    supervisor.handle(TickEvent(0.0))
    return supervisor


def phases(supervisor: Supervisor) -> dict[str, str]:
    return {each.name: each.phase.value for each in supervisor.instances}


def kinds(commands: list[Command]) -> list[tuple[type, str]]:
    return [(type(command), command.name) for command in commands]


def test_starts_what_is_wanted_at_first() -> None:
    supervisor = Supervisor(SupervisorConfig(name="pay", replicas=2, startup_delay_seconds=5.0))
    assert kinds(supervisor.handle(TickEvent(0.0))) == [(StartCommand, "pay-1"), (StartCommand, "pay-2")]
    assert supervisor.next_due is None


def test_a_victim_ends_and_is_not_replaced() -> None:
    supervisor = begun(3)
    assert kinds(supervisor.handle(PlanEvent(1.0, plan(2, "pay-1")))) == [(TerminateCommand, "pay-1")]
    assert supervisor.handle(ExitedEvent(1.5, "pay-1")) == []
    assert phases(supervisor) == {"pay-2": "running", "pay-3": "running"}


def test_a_victim_that_ends_by_itself_before_it_is_asked_is_not_restarted() -> None:
    supervisor = begun(3)
    supervisor.handle(ExitedEvent(1.0, "pay-1"))
    assert kinds(supervisor.handle(PlanEvent(1.1, plan(2, "pay-1")))) == [(DropCommand, "pay-1")]


def test_replacing_a_victim_starts_one_under_a_new_name() -> None:
    supervisor = begun(2)
    commands = supervisor.handle(PlanEvent(1.0, plan(2, "pay-1")))
    assert kinds(commands) == [(TerminateCommand, "pay-1"), (StartCommand, "pay-3")]


def test_the_same_plan_again_changes_nothing() -> None:
    supervisor = begun(2)
    request = plan(3, "pay-1")
    supervisor.handle(PlanEvent(1.0, request))
    assert supervisor.judge(request, 2.0) is PlanOutcome.REPEATED
    assert supervisor.handle(PlanEvent(2.0, request)) == []


@pytest.mark.parametrize(("generation", "sequence"), [(6, 8), (7, 2)])
def test_an_older_plan_is_refused(generation: int, sequence: int) -> None:
    supervisor = begun(2)
    supervisor.handle(PlanEvent(1.0, plan(3, generation=7, sequence=3)))
    late = plan(1, "pay-1", "pay-2", generation=generation, sequence=sequence)
    assert supervisor.judge(late, 2.0) is PlanOutcome.STALE
    assert supervisor.handle(PlanEvent(2.0, late)) == []
    assert supervisor.wanted == 3


def test_a_group_that_begins_anew_is_listened_to_after_a_while() -> None:
    supervisor = begun(2)
    supervisor.handle(PlanEvent(1.0, plan(3, generation=57)))
    assert supervisor.judge(plan(2, generation=1), 60.0) is PlanOutcome.STALE
    assert supervisor.judge(plan(2, generation=1), 61.0) is PlanOutcome.ACCEPTED


def test_groups_are_judged_apart_and_the_larger_wish_counts() -> None:
    supervisor = begun(1)
    supervisor.handle(PlanEvent(1.0, plan(3, generation=9, group="a")))
    supervisor.handle(PlanEvent(1.0, plan(2, generation=1, group="b")))
    assert supervisor.wanted == 3


def test_what_one_group_names_ends_when_it_is_too_much_for_the_others() -> None:
    """It ended at once, and one that replaced it joined the group that had named it: for ever."""
    supervisor = begun(3)
    supervisor.handle(PlanEvent(1.0, plan(3, group="b")))
    assert supervisor.handle(PlanEvent(2.0, plan(2, "pay-3", group="a"))) == []
    assert kinds(supervisor.handle(PlanEvent(3.0, plan(2, group="b", sequence=2)))) == [(TerminateCommand, "pay-3")]
    assert supervisor.handle(ExitedEvent(4.0, "pay-3")) == []
    assert phases(supervisor) == {"pay-1": "running", "pay-2": "running"}


def test_what_all_groups_name_is_replaced_like_what_one_names() -> None:
    supervisor = begun(2)
    supervisor.handle(PlanEvent(1.0, plan(2, group="b")))
    assert supervisor.handle(PlanEvent(2.0, plan(2, "pay-1", group="a"))) == []
    commands = supervisor.handle(PlanEvent(3.0, plan(2, "pay-1", group="b", sequence=2)))
    assert kinds(commands) == [(TerminateCommand, "pay-1"), (StartCommand, "pay-3")]


def test_bounds_hold_whatever_is_asked_for() -> None:
    supervisor = begun(1, replicas_min=2, replicas_max=4)
    assert supervisor.wanted == 2
    supervisor.handle(PlanEvent(1.0, plan(9)))
    assert supervisor.wanted == 4


def test_a_plan_below_the_least_is_done_and_nothing_is_started_instead() -> None:
    """``scale G 1 --force`` with ``up --min 2``: one was ended, another started, joined and named next, for ever."""
    supervisor = begun(2, replicas_min=2)
    assert kinds(supervisor.handle(PlanEvent(1.0, plan(1, "pay-2")))) == [(TerminateCommand, "pay-2")]
    assert supervisor.handle(ExitedEvent(2.0, "pay-2")) == []
    assert supervisor.wanted == 1
    assert kinds(supervisor.handle(ScaleEvent(3.0, 1))) == [(StartCommand, "pay-3")], "the least counts by hand"


def test_what_ended_by_itself_comes_back_with_doubling_pauses() -> None:
    supervisor = begun(1, backoff_seconds=1.0, backoff_seconds_max=3.0)
    now, pauses = 0.0, []
    for _ in range(4):
        (wait,) = supervisor.handle(ExitedEvent(now, "pay-1"))
        assert isinstance(wait, WaitCommand)
        pauses.append(wait.seconds)
        assert supervisor.next_due == now + wait.seconds
        now += wait.seconds
        assert kinds(supervisor.handle(TickEvent(now))) == [(StartCommand, "pay-1")]
    assert pauses == [1.0, 2.0, 3.0, 3.0]


def test_running_for_a_while_forgets_the_failures() -> None:
    supervisor = begun(1, backoff_seconds=1.0, settle_seconds=10.0)
    supervisor.handle(ExitedEvent(1.0, "pay-1"))
    supervisor.handle(TickEvent(2.0))
    (wait,) = supervisor.handle(ExitedEvent(12.0, "pay-1"))
    assert isinstance(wait, WaitCommand)
    assert wait.seconds == 1.0


def test_crashing_for_days_does_not_overflow() -> None:
    supervisor = begun(1)
    for now in range(0, 120_000, 60):
        supervisor.handle(ExitedEvent(float(now), "pay-1"))
        supervisor.handle(TickEvent(now + 30.0))
    assert phases(supervisor) == {"pay-1": "running"}


def test_failing_is_when_nothing_comes_up() -> None:
    supervisor = begun(2)
    supervisor.handle(ExitedEvent(0.1, "pay-1"))
    assert not supervisor.failing(1)
    supervisor.handle(ExitedEvent(0.1, "pay-2"))
    assert supervisor.failing(1)
    assert not supervisor.failing(2)


def test_a_command_that_has_worked_is_started_again_for_ever() -> None:
    """A database was away for 20 s, and after days the whole service was given up."""
    supervisor = begun(1, settle_seconds=10.0)
    now = 10.0
    for _ in range(20):
        supervisor.handle(ExitedEvent(now, "pay-1"))
        assert not supervisor.failing(2)
        due = supervisor.next_due
        assert due is not None
        assert kinds(supervisor.handle(TickEvent(due))) == [(StartCommand, "pay-1")]
        now = due + 0.1


def test_the_start_up_delay_counts_for_every_later_start() -> None:
    supervisor = begun(1, startup_delay_seconds=5.0)
    assert supervisor.handle(PlanEvent(1.0, plan(2))) == [WaitCommand("pay-2", 5.0, "start-up delay")]
    assert supervisor.handle(TickEvent(5.9)) == []
    assert kinds(supervisor.handle(TickEvent(6.0))) == [(StartCommand, "pay-2")]


def test_what_has_not_started_goes_first_when_less_is_wanted() -> None:
    supervisor = begun(1, startup_delay_seconds=5.0)
    supervisor.handle(PlanEvent(1.0, plan(3)))
    commands = supervisor.handle(PlanEvent(2.0, plan(1, sequence=2)))
    assert kinds(commands) == [(DropCommand, "pay-3"), (DropCommand, "pay-2")]


def test_owners_that_nobody_names_are_left_alone_for_a_while() -> None:
    supervisor = begun(3, surplus_seconds=30.0)
    assert supervisor.handle(PlanEvent(1.0, plan(1, "pay-1"))) != []
    assert supervisor.next_due == pytest.approx(26.0), "the victim's SIGKILL"
    supervisor.handle(ExitedEvent(2.0, "pay-1"))
    assert supervisor.next_due == 31.0
    assert supervisor.handle(PlanEvent(20.0, plan(1, "pay-1", sequence=2))) == []
    assert kinds(supervisor.handle(TickEvent(31.0))) == [(TerminateCommand, "pay-3")]


def test_of_a_surplus_those_go_first_that_are_in_no_group() -> None:
    """The first one hung at its start. One that worked was ended in its place, and the group stayed too small."""
    supervisor = begun(4, surplus_seconds=30.0)
    supervisor.handle(PlanEvent(1.0, plan(2, staying=("pay-2",), group="a")))
    supervisor.handle(PlanEvent(1.0, plan(2, staying=("pay-4",), group="b")))
    assert kinds(supervisor.handle(TickEvent(31.0))) == [(TerminateCommand, "pay-3"), (TerminateCommand, "pay-1")]


def test_of_a_surplus_the_one_goes_first_that_has_started_last_whatever_its_number() -> None:
    supervisor = begun(3, surplus_seconds=30.0, backoff_seconds=1.0)
    supervisor.handle(ExitedEvent(20.0, "pay-1"))
    supervisor.handle(TickEvent(21.0))
    supervisor.handle(PlanEvent(22.0, plan(2)))
    assert kinds(supervisor.handle(TickEvent(52.0))) == [(TerminateCommand, "pay-1")]


def test_a_new_plan_gives_the_unnamed_their_time_again() -> None:
    supervisor = begun(4, surplus_seconds=30.0)
    supervisor.handle(PlanEvent(1.0, plan(2)))
    supervisor.handle(PlanEvent(20.0, plan(2, "pay-1", sequence=2)))
    supervisor.handle(ExitedEvent(21.0, "pay-1"))
    assert supervisor.handle(TickEvent(31.0)) == []
    assert supervisor.next_due == 50.0


def test_by_hand_the_newest_go_at_once() -> None:
    supervisor = begun(3)
    assert kinds(supervisor.handle(ScaleEvent(1.0, 2))) == [(TerminateCommand, "pay-3")]
    supervisor.handle(PlanEvent(2.0, plan(1, "pay-1")))
    assert kinds(supervisor.handle(ScaleEvent(3.0, 3))) == [(StartCommand, "pay-4"), (StartCommand, "pay-5")]


def test_who_does_not_end_is_killed() -> None:
    supervisor = begun(2, stop_seconds=25.0)
    supervisor.handle(PlanEvent(1.0, plan(1, "pay-2")))
    assert supervisor.handle(TickEvent(25.9)) == []
    assert kinds(supervisor.handle(TickEvent(26.0))) == [(KillCommand, "pay-2")]
    assert supervisor.handle(TickEvent(60.0)) == []


def test_stopping_ends_everything_and_starts_nothing() -> None:
    supervisor = begun(2)
    supervisor.handle(ExitedEvent(1.0, "pay-1"))
    assert kinds(supervisor.handle(StopEvent(1.1))) == [(DropCommand, "pay-1"), (TerminateCommand, "pay-2")]
    assert supervisor.handle(PlanEvent(1.2, plan(5))) == []
    assert not supervisor.finished
    supervisor.handle(ExitedEvent(1.3, "pay-2"))
    assert supervisor.finished


def test_an_instance_refuses_what_its_table_does_not_allow() -> None:
    (instance,) = begun(1).instances
    with pytest.raises(InvariantError, match=r"pay-1: RUNNING -> ENDED"):
        instance.become(Phase.ENDED)


@pytest.mark.parametrize(("least", "most"), [(0, 3), (4, 3), (1, 10_000)])
def test_bounds_that_make_no_sense_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="bounds of replicas"):
        SupervisorConfig(name="pay", replicas_min=least, replicas_max=most)


class SupervisorUnderFire(RuleBasedStateMachine):
    """Any order of plans, crashes, exits and time; processes that only do what commands say."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.processes: dict[str, bool] = {}
        """Name -> asked to end."""
        self.seen: set[str] = set()
        self.killed_all = False
        self.supervisor = Supervisor(SupervisorConfig(name="pay", replicas=2, replicas_max=5))
        self.feed(TickEvent(0.0))

    def feed(self, event: Event) -> None:
        for command in self.supervisor.handle(event):
            match command:
                case StartCommand(name):
                    assert name not in self.processes
                    self.processes[name] = False
                case TerminateCommand(name):
                    assert self.processes[name] is False
                    self.processes[name] = True
                case KillCommand(name):
                    assert name in self.processes
                    self.processes[name] = True

    @rule(seconds=st.floats(0.0, 40.0))
    def time_goes_by(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.supervisor.next_due) is not None and due <= end:
            assert due >= self.now or due == pytest.approx(self.now)
            self.now = max(self.now, due)
            self.feed(TickEvent(self.now))
        self.now = end

    @rule(
        replicas=st.integers(1, 7),
        victims=st.lists(st.integers(1, 9), max_size=3),
        generation=st.integers(1, 2),
        sequence=st.integers(0, 5),
    )
    def plan_comes(self, replicas: int, victims: list[int], generation: int, sequence: int) -> None:
        names = [f"pay-{number}" for number in victims]
        request = plan(replicas, *names, generation=generation, sequence=sequence)
        outcome = self.supervisor.judge(request, self.now)
        before = self.supervisor.wanted
        self.feed(PlanEvent(self.now, request))
        if outcome is PlanOutcome.STALE:
            assert self.supervisor.wanted == before
        elif not self.killed_all:
            assert self.supervisor.wanted == min(max(replicas, 1), 5)

    @rule(replicas=st.integers(1, 7))
    def scaled_by_hand(self, replicas: int) -> None:
        self.feed(ScaleEvent(self.now, replicas))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def process_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.processes)))
        del self.processes[name]
        self.feed(ExitedEvent(self.now, name))

    @precondition(lambda self: not self.killed_all)
    @rule(at_once=st.booleans())
    def stopped(self, at_once: bool) -> None:
        if self.now < 60.0:
            return
        self.killed_all = True
        self.feed(KillAllEvent(self.now) if at_once else StopEvent(self.now))

    @invariant()
    def processes_are_as_the_supervisor_thinks(self) -> None:
        with_process = {
            each.name: each.phase is not Phase.RUNNING
            for each in self.supervisor.instances
            if each.phase is not Phase.WAITING
        }
        assert with_process == self.processes

    @invariant()
    def enough_are_kept_and_no_victim_is_among_them(self) -> None:
        kept = {each.name for each in self.supervisor.instances if each.phase in (Phase.WAITING, Phase.RUNNING)}
        assert len(kept) >= self.supervisor.wanted
        named = {name for request in self.supervisor.plans.values() for name in request.victims}
        assert not kept & named

    @invariant()
    def names_are_never_used_twice(self) -> None:
        now = {each.name for each in self.supervisor.instances}
        numbers = [each.number for each in self.supervisor.instances]
        assert numbers == sorted(numbers)
        for name in now - self.seen:
            assert int(name.rpartition("-")[2]) > max((int(n.rpartition("-")[2]) for n in self.seen), default=0)
        self.seen |= now

    def teardown(self) -> None:
        """Left alone, it comes to rest with exactly what is wanted."""
        for name, ending in sorted(self.processes.items()):
            if ending:
                del self.processes[name]
                self.feed(ExitedEvent(self.now, name))
        self.time_goes_by(200.0)
        kept = [each for each in self.supervisor.instances if each.phase is Phase.RUNNING]
        assert len(kept) == self.supervisor.wanted


TestSupervisorUnderFire = SupervisorUnderFire.TestCase
TestSupervisorUnderFire.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
