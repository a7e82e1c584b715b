"""What the commands print about a group."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from loadtrim.cli.live import LiveView, Scene, bar, render, sparkline
from loadtrim.cli.text import ago, group_line, owns, partition_rows, status_lines, table
from loadtrim.observer.group import ObservedGroup
from loadtrim.orchestrator.instances import EventKind, InstanceInfo, OrchestratorEvent
from loadtrim.orchestrator.supervisor import Phase
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import HelloRecord, LeftRecord
from loadtrim_agent.wire.telemetry_records import PartitionReport

from ..observer.control_records import GROUP, base, decision, manual_override, release, report, view


def running(at: float = 1.0) -> ObservedGroup:
    return view(
        base(14, {"m-1": (0, 1, 2, 5), "m-2": (3,)}),
        release(14, 5, 0, "m-1", "m-2"),
        report(
            "m-1", PartitionReport(topic="payments", partition=0, arrived=40, lag=9, lag_seconds=0.5, cost_mean=0.0059),
            instance="pay-1", busy_seconds=0.62, in_time=9997, late={"forecast": 3},
            latency_counts=((0.1, 9999), (0.5, 1)),
        ),
        report("m-2", instance="pay-2"),
        decision("m-1", work=1.5, rate=250.0, forecast=1.7, replicas_actual=2, replicas_wanted=3, members={"m-1": 0.6},
                 objective_seconds=0.5, objective_share=0.999, victims=("m-2",)),
    ).state(at)  # fmt: skip


def shown(scene: Scene, width: int = 120, height: int = 60) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(render(scene, height))
    return console.export_text()


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], ""),
        ([("payments", 3)], "payments 3"),
        ([("payments", 5), ("payments", 0), ("payments", 1), ("payments", 2)], "payments 0-2 5"),
        ([("b", 1), ("b", 2), ("a", 7)], "a 7, b 1 2"),
    ],
)
def test_partitions_are_told_in_short(partitions: list[tuple[str, int]], words: str) -> None:
    assert owns(partitions) == words


def test_columns_are_as_wide_as_needed() -> None:
    assert table(("A", "N"), [("long", "1"), ("x", "22")], right=frozenset({1})) == ["A      N", "long   1", "x     22"]


def test_the_status_of_a_group() -> None:
    assert status_lines(running()) == [
        "payments-service: generation 14, leader pay-1",
        "  replicas  2, 3 wanted",
        "  load      1.5 of 2 busy seconds per second (75 %), 250 records/s, 1.7 expected",
        "  behind    9 records, the oldest 500 ms old",
        "  in time   99.97 % of the last 60 s (objective: 99.9 % within 500 ms)",
        "  latency   half within 100 ms, 99 % within 100 ms",
        "  late      3 records late: 3 more load than forecast",
        "  moves     1 handoff in the last 60 s",
        "  brake     no brake is on: plans are made",
        "  decision  1 s ago: still wants 1 more, 2 -> 3 replicas, pay-2 to go: it fits",
        "",
        "MEMBER   STATE    BUSY  BEHIND  OLDEST  OWNS",
        "pay-1 *  running  62 %       9  500 ms  3: payments 0-2",
        "pay-2    running   0 %       0       -  2: payments 3 5",
    ]


def test_how_well_a_members_capacity_is_known_is_told() -> None:
    state = view(
        base(1, {"m-1": (0,), "m-2": (1,), "m-3": (2,)}),
        report("m-1", instance="pay-1", busy_seconds=7.7, concurrency=10.0, capacity_error=0.4),
        report(
            "m-2",
            instance="pay-2",
            busy_seconds=3.1,
            concurrency=9.3,
            capacity_known=False,
            capacity_error=6.2,
            speed=2.0,
        ),
        report("m-3", instance="pay-3", busy_seconds=0.5, concurrency=0.998, capacity_error=0.001),
    ).state(1.0)
    lines = status_lines(state)
    for busy in ("77 % of 10 ± 0.4", "33 % of 18.6, a guess", "50 %  "):
        assert any(f"  {busy}" in line for line in lines), busy
    assert "77 % of 10 ± 0.4" in shown(Scene(now=1.0, started_at=0.0, state=state))
    member = {each.instance: each for each in state.members}["pay-2"]
    assert (member.capacity, member.capacity_error, member.capacity_known) == (18.6, 12.4, False)


def test_latency_that_nobody_knows_is_said_with_what_to_do() -> None:
    """Told "in time 100 %, half within 10 ms" while records were 18 s late."""
    state = view(
        base(1, {"m-1": (0,)}),
        report("m-1", instance="pay-1", unknown=90, late={"queued": 2}, untold="kept", latency_counts=((5.0, 2),)),
        decision("m-1", objective_seconds=0.5, objective_share=0.999),
    ).state(1.0)
    lines = status_lines(state)
    assert (
        "  in time   unknown for 98 % of the last 60 s, 2 records late for certain (objective: 99.9 % within 500 ms)"
    ) in lines
    assert (
        "  latency   unknown on pay-1: the next record is asked for while others are worked on, or wait in the program."
        " Put `async with consumer.work(message):` around the work on each, or call `consumer.done(message)`."
    ) in lines
    assert group_line(state).endswith("in time: unknown")
    text = shown(Scene(now=1.0, started_at=0.0, state=state))
    assert "unknown for 98 %" in text
    assert "within 5 s" not in text


def test_every_partition_when_asked_for() -> None:
    lines = status_lines(running(), partitions=True)
    assert lines[-6:] == [
        "PARTITION   OWNER  STATE    RECORDS/S    COST  BEHIND  OLDEST  HANDOFFS",
        "payments-0  pay-1  running         40  5.9 ms       9  500 ms         0",
        "payments-1  pay-1  -                -       -       -       -         0",
        "payments-2  pay-1  -                -       -       -       -         0",
        "payments-3  pay-2  -                -       -       -       -         0",
        "payments-5  pay-2  -                -       -       -       -         1",
    ]


def test_a_group_without_members_says_so() -> None:
    lines = status_lines(running(at=40.0))
    assert lines[0] == "payments-service: generation 14, led by pay-1 when it ended"
    assert "  behind    9 records, the oldest 500 ms old, as last reported" in lines
    assert "Nobody of loadtrim is there: no member has said anything lately (the last one: 40 s ago)." in lines[-1]
    assert "silent for 40 s" in "\n".join(lines)


def test_a_mixed_group_is_told_as_one() -> None:
    """It was shown with its last leader, with owners that had ended, and without a word of what is the matter."""
    folded = view(
        base(14, {"m-1": (0, 1), "m-2": (2,)}, at=10.0),
        report("m-1", at=11.0, instance="pay-1", generation=14),
        decision("m-1", at=11.0, generation=14, replicas_actual=2, replicas_wanted=3),
    )
    for second in range(60, 65):
        seen = PartitionReport(topic="payments", partition=1, lag=4)
        folded.apply(report("m-3", seen, at=float(second), instance="pay-3", generation=15))
    state = folded.state(65.0)
    lines = status_lines(state, partitions=True)
    assert lines[0] == "payments-service: generation 15, mixed group, no leader"
    assert "pay-1" not in "\n".join(lines)
    assert "wanted" not in lines[1]
    assert any("pay-3" in line and "1: payments 1" in line for line in lines)
    assert "mixed group" in lines[-1]
    assert "Nothing moves and nothing scales" in lines[-1]
    assert "docs/how-to.md" in lines[-1]
    assert "mixed group (nothing moves and nothing scales)" in group_line(state)
    assert "nothing moves or scales" in shown(Scene(now=65.0, started_at=0.0, state=state))
    assert "Nobody of loadtrim is there" in "\n".join(status_lines(folded.state(90.0)))


def test_a_member_that_left_is_an_owner_by_its_name() -> None:
    """At the end of ``up`` an owner was shown by its member id."""
    state = view(
        base(14, {"25344-320942": (0,), "m-2": ()}),
        report("25344-320942", instance="pay-1"),
        LeftRecord(group=GROUP, member="25344-320942", at=0.0),
    ).state(0.0)
    assert partition_rows(state.partitions, state.called)[0][:2] == ("payments-0", "pay-1")


def test_what_is_not_known_is_said() -> None:
    empty = view().state(0.0)
    assert "no generation known, no leader known" in status_lines(empty)[0]
    assert group_line(empty) == "payments-service: nobody of loadtrim there"
    guessed = status_lines(view(report("a", PartitionReport(topic="payments", partition=3))).state(0.0))
    assert "owners are those that reported last" in guessed[-1]
    orphan = view(base(1, {"a": (0,)}), report("a", PartitionReport(topic="payments", partition=4))).state(0.0)
    assert status_lines(orphan)[-1].strip() == "Owned by nobody: payments 4."


def test_the_brake_is_named() -> None:
    lines = status_lines(view(base(1, {"a": (0,)}), manual_override("scale", replicas=3)).state(0.0))
    assert "  brake     brake on: 3 replicas until `loadtrim resume payments-service`" in lines


def test_one_line_for_a_group() -> None:
    assert group_line(running()) == (
        "payments-service: 2 replicas, load 1.5 of 2 busy seconds per second (75 %), 250 records/s, 1.7 expected, "
        "9 records behind, 99.97 % in time"
    )


@pytest.mark.parametrize(
    ("seconds", "words"), [(-3.0, "just now"), (0.9, "just now"), (1.2, "1 s ago"), (200.0, "3 min 20 s ago")]
)
def test_how_long_ago(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_curves_and_bars() -> None:
    assert sparkline([0.0, 1.0, 2.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([9.0], top=3.0) == "█"
    assert bar(0.5, 4).plain == "██░░"
    assert bar(7.0, 4).plain == "████"
    assert bar(-1.0, 4).plain == "░░░░"


def test_the_live_view_shows_everything() -> None:
    instances = [
        InstanceInfo(name="pay-1", phase=Phase.RUNNING, asked_at=0.0, started_at=0.0),
        InstanceInfo(name="pay-2", phase=Phase.STOPPING, asked_at=0.0, started_at=0.0),
        InstanceInfo(name="pay-3", phase=Phase.RUNNING, asked_at=0.0, started_at=0.5),
        InstanceInfo(name="pay-4", phase=Phase.WAITING, asked_at=0.0, due_at=3.0, failures=2),
    ]
    events = [OrchestratorEvent(at=0.0, kind=EventKind.STARTED, text="started, process 7", instance="pay-1")]
    text = shown(
        Scene(now=1.0, started_at=0.0, state=running(), instances=instances, wanted=4, replica_seconds=90.0,
              events=events, facts={"played": "43 of 120 s"}, footer="Ctrl-C ends all")
    )  # fmt: skip
    for words in (
        "loadtrim up: payments-service, generation 14",
        "played",
        "43 of 120 s",
        "1.5 of 2 busy seconds per second (75 %)",
        "99.97 % of the last 60 s (objective: 99.9 % within 500 ms)",
        "half within 100 ms, 99 % within 100 ms",
        "3 replicas, 4 wanted, 1.5 replica-minutes so far",
        "pay-1 *",
        "stopping",
        "starting (500 ms)",
        "starts in 2 s",
        "crashed 2 times in a row",
        "payments 0-2",
        "who owns what",
        "still wants 1 more, 2 -> 3 replicas, pay-2 to go: it fits",
        "pay-1 started, process 7",
        "Ctrl-C ends all",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("failures", "ran_seconds", "words"),
    [(1, None, "crashed once"), (3, 9.0, "crashed 3 times in a row"), (3, 11.0, "")],
)
def test_crashes_are_told_until_an_instance_has_run_well(failures: int, ran_seconds: float | None, words: str) -> None:
    """ "crashed 1 times in a row" stood there for as long as the instance ran without a member."""
    started = None if ran_seconds is None else 100.0 - ran_seconds
    phase = Phase.WAITING if started is None else Phase.RUNNING
    instance = InstanceInfo(name="pay-1", phase=phase, asked_at=0.0, started_at=started, failures=failures)
    text = shown(Scene(now=100.0, started_at=0.0, instances=[instance], wanted=1))
    assert words in text
    assert ("crashed" in text) == bool(words)


def test_the_live_view_of_little() -> None:
    text = shown(Scene(now=1.0, started_at=0.0, trouble="no broker answers"))
    assert "no broker answers" in text
    small = shown(Scene(now=1.0, started_at=0.0, state=running()), width=80, height=24)
    assert "who owns what" not in small
    assert "capacity" not in small
    hello = HelloRecord(group=GROUP, member="m-9", at=0.0, instance="elsewhere-1")
    undecided = view(base(1, {"m-9": ()}), hello, manual_override("hold")).state(0.0)
    text = shown(Scene(now=0.0, started_at=0.0, state=undecided))
    assert "elsewhere-1" in text
    assert "none yet" in text
    assert "no plans are made until" in text


HOSTILE = "pod[/a][bold]\x1b]0;title\x07\x1b[2J\nowned"
"""Markup that is never closed, escape sequences, a line of its own."""


def hostile(at: float = 1.0) -> ObservedGroup:
    topic = f"t{HOSTILE}"
    return view(
        base(14, {HOSTILE: (0, 1), "m-2": (3,)}),
        report(HOSTILE, PartitionReport(topic=topic, partition=0, state=HOSTILE), instance=HOSTILE, late={HOSTILE: 3}),
        decision(HOSTILE, reason=HOSTILE, victims=(HOSTILE,), members={HOSTILE: 1e30}, outcome=HOSTILE),
    ).state(at)  # fmt: skip


def test_text_of_the_control_topic_reaches_the_terminal_as_text() -> None:
    """A reason with a bracket ended the live view, and with it all instances; ``status`` let escape sequences pass."""
    state = hostile()
    lines = "\n".join(status_lines(state, partitions=True))
    picture = shown(Scene(now=1.0, started_at=0.0, state=state))
    for text in (lines, picture, group_line(state)):
        assert "\x1b" not in text.replace("\x1b[0m", "")
        assert "\x07" not in text
    assert "pod[/a][bold]?]0;title" in lines
    assert "pod[/a]" in picture
    assert not any(line.startswith("owned") for line in lines.splitlines())


@pytest.mark.looptime
async def test_a_scene_that_cannot_be_drawn_does_not_end_the_view() -> None:
    def scene() -> Scene:
        raise ZeroDivisionError("no scene[/]")

    console = Console(file=io.StringIO(), width=120, height=30, force_terminal=True)
    task = asyncio.create_task(LiveView(scene, console).run())
    await asyncio.sleep(2.0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "cannot be drawn now (ZeroDivisionError: no scene[/])" in console.file.getvalue()  # type: ignore[attr-defined]


def twofold(*more: Record) -> ObservedGroup:
    """Two processes with two consumers each."""
    ids = {f"{client}-{number}f1d2c34-0000-1111-2222-333344445555": f"pay-{number}"
           for number in (1, 2) for client in ("orders", "refunds")}  # fmt: skip
    reports = (report(member, instance=name, process=f"1{name[-1]}-aa") for member, name in ids.items())
    return view(base(1, {member: (index,) for index, member in enumerate(ids)}), *reports, *more).state(1.0)


def test_members_of_one_instance_are_shown_by_instance_and_client() -> None:
    state = twofold(decision(replicas_actual=2, replicas_wanted=3))
    lines = status_lines(state, partitions=True)
    assert lines[0] == "payments-service: generation 1, leader pay-1/orders"
    assert "  replicas  2 with 4 members, 3 wanted" in lines
    assert [line.split("  ")[0] for line in lines if "running" in line] == [
        "pay-1/orders *", "pay-1/refunds", "pay-2/orders", "pay-2/refunds",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines[-4:]] == [
        "pay-1/orders", "pay-1/refunds", "pay-2/orders", "pay-2/refunds",
    ]  # fmt: skip
    assert group_line(state).startswith("payments-service: 2 replicas, ")


def test_victims_are_told_as_instances() -> None:
    members = [f"{client}-2f1d2c34-0000-1111-2222-333344445555" for client in ("orders", "refunds")]
    going = decision(outcome="down", replicas_actual=2, replicas_wanted=1, victims=tuple(members))
    told = next(line for line in status_lines(twofold(going)) if "decision" in line)
    assert told.endswith("scales down, 2 -> 1 replica, pay-2 to go: it fits")


def test_what_has_not_told_its_instance_is_no_replica() -> None:
    lines = status_lines(view(base(1, {"a": (0,), "b": (1,)}), report("a", instance="pay-1"), report("b")).state(1.0))
    assert "  replicas  1 (1 member has not told the instance yet)" in lines


def test_several_processes_of_one_instance_are_told() -> None:
    state = view(
        base(1, {"a": (0,), "b": (1,)}),
        report("a", instance="box", process="17-aa"),
        report("b", instance="box", process="18-bb"),
    ).state(1.0)
    assert status_lines(state)[-1].strip() == (
        "2 processes (17, 18) are the instance box: they count as one replica, and are ended together. If they are "
        "started and ended one by one, give each a LOADTRIM_INSTANCE of its own."
    )


def test_the_live_view_has_a_row_for_each_member_of_a_process() -> None:
    """The last member of a process stood for all of them."""
    instances = [InstanceInfo(name=f"pay-{n}", phase=Phase.RUNNING, asked_at=0.0, started_at=0.0) for n in (1, 2, 3)]
    text = shown(Scene(now=1.0, started_at=0.0, state=twofold(), instances=instances, wanted=3))
    for words in ("pay-1/orders *", "pay-1/refunds", "pay-2/orders", "pay-2/refunds", "starting (1 s)", "3 replicas"):
        assert words in text, words


def test_a_decision_that_knew_no_load_tells_none() -> None:
    """It said "load 0 of 1 busy seconds (0 %)" beside "BUSY 100 %"."""
    state = view(
        base(1, {"a": (0,)}),
        report(
            "a", PartitionReport(topic="payments", partition=0, arrived=40, lag=121), instance="p", busy_seconds=1.0
        ),
        decision(outcome="hold", replicas_actual=1, replicas_wanted=1, startup_seconds=None),
    ).state(1.0)
    assert "  load      40 records/s; no decision has told the work yet" in status_lines(state)
