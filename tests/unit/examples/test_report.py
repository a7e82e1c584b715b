"""The report's numbers, computed by hand for runs small enough for that."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from demo import __main__ as demo
from demo.follow import Follower
from demo.journal import read_run
from demo.report import NOT_THE_PAPERS, SETTING_FILE, Replica, Report, Setting, main, make_report, percentile, render
from demo.telemetry import ControlEntry, OwnerChange, Telemetry, fold, load_entries, save_entries
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import Record, encode
from loadtrim_agent.wire.ownership_records import AssignmentRecord, HelloRecord, MemberEntry, ReleaseRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord
from unit.examples.stories import EPOCH_NS, Story

START = EPOCH_NS / 1e9


def setting(**changes: object) -> Setting:
    base = Setting(
        source="a test",
        per_second=(10.0, 0.0, 10.0),
        partitions=2,
        shares=(0.5, 0.5),
        objective_seconds=0.5,
        busy_seconds=0.1,
        started_at=START,
        ended_at=START + 4,
    )
    return msgspec.structs.replace(base, **changes)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "run")


def ten_then_ten(story: Story) -> None:
    """Two bursts, all in partition 0, 100 ms a record, one process: done 100, 200, ... 1000 ms after the burst."""
    for burst, begin in enumerate((0, 2000)):
        for index in range(10):
            offset = burst * 10 + index
            story.sent(0, offset, at=begin)
            story.handed("payments-1", 0, offset, at=begin + index * 100)
            story.done("payments-1", 0, offset, at=begin + (index + 1) * 100)
    story.ends("payments-1", 4000)


def report_of(story: Story, telemetry: Telemetry | None = None, **changes: object) -> Report:
    return make_report(read_run(story.write()), setting(**changes), telemetry or Telemetry())


class TestNumbers:
    def test_share_in_time_and_percentiles(self, story: Story) -> None:
        ten_then_ten(story)
        summary = report_of(story).summary
        assert summary.share_in_time == 0.5
        assert (summary.latency.p50, summary.latency.p90, summary.latency.max) == pytest.approx((0.5, 0.9, 1.0))
        assert summary.ok

    def test_never_done_counts_as_late(self, story: Story) -> None:
        ten_then_ten(story)
        for offset in range(20, 40):
            story.sent(0, offset, at=2000)
        summary = report_of(story).summary
        assert summary.share_in_time == 0.25
        assert summary.lost == 20
        assert not summary.ok

    def test_the_first_time_done_is_what_counts(self, story: Story) -> None:
        ten_then_ten(story)
        story.works("payments-2", 0, range(1), at=9000)
        summary = report_of(story).summary
        assert summary.repeated == 1
        assert summary.latency.max == pytest.approx(1.0)

    def test_possible_share_is_what_one_partitions_order_allows(self, story: Story) -> None:
        ten_then_ten(story)
        assert report_of(story).summary.share_possible == 0.5
        assert report_of(story, busy_seconds=0.04).summary.share_possible == 1.0

    def test_possible_as_played_begins_when_a_record_is_acknowledged_and_takes_what_it_took(self, story: Story) -> None:
        """Acknowledged after a millisecond, the fifth record of a burst is done 501 ms after it."""
        ten_then_ten(story)
        for busy_seconds in (0.1, 0.04):
            assert report_of(story, busy_seconds=busy_seconds).share_possible_as_played == 0.4

    def test_timestamps_of_the_records_are_the_beginning(self, story: Story) -> None:
        """The broker's unit is the millisecond, rounded down: a latency is never made shorter by it."""
        story.sent(0, 0, at=1.9)
        story.handed("payments-1", 0, 0, at=2.9)
        story.done("payments-1", 0, 0, at=3.9)
        story.ends("payments-1", 5)
        assert report_of(story).summary.latency.max == pytest.approx(0.0029)

    def test_seconds(self, story: Story) -> None:
        ten_then_ten(story)
        rows = report_of(story).seconds
        assert [(row.records, row.late, row.by_partition) for row in rows] == [
            (10, 5, (10, 0)),
            (0, 0, (0, 0)),
            (10, 5, (10, 0)),
        ]
        assert rows[1].latency_max is None
        assert rows[2].latency_max == pytest.approx(1.0)

    def test_replica_minutes_from_request_until_exit_within_the_run(self, story: Story) -> None:
        ten_then_ten(story)
        replicas = (
            Replica(name="a", asked_at=START - 10, started_at=START - 9),
            Replica(name="b", asked_at=START + 1, started_at=START + 2, ended_at=START + 3),
            Replica(name="c", asked_at=START + 3.5, ended_at=START + 9),
            Replica(name="gone", asked_at=START - 10, started_at=START - 9, ended_at=START - 5),
        )
        summary = report_of(story, replicas=replicas).summary
        assert summary.replica_minutes == pytest.approx((4 + 2 + 0.5) / 60)
        assert summary.replicas_max == 2
        assert (summary.scale_ups, summary.scale_downs) == (2, 1)

    def test_restart_after_a_crash_is_no_scaling(self, story: Story) -> None:
        ten_then_ten(story)
        replicas = (
            Replica(name="a", asked_at=START - 1, started_at=START - 1, ended_at=START + 1),
            Replica(name="a", asked_at=START + 1, started_at=START + 2),
        )
        summary = report_of(story, replicas=replicas).summary
        assert (summary.scale_ups, summary.scale_downs, summary.restarts) == (0, 0, 1)

    def test_least_replica_minutes(self, story: Story) -> None:
        """Ten records of 0.1 s to be done in 0.5 s take two replicas; an empty second still takes one."""
        ten_then_ten(story)
        assert report_of(story).summary.replica_minutes_least == pytest.approx((2 + 1 + 2) / 60)
        assert report_of(story, even=True).summary.replica_minutes_least == pytest.approx(3 / 60)

    def test_time_per_record_is_of_those_that_waited(self, story: Story) -> None:
        story.send_all({0: 4})
        idle_from = story.works("a", 0, range(3), at=10, takes=5)  # 5.1 ms from one to the next, twice
        story.works("a", 0, range(3, 4), at=idle_from + 50, takes=5)
        story.ends("a", 200)
        assert report_of(story).summary.spent_seconds_mean == pytest.approx(0.0051)

    def test_no_time_per_record_where_none_waited(self, story: Story) -> None:
        story.send_all({0: 1})
        story.works("a", 0, range(1), at=10)
        story.ends("a", 200)
        assert report_of(story).summary.spent_seconds_mean is None

    def test_gap_is_the_wait_of_a_record_whose_new_owner_is_idle(self, story: Story) -> None:
        story.send_all({0: 3})
        story.works("a", 0, range(1), at=10, takes=5)
        story.works("b", 0, range(1, 2), at=19, takes=5)  # 4 ms after a was done
        story.works("c", 1, range(1), at=20, takes=10)
        story.works("c", 0, range(2, 3), at=31, takes=5)  # c was busy until 30
        for who in "abc":
            story.ends(who, 100)
        summary = report_of(story).summary
        assert summary.gap_p50 == pytest.approx(0.001)
        assert summary.gap_p99 == pytest.approx(0.004)
        assert summary.moves == 2

    def test_what_happens_while_stopping_is_no_move_of_the_run(self, story: Story) -> None:
        ten_then_ten(story)
        moves = [
            OwnerChange(at=START + at, partition=Partition("payments", 0), instance="b", moved=True)
            for at in (-1, 1, 3.9, 4.1)
        ]
        handoffs = [(START + at, seconds) for at, seconds in ((-1, 9.0), (1, 0.01), (4.5, 0.02), (6, 9.0))]
        telemetry = Telemetry(owner_changes=moves, handoffs=handoffs, generations=1)
        summary = report_of(story, telemetry).summary
        assert summary.moves == 2
        assert (summary.handoff_p50, summary.handoff_p99) == (0.01, 0.02)

    def test_owners_from_the_journals_without_telemetry(self, story: Story) -> None:
        story.send_all({0: 3})
        story.works("a", 0, range(1), at=10)
        story.works("b", 0, range(1, 3), at=20)
        changes = report_of(story).owner_changes
        assert [(round(change.at - START, 3), change.instance, change.moved) for change in changes] == [
            (0.01, "a", False),
            (0.02, "b", True),
        ]

    def test_percentile_is_the_nearest_rank(self) -> None:
        assert percentile([1, 2, 3, 4], 0.5) == 2
        assert percentile([1, 2, 3, 4], 0.51) == 3
        assert percentile([1], 0.999) == 1
        with pytest.raises(ValueError, match="no values"):
            percentile([], 0.5)


class TestRendering:
    def test_every_fifth_second_says_that_it_is_not_comparable(self, story: Story) -> None:
        ten_then_ten(story)
        assert NOT_THE_PAPERS in render(report_of(story))
        assert NOT_THE_PAPERS not in render(report_of(story, comparable=True))

    def test_readable(self, story: Story) -> None:
        ten_then_ten(story)
        text = render(report_of(story))
        assert "50.00% within 0.5 s" in text
        assert "lost 0, repeated 0, double owners 0" in text

    def test_command_line(self, story: Story, capsys: pytest.CaptureFixture[str]) -> None:
        ten_then_ten(story)
        directory = story.write()
        assert main([str(directory)]) == 2
        (directory / SETTING_FILE).write_bytes(msgspec.json.encode(setting()))
        assert main([str(directory), "--json"]) == 0
        out = capsys.readouterr().out
        assert msgspec.json.decode(out)["summary"]["share_in_time"] == 0.5
        story.sent(0, 20)
        story.write()
        assert main([str(directory)]) == 1

    @pytest.mark.slow
    def test_picture(self, story: Story, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        from demo.plot import plot

        ten_then_ten(story)
        replicas = (Replica(name="payments-1", asked_at=START - 1, started_at=START),)
        path = tmp_path / "new" / "demo.png"
        plot(report_of(story, replicas=replicas), path)
        assert path.read_bytes().startswith(b"\x89PNG")


def entries(*records: Record) -> list[ControlEntry]:
    return [
        ControlEntry(record.lands_on, offset, START + offset, encode(record).decode())
        for offset, record in enumerate(records)
    ]


def base(generation: int, **owners: tuple[int, ...]) -> AssignmentRecord:
    members = {member: MemberEntry(attempt=1, owns=(("payments", owned),)) for member, owned in owners.items()}
    return AssignmentRecord(group="g", member="m1", at=START, generation=generation, members=members)


def release(generation: int, version: int, source: str, target: str, partition: int = 0) -> ReleaseRecord:
    return ReleaseRecord(
        group="g", member=source, at=START, generation=generation, topic="payments", partition=partition,
        version=version, source=source, target=target, offset=1,
    )  # fmt: skip


class TestTelemetry:
    def test_moves_are_the_releases_that_count(self) -> None:
        telemetry = fold(
            entries(
                HelloRecord(group="g", member="m1", at=START, instance="payments-1"),
                HelloRecord(group="g", member="m2", at=START, instance="payments-2"),
                base(1, m1=(0, 1), m2=()),
                release(1, 0, "m1", "m2"),
                release(1, 0, "m1", "m2"),  # again: void
                release(1, 1, "m2", "m1"),
                base(2, m1=(1,), m2=(0,)),
                release(1, 2, "m1", "m2"),  # of the generation before: void
                release(2, 0, "m1", "m2", partition=1),
            )
        )
        assert [(change.partition.partition, change.instance, change.moved) for change in telemetry.owner_changes] == [
            (0, "payments-1", False),
            (1, "payments-1", False),
            (0, "payments-2", True),
            (0, "payments-1", True),
            (0, "payments-2", False),
            (1, "payments-2", True),
        ]
        assert len(telemetry.moves) == 3
        assert telemetry.releases_void == 2
        assert telemetry.generations == 2

    def test_release_that_stands_before_its_base(self) -> None:
        telemetry = fold(entries(release(3, 0, "m1", "m2"), base(3, m1=(0,), m2=())))
        assert [change.instance for change in telemetry.owner_changes] == ["m1", "m2"]
        assert telemetry.releases_void == 0

    def test_partition_that_nobody_owns_any_more(self) -> None:
        telemetry = fold(entries(base(1, m1=(0,)), base(2, m1=())))
        assert telemetry.owner_changes[-1].instance is None
        assert telemetry.owner_changes[-1].partition == Partition("payments", 0)

    def test_reports_and_decisions_add_up(self) -> None:
        report = ReportRecord(
            group="g", member="m1", at=START, sequence=1, generation=1, handoffs=(0.01, 0.02),
            late={"serial": 3}, startup_seconds=0.7,
        )  # fmt: skip
        decision = DecisionRecord(
            group="g", member="m1", at=START, generation=1, sequence=1, outcome="up", reason="load", replicas_wanted=3
        )
        telemetry = fold([*entries(report, report, decision), ControlEntry(0, 9, START, "{")])
        assert telemetry.handoffs == [(START, 0.01), (START, 0.02)] * 2
        assert telemetry.late == {"serial": 6}
        assert telemetry.startup_seconds == [0.7, 0.7]
        assert [found.replicas_wanted for found in telemetry.decisions] == [3]
        assert telemetry.unreadable == 1

    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        kept = entries(base(1, m1=(0,)), release(1, 0, "m1", "m2"))
        save_entries(tmp_path / "control.jsonl", kept)
        assert load_entries(tmp_path / "control.jsonl") == kept
        assert load_entries(tmp_path / "other.jsonl") == []


class TestFollower:
    def test_reads_on_where_it_stopped_and_leaves_half_lines(self, story: Story) -> None:
        ten_then_ten(story)
        directory = story.write()
        path = story.path("payments-1")
        whole = path.read_bytes()
        half = len(whole) // 2 + 3
        path.write_bytes(whole[:half])
        follower = Follower(directory)
        follower.poll()
        first = len(follower.done)
        assert 0 < first < 20
        path.write_bytes(whole)
        follower.poll()
        follower.poll()
        assert len(follower.done) == 20
        assert follower.acknowledged == 20
        assert follower.done_last_ns == 3_000_000_000
        assert [round(latency, 3) for _, latency in follower.recent][:3] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("broken", "code"), [("", 0), ("lost", 1), ("double owner", 1)])
def test_the_demo_ends_with_1_if_a_record_was_lost_or_a_partition_had_two_owners(
    broken: str, code: int, story: Story, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ten_then_ten(story)
    if broken == "lost":
        story.sent(0, 20, at=2000)
    if broken == "double owner":  # while the other one has a record in hand
        story.handed("payments-2", 0, 5, at=550)
        story.done("payments-2", 0, 5, at=560)
    report = report_of(story)
    monkeypatch.setattr(demo, "_demo", lambda _: report)
    assert demo.main() == code
    assert ("FAILED" in capsys.readouterr().out) == bool(broken)
