"""Parts of the Spark demo that need neither Kafka nor Spark: the schedule, the weeks before, the outcome."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from benchmarks.baselines.__main__ import main, settings_of
from benchmarks.baselines.outcome import GroupsOutcome, held_from, judged, owning, render
from benchmarks.baselines.past import HIGH, LOW, PastWeeks, load_of, reports, truth_rising_at
from benchmarks.baselines.prepare import Pipeline, StepFailedError
from benchmarks.baselines.schedule import BUCKET_SECONDS, GROUPS_SECONDS, NotInTimeError, Schedule, clock, planned

from demo.journal import read_run
from demo.load import shares_even, shares_skewed
from demo.report import CONTROL_FILE, Replica, Report, Setting, make_report
from demo.telemetry import ControlEntry, OwnerChange, Telemetry, save_entries
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord
from loadtrim_spark.evaluation.truth import DAY_SECONDS, MINUTE_SECONDS, WEEK_SECONDS
from unit.examples.stories import EPOCH_NS, Story

RISE = 1_795_048_500
"""2026-11-19 00:35 UTC, a Thursday."""
START = EPOCH_NS / 1e9


class TestSchedule:
    @pytest.mark.parametrize("now", [RISE - 300.0, RISE - 299.9, RISE - 0.1])
    def test_the_rise_is_the_first_boundary_for_which_the_time_suffices(self, now: float) -> None:
        schedule = planned(now, 60.0, 100)
        assert schedule.rise_at % BUCKET_SECONDS == 0
        assert schedule.groups_at - now >= 60.0
        assert schedule.groups_at - BUCKET_SECONDS - now < 60.0, "the boundary before would not do"
        assert (schedule.rise_at - schedule.begin_at, schedule.begin_at - schedule.groups_at) == (100, GROUPS_SECONDS)

    def test_a_boundary_that_just_suffices_is_taken(self) -> None:
        assert planned(RISE - 60.0 - GROUPS_SECONDS - 100, 60.0, 100).rise_at == RISE

    def test_no_time_left_is_told_with_what_to_do(self) -> None:
        schedule = Schedule(RISE, 100)
        schedule.check(RISE - 400.0, schedule.groups_at)
        with pytest.raises(NotInTimeError, match=r"took 300 s, and 280 s were left .* 00:35:00 .* PREPARE=450"):
            schedule.check(RISE - 400.0, RISE - 100.0)

    def test_the_clock_is_that_of_the_weeks(self) -> None:
        assert clock(RISE) == "00:35:00"


class TestPast:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "rise", [RISE, RISE - 35 * 60, RISE - 40 * 60, RISE + 4 * DAY_SECONDS, RISE + 5 * DAY_SECONDS]
    )
    def test_it_rises_at_the_same_time_of_every_day_and_today(self, rise: int) -> None:
        """Also at midnight, five minutes before it, and on the first and the last day of a week."""
        truth = truth_rising_at(rise, 3, shares_even(9), 0.0059)
        today = load_of(truth, rise - 100, 175).per_second
        assert max(today[:100]) < 2 * LOW
        assert min(today[102:]) > 0.6 * HIGH
        for days in range(1, 22):
            then = truth.seconds(rise - days * DAY_SECONDS - 60, 120)
            assert max(then[:60]) < 2 * LOW
            assert min(then[63:]) > 0.6 * HIGH

    @pytest.mark.slow
    def test_the_weeks_are_told_minute_by_minute(self) -> None:
        past = self.past(weeks=2)
        told = list(reports(past))
        minutes = defaultdict[int, list[ReportRecord]](list)
        for report in told:
            minutes[int(report.at // MINUTE_SECONDS) * MINUTE_SECONDS].append(report)
        assert sorted(minutes) == list(range(past.begin, past.end, MINUTE_SECONDS))
        assert all(earlier.at <= later.at for earlier, later in itertools.pairwise(told))
        counts = past.truth.counts()[(past.begin - past.truth.begin) // MINUTE_SECONDS :]
        for arrived, (minute, of_minute) in zip(counts, sorted(minutes.items()), strict=False):
            assert len(of_minute) == past.members(minute)
            partitions = [entry.partition for report in of_minute for entry in report.partitions]
            assert len(set(partitions)) == len(partitions), "a partition has one owner"
            assert sum(entry.arrived for report in of_minute for entry in report.partitions) == arrived
        identities = {(report.member, report.sequence) for report in told}
        assert len(identities) == len(told)

    @pytest.mark.slow
    def test_who_comes_for_the_rise_tells_how_long_it_took(self) -> None:
        past = self.past(weeks=2)
        busy = past.members(RISE - DAY_SECONDS)
        assert (past.members(RISE - DAY_SECONDS - MINUTE_SECONDS), busy) == (1, 3)
        started = [report for report in reports(past) if report.startup_seconds is not None]
        assert len(started) == 1 + 14 * (busy - 1)
        assert all(21.0 <= (report.startup_seconds or 0.0) <= 22.5 for report in started)
        assert {report.at // MINUTE_SECONDS * MINUTE_SECONDS % DAY_SECONDS for report in started[1:]} == {
            RISE % DAY_SECONDS
        }

    @pytest.mark.slow
    def test_every_report_is_one_that_agents_read(self) -> None:
        one = next(iter(reports(self.past(weeks=1))))
        assert decode(encode(one)) == one
        assert one.interval == MINUTE_SECONDS

    @pytest.mark.slow
    def test_partitions_get_their_shares(self) -> None:
        got = defaultdict[int, int](int)
        for report in reports(self.past(weeks=1, shares=shares_skewed(9))):
            for entry in report.partitions:
                got[entry.partition] += entry.arrived
        total = sum(got.values())
        assert [got[index] / total for index in range(9)] == pytest.approx(shares_skewed(9), abs=0.01)

    def past(self, weeks: int, shares: tuple[float, ...] = shares_even(9)) -> PastWeeks:
        end = RISE - 600
        return PastWeeks(
            group="g",
            topic="payments",
            truth=truth_rising_at(RISE, weeks, shares, 0.0059),
            begin=end - weeks * WEEK_SECONDS,
            end=end,
            objective_seconds=0.5,
            startup_seconds=20.0,
        )


class TestOutcome:
    """Loads of 8 s, one record a second; the rise comes at the fourth."""

    SCHEDULE = Schedule(int(START) + 4, 4)

    def test_the_last_stretch_counts(self) -> None:
        steps = [(0.0, 1), (2.0, 3), (3.0, 1), (5.0, 3), (6.0, 4), (9.0, 1)]
        assert held_from(steps, 3, 8.0) == 5.0
        assert held_from(steps, 3, 2.5) == 2.0
        assert held_from(steps, 3, 4.0) is None
        assert held_from(steps, 3, 10.0) is None
        assert held_from([], 1, 10.0) is None

    def test_instances_that_own_something(self) -> None:
        changes = [
            OwnerChange(at=at, partition=Partition("t", partition), instance=instance, moved=False)
            for at, partition, instance in ((1.0, 0, "a"), (2.0, 1, "a"), (3.0, 1, "b"), (4.0, 0, "b"), (5.0, 1, None))
        ]
        assert owning(changes) == [(1.0, 1), (2.0, 1), (3.0, 2), (4.0, 1), (5.0, 1)]

    def test_both_are_asked_for_the_same_replicas(self, tmp_path: Path) -> None:
        """One asked 2.5 s before for three, and for four later; the other 1.5 s after the rise, for three."""
        outcome = self.outcome(tmp_path, {0.0: 1, 1.5: 3, 6.0: 4}, {0.0: 1, 5.5: 3})
        assert outcome.replicas == 3
        assert outcome.learnt.asked_before_seconds == pytest.approx(2.5)
        assert outcome.plain.asked_before_seconds == pytest.approx(-1.5)
        assert (outcome.learnt.reason, outcome.plain.reason) == ("for 3 at 1.5", "for 3 at 5.5")
        assert (outcome.learnt.late, outcome.plain.late) == (0, 4)
        assert outcome.faults == ()
        text = render(outcome)
        assert "3 replicas asked for" in text
        assert "2.5 s before the rise" in text
        assert "1.5 s after the rise" in text
        assert "4 of 8" in text

    def test_who_asks_with_the_rise_has_failed(self, tmp_path: Path) -> None:
        outcome = self.outcome(tmp_path, {0.0: 1, 4.0: 3}, {0.0: 1, 5.5: 3})
        assert [fault for fault in outcome.faults if "did not want" in fault]
        assert msgspec.json.decode(outcome.as_json())["faults"]

    def test_fewer_than_the_rise_takes_do_not_count(self, tmp_path: Path) -> None:
        outcome = self.outcome(tmp_path, {0.0: 1, 1.0: 2, 4.5: 3}, {0.0: 1, 5.5: 3})
        assert outcome.learnt.asked_before_seconds == pytest.approx(-0.5)
        assert outcome.faults

    def test_who_never_asks_has_failed(self, tmp_path: Path) -> None:
        """Wanted before, and given back when the load was there."""
        outcome = self.outcome(tmp_path, {0.0: 1, 1.0: 3, 5.0: 2, 6.5: 3}, {0.0: 3})
        assert outcome.learnt.asked_before_seconds is None
        assert "not in time to tell" in render(outcome)
        assert len(outcome.faults) == 1

    def test_a_loss_on_either_side_is_a_fault(self, tmp_path: Path) -> None:
        outcome = self.outcome(tmp_path, {0.0: 1, 1.5: 3}, {0.0: 1, 5.5: 3}, lost=True)
        assert [fault for fault in outcome.faults if fault.startswith("without")]

    @pytest.mark.slow
    def test_the_picture_is_drawn(self, tmp_path: Path) -> None:
        from benchmarks.baselines.picture import picture

        both = self.runs(tmp_path, {0.0: 1, 1.5: 3}, {0.0: 1, 5.5: 3})
        outcome = self.outcome_of(both, tmp_path)
        picture(outcome, both, tmp_path / "out" / "one.png")
        assert (tmp_path / "out" / "one.png").read_bytes().startswith(b"\x89PNG")

    def outcome(
        self, path: Path, learnt: dict[float, int], plain: dict[float, int], lost: bool = False
    ) -> GroupsOutcome:
        return self.outcome_of(self.runs(path, learnt, plain, lost), path)

    def outcome_of(self, both: tuple[Report, Report], path: Path) -> GroupsOutcome:
        names = ("with baselines", "without")
        replicas, learnt, plain = judged(both, names, (path / "learnt", path / "plain"), self.SCHEDULE)
        return GroupsOutcome(
            rise_at=self.SCHEDULE.rise_at,
            low_seconds=4,
            high_seconds=4,
            startup_seconds=20.0,
            replicas=replicas,
            learnt=learnt,
            plain=plain,
            weeks=3,
            reports=1,
            written_seconds=1.0,
            ingest_seconds=1.0,
            baselines_seconds=1.0,
        )

    def runs(
        self, path: Path, learnt: dict[float, int], plain: dict[float, int], lost: bool = False
    ) -> tuple[Report, Report]:
        return self.run(path / "learnt", learnt, 0.1), self.run(path / "plain", plain, 1.0, lost=lost)

    def run(self, path: Path, wanted: dict[float, int], slow: float, *, lost: bool = False) -> Report:
        """Records of the last four seconds take ``slow`` s; the last one may never get done."""
        story = Story(path)
        for second in range(8):
            story.sent(0, second, at=second * 1000)
            if lost and second == 7:
                break
            takes = 100 if second < 4 else slow * 1000
            story.handed("a", 0, second, at=second * 1000 + 1)
            story.done("a", 0, second, at=second * 1000 + takes)
        story.ends("a", 9000)
        save_entries(
            path / CONTROL_FILE,
            [
                ControlEntry(TELEMETRY, number, START + at, encode(decided(number, at, count)).decode())
                for number, (at, count) in enumerate(wanted.items())
            ],
        )
        setting = Setting(
            source="a test",
            per_second=(1.0,) * 8,
            partitions=1,
            shares=(1.0,),
            busy_seconds=1.2,  # 2.4 W: three replicas are needed
            started_at=START,
            ended_at=START + 8.5,
            replicas=(Replica(name="a", asked_at=START - 1, started_at=START - 1),),
            comparable=True,
        )
        decisions = [decided(number, at, count) for number, (at, count) in enumerate(wanted.items())]
        return make_report(read_run(story.write()), setting, Telemetry(decisions=decisions))


def decided(number: int, at: float, count: int) -> DecisionRecord:
    return DecisionRecord(
        group="g",
        member="m",
        at=START + at,
        generation=1,
        sequence=number,
        outcome="keep",
        reason=f"for {count} at {at}",
        replicas_wanted=count,
    )


class TestSettings:
    def test_defaults(self) -> None:
        settings = settings_of({})
        assert (settings.weeks, settings.startup_seconds, settings.prepare_seconds) == (3, 20.0, None)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("WEEKS", "1"),
            ("WEEKS", "99"),
            ("LOW", "30"),
            ("HIGH", "10"),
            ("PREPARE", "soon"),
            ("BUSY", "0"),
            ("W", "inf"),
        ],
    )
    def test_what_cannot_be_used_is_named(self, name: str, value: str) -> None:
        with pytest.raises(ValueError, match=f"{name} is '?{value}'?; allowed"):
            settings_of({name: value})

    def test_wrong_use_is_told_before_anything_starts(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("LOW", "soon")
        assert main() == 2
        assert "LOW is 'soon'; allowed: a number, at least 90" in capsys.readouterr().err


def test_a_command_that_fails_ends_the_demo_with_what_it_said(tmp_path: Path) -> None:
    told: list[str] = []
    pipeline = Pipeline("127.0.0.1:1", tmp_path, told.append)
    with pytest.raises(StepFailedError, match="`nonsense` ended with code"):
        pipeline._run(["nonsense"])
    assert told[0].startswith("$ python -m loadtrim_spark nonsense --bootstrap 127.0.0.1:1")
    assert len(told) > 1, "an error of argparse's, or that Spark is not installed"
