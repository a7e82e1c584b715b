"""The checker must find every fault that is put in, and nothing where there is none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.checker import CheckerVerdict, check, main
from demo.journal import JournalError, read_run
from payments.service import JOURNAL_VERSION, Journal
from unit.examples.stories import MILLISECOND, Story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "run")


def verdict_of(story: Story, *, manual_commits: bool = False) -> CheckerVerdict:
    return check(read_run(story.write()), manual_commits=manual_commits)


def clean_handoff(story: Story) -> None:
    """Partition 0 goes from a to b and back to a, partition 1 stays with b; all leave in order."""
    story.send_all({0: 30, 1: 20})
    at = story.works("a", 0, range(10), at=10)
    story.works("b", 1, range(20), at=10, takes=1)
    at = story.works("b", 0, range(10, 20), at)
    at = story.works("a", 0, range(20, 30), at)
    story.ends("a", at)
    story.ends("b", at)


class TestCleanRuns:
    def test_handoffs_back_and_forth_are_spotless(self, story: Story) -> None:
        clean_handoff(story)
        verdict = verdict_of(story)
        assert verdict.spotless, str(verdict)
        assert (verdict.sent, verdict.acknowledged, verdict.handed_out, verdict.done) == (50, 50, 50, 50)
        assert verdict.processes == 2

    def test_handoff_at_the_very_nanosecond_is_no_overlap(self, story: Story) -> None:
        story.send_all({0: 2})
        story.handed("a", 0, 0, at=1)
        story.done("a", 0, 0, at=6)
        story.handed("b", 0, 1, at=6)
        story.done("b", 0, 1, at=9)
        assert verdict_of(story).spotless

    def test_batch_in_hand_of_one_process_is_no_overlap(self, story: Story) -> None:
        story.send_all({0: 3})
        for offset in range(3):
            story.handed("a", 0, offset, at=1)
        for offset in range(3):
            story.done("a", 0, offset, at=5 + offset)
        assert verdict_of(story).spotless

    def test_one_offset_in_two_partitions_is_no_repetition(self, story: Story) -> None:
        story.send_all({0: 5, 1: 5})
        story.works("a", 0, range(5), at=1)
        story.works("b", 1, range(5), at=1)
        assert verdict_of(story).spotless

    def test_sent_without_acknowledgement_is_neither_lost_nor_foreign(self, story: Story) -> None:
        story.send_all({0: 2})
        story.sent(0, 2, acknowledged=False)
        story.sent(0, 99, acknowledged=False)
        story.works("a", 0, range(3), at=1)
        verdict = verdict_of(story)
        assert verdict.spotless
        assert verdict.unacknowledged == 2

    def test_crash_is_not_held_against_anybody(self, story: Story) -> None:
        """Killed with a record in hand: handed out again, by the next owner, after the session time-out."""
        story.send_all({0: 10})
        story.works("a", 0, range(5), at=0)
        story.handed("a", 0, 5, at=30)
        story.dies("a", at=33)
        story.works("b", 0, range(5, 10), at=10_000)
        verdict = verdict_of(story)
        assert verdict.ok, str(verdict)
        assert [again.offset for again in verdict.handed_out_again] == [5]
        assert not verdict.repeated
        assert not verdict.unknown_ends

    def test_two_processes_of_one_id_have_each_died_when_they_did(self, story: Story) -> None:
        """The system gives an id again, after so many others."""
        story.send_all({0: 3})
        story.handed("a", 0, 0, at=1)
        story.dies("a", at=5)
        story.starts_with_the_id_of("a", "c", at=50)
        story.works("b", 0, range(2), at=60)
        story.handed("c", 0, 2, at=90)
        story.dies("c", at=95)
        story.works("b", 0, range(2, 3), at=200)
        run = read_run(story.write())
        assert {process.name: process.exited_ns for process in run.processes if process.exited_ns} == {
            "a": 5 * MILLISECOND,
            "c": 95 * MILLISECOND,
        }
        assert check(run).ok


class TestLoss:
    def test_record_never_handed_out(self, story: Story) -> None:
        story.send_all({0: 10})
        story.works("a", 0, range(6), at=0)
        story.works("a", 0, range(7, 10), at=100)
        verdict = verdict_of(story)
        assert [(lost.partition, lost.offset, lost.record_id) for lost in verdict.lost] == [("payments-0", 6, "0:6")]
        assert not verdict.ok
        assert "never handed out" in str(verdict)

    def test_record_in_hand_at_a_crash_and_never_again(self, story: Story) -> None:
        story.send_all({0: 3})
        story.works("a", 0, range(2), at=0)
        story.handed("a", 0, 2, at=20)
        story.dies("a", at=22)
        verdict = verdict_of(story)
        assert [lost.offset for lost in verdict.lost] == [2]
        assert verdict.lost[0].handed_out[0].process.startswith("a/")
        assert "never done" in str(verdict)

    def test_whole_partition_that_nobody_touched(self, story: Story) -> None:
        story.send_all({0: 3, 1: 4})
        story.works("a", 0, range(3), at=0)
        assert len(verdict_of(story).lost) == 4

    def test_what_lies_above_the_commit_is_left_over_below_it_is_lost(self, story: Story) -> None:
        story.send_all({0: 10})
        story.works("a", 0, range(4), at=0)
        story.committed(0, 6)
        verdict = verdict_of(story)
        assert [lost.offset for lost in verdict.lost] == [4, 5]
        assert [left.offset for left in verdict.left_over] == [6, 7, 8, 9]
        story.committed(0, 4)
        verdict = verdict_of(story)
        assert verdict.ok
        assert not verdict.spotless


class TestRepeats:
    def test_done_twice_names_both_processes_and_times(self, story: Story) -> None:
        story.send_all({0: 10})
        story.works("a", 0, range(6), at=0)
        story.works("b", 0, range(4, 10), at=100)
        verdict = verdict_of(story)
        assert [(found.offset, found.times_done) for found in verdict.repeated] == [(4, 2), (5, 2)]
        first, second = verdict.repeated[0].handed_out
        assert (first.process[0], second.process[0]) == ("a", "b")
        assert first.done_at is not None
        assert first.done_at < second.handed_at
        assert verdict.ok, "a repetition alone is no loss and no double owner"
        assert not verdict.spotless

    def test_done_twice_by_one_process(self, story: Story) -> None:
        story.send_all({0: 3})
        story.works("a", 0, range(3), at=0)
        story.works("a", 0, range(1, 3), at=100)
        assert [found.offset for found in verdict_of(story).repeated] == [1, 2]

    def test_handed_out_twice_but_done_once(self, story: Story) -> None:
        story.send_all({0: 1})
        story.handed("a", 0, 0, at=1)
        story.ends("a", at=2)
        story.works("b", 0, range(1), at=3)
        verdict = verdict_of(story)
        assert [found.offset for found in verdict.handed_out_again] == [0]
        assert verdict.ok
        assert not verdict.spotless


class TestDoubleOwners:
    def test_two_records_of_a_partition_in_hand_at_once(self, story: Story) -> None:
        story.send_all({0: 2})
        story.handed("a", 0, 0, at=1)
        story.handed("b", 0, 1, at=5)
        story.done("a", 0, 0, at=6)
        story.done("b", 0, 1, at=9)
        verdict = verdict_of(story)
        (found,) = verdict.double_owners
        assert (found.kind, found.partition, found.holder.offset, found.intruder.offset) == (
            "overlap",
            "payments-0",
            0,
            1,
        )
        assert not verdict.ok

    def test_overlap_of_one_nanosecond(self, story: Story) -> None:
        story.send_all({0: 2})
        story.handed("a", 0, 0, at=1)
        story.done("a", 0, 0, at=5)
        story.handed("b", 0, 1, at=5 - 1e-6)
        story.done("b", 0, 1, at=9)
        assert len(verdict_of(story).double_owners) == 1

    def test_overlap_with_an_older_record_behind_newer_ones(self, story: Story) -> None:
        """One long record in hand, others of the same batch long done."""
        story.send_all({0: 4})
        for offset in range(3):
            story.handed("a", 0, offset, at=1)
        story.done("a", 0, 1, at=2)
        story.done("a", 0, 2, at=3)
        story.done("a", 0, 0, at=50)
        story.works("b", 0, range(3, 4), at=20)
        (found,) = verdict_of(story).double_owners
        assert found.holder.offset == 0

    def test_same_record_at_two_processes_at_once(self, story: Story) -> None:
        story.send_all({0: 1})
        story.works("a", 0, range(1), at=1)
        story.works("b", 0, range(1), at=2)
        verdict = verdict_of(story)
        assert len(verdict.double_owners) == 1
        assert len(verdict.repeated) == 1

    def test_taken_over_before_the_owner_died(self, story: Story) -> None:
        story.send_all({0: 2})
        story.handed("a", 0, 0, at=1)
        story.works("b", 0, range(2), at=10)
        story.dies("a", at=11)
        assert len(verdict_of(story).double_owners) == 1

    def test_record_left_in_hand_counts_up_to_the_last_sign_of_life(self, story: Story) -> None:
        """Nobody wrote down the end of a, but its journal goes on after b was handed its record."""
        story.send_all({0: 2, 1: 1})
        story.handed("a", 0, 0, at=1)
        story.works("b", 0, range(2), at=10)
        story.works("a", 1, range(1), at=30)
        verdict = verdict_of(story)
        assert {found.holder.process for found in verdict.double_owners} == {"a/1001"}
        assert verdict.unknown_ends == ("a/1001",)

    def test_stale_owner_goes_on_after_two_others(self, story: Story) -> None:
        story.send_all({0: 12})
        at = story.works("a", 0, range(3), at=0)
        at = story.works("b", 0, range(3, 8), at)
        at = story.works("c", 0, range(8, 9), at)
        story.dies("c", at)
        story.works("a", 0, range(3, 4), at + 1)
        story.works("b", 0, range(9, 12), at + 50)
        assert [found.holder.process[0] for found in verdict_of(story).double_owners] == ["b"]

    def test_handed_back_undone_is_lawful(self, story: Story) -> None:
        """b takes over, is handed a record, and gives it back without having done it."""
        story.send_all({0: 4})
        at = story.works("a", 0, range(2), at=0)
        story.handed("b", 0, 2, at)
        story.ends("b", at + 1)
        story.works("a", 0, range(2, 4), at + 2)
        verdict = verdict_of(story)
        assert verdict.ok, str(verdict)
        assert [found.offset for found in verdict.handed_out_again] == [2]

    def test_turns_without_overlap(self, story: Story) -> None:
        """Both go through the same records, never at the same moment."""
        story.send_all({0: 6})
        for offset in range(6):
            story.works("a", 0, range(offset, offset + 1), at=offset * 20)
            story.works("b", 0, range(offset, offset + 1), at=offset * 20 + 10)
        found = verdict_of(story).double_owners
        assert found
        assert {owner.kind for owner in found} == {"interleaved"}

    def test_stale_owner_goes_on_after_a_handoff(self, story: Story) -> None:
        story.send_all({0: 12})
        at = story.works("a", 0, range(5), at=0)
        at = story.works("b", 0, range(5, 9), at)
        at = story.works("a", 0, range(5, 7), at)
        story.works("b", 0, range(9, 12), at)
        found = verdict_of(story).double_owners
        assert [(owner.kind, owner.holder.process[0], owner.intruder.process[0]) for owner in found] == [
            ("interleaved", "b", "a")
        ]

    def test_start_at_an_old_commit_is_a_repetition_not_a_double_owner(self, story: Story) -> None:
        story.send_all({0: 12})
        at = story.works("a", 0, range(5), at=0)
        at = story.works("b", 0, range(5, 9), at)
        story.works("a", 0, range(3, 12), at)
        verdict = verdict_of(story)
        assert not verdict.double_owners
        assert len(verdict.repeated) == 6

    def test_manual_commits_leave_the_turns_out_and_the_overlaps_in(self, story: Story) -> None:
        story.send_all({0: 12})
        at = story.works("a", 0, range(5), at=0)
        at = story.works("b", 0, range(5, 9), at)
        story.works("a", 0, range(5, 12), at)
        assert verdict_of(story).double_owners
        assert not verdict_of(story, manual_commits=True).double_owners
        story.handed("a", 0, 12, at=900)
        story.handed("b", 0, 13, at=901)
        story.sent(0, 12)
        story.sent(0, 13)
        story.ends("a", 950)
        story.ends("b", 950)
        assert verdict_of(story, manual_commits=True).double_owners


class TestLeases:
    def frozen(self, story: Story) -> None:
        """a is frozen with record 2 in hand, b takes over, a wakes up and gets it done."""
        story.send_all({0: 6})
        story.works("a", 0, range(2), at=0)
        story.handed("a", 0, 2, at=20)
        story.works("b", 0, range(2, 6), at=11_000)
        story.done("a", 0, 2, at=11_002)

    def test_overlap_after_a_lost_lease_is_shown_and_forgiven(self, story: Story) -> None:
        self.frozen(story)
        story.loses_lease("a", at=10_000)
        verdict = verdict_of(story)
        assert verdict.ok
        assert len(verdict.after_lost_lease) == 1
        assert [found.offset for found in verdict.repeated] == [2]

    def test_without_the_supervisors_word_it_is_a_double_owner(self, story: Story) -> None:
        self.frozen(story)
        assert not verdict_of(story).ok

    def test_lease_lost_too_late_forgives_nothing(self, story: Story) -> None:
        self.frozen(story)
        story.loses_lease("a", at=11_001)
        assert not verdict_of(story).ok

    def test_lease_lost_before_the_record_was_handed_out_forgives_nothing(self, story: Story) -> None:
        self.frozen(story)
        story.loses_lease("a", at=19)
        assert not verdict_of(story).ok

    def test_sleeper_that_is_handed_more_is_a_double_owner(self, story: Story) -> None:
        self.frozen(story)
        story.loses_lease("a", at=10_000)
        story.handed("a", 0, 3, at=11_003)
        story.done("a", 0, 3, at=11_009)
        kinds = {found.kind for found in verdict_of(story).double_owners}
        assert kinds == {"overlap", "interleaved"}

    def test_owner_that_lost_its_lease_may_be_passed_over(self, story: Story) -> None:
        story.send_all({0: 8})
        at = story.works("a", 0, range(2), at=0)
        at = story.works("b", 0, range(2, 5), at)
        story.loses_lease("b", at + 10)
        story.works("a", 0, range(2, 8), at + 20)
        verdict = verdict_of(story)
        assert not verdict.double_owners
        assert len(verdict.repeated) == 3


class TestOrderAndOrigin:
    def test_first_handed_out_after_a_later_one(self, story: Story) -> None:
        story.send_all({0: 4})
        at = story.works("a", 0, range(2), at=0)
        at = story.works("a", 0, range(3, 4), at)
        story.works("a", 0, range(2, 3), at)
        verdict = verdict_of(story)
        assert [(found.later.offset, found.earlier.offset) for found in verdict.out_of_order] == [(3, 2)]
        assert verdict.ok
        assert not verdict.spotless

    def test_order_holds_over_processes(self, story: Story) -> None:
        story.send_all({0: 6})
        at = story.works("a", 0, range(3, 6), at=0)
        story.works("b", 0, range(3), at)
        assert len(verdict_of(story).out_of_order) == 3

    def test_record_that_nobody_sent(self, story: Story) -> None:
        story.send_all({0: 2})
        story.works("a", 0, range(3), at=0)
        verdict = verdict_of(story)
        assert [(found.touch.offset, found.expected_id) for found in verdict.foreign] == [(2, None)]
        assert not verdict.ok

    def test_record_with_anothers_id(self, story: Story) -> None:
        story.send_all({0: 2})
        story.handed("a", 0, 0, at=0, record_id="0:1")
        story.done("a", 0, 0, at=1)
        story.works("a", 0, range(1, 2), at=2)
        assert [found.expected_id for found in verdict_of(story).foreign] == ["0:0"]


class TestCutAndBrokenJournals:
    def test_done_line_cut_off_is_not_done(self, story: Story) -> None:
        clean_handoff(story)
        story.write()
        path = story.path("a")
        whole = path.read_text()
        end = whole.rindex("E,")
        path.write_text(whole[: end - 3])  # within the last D line: its time lacks two digits and the line break
        verdict = check(read_run(story.directory))
        assert [lost.offset for lost in verdict.lost] == [29]
        assert verdict.cut_lines == (path.name,)
        assert verdict.unknown_ends == ("a/1001",)
        assert "cut off" in str(verdict)

    def test_handed_out_line_cut_off_is_nothing(self, story: Story) -> None:
        clean_handoff(story)
        story.write()
        with story.path("a").open("a") as file:
            file.write("H,payments,0,3")
        assert check(read_run(story.directory)).spotless

    def test_every_cut_of_the_last_line_is_survived(self, story: Story) -> None:
        story.send_all({0: 3})
        story.works("a", 0, range(3), at=0)
        story.write()
        path = story.path("a")
        whole = path.read_text()
        begin = whole.rstrip("\n").rindex("\n") + 1
        for cut in range(begin, len(whole)):
            path.write_text(whole[:cut])
            assert [lost.offset for lost in check(read_run(story.directory)).lost] == [2]
        path.write_text(whole)
        assert check(read_run(story.directory)).spotless

    def test_process_that_died_writing_its_first_line_had_nothing(self, story: Story) -> None:
        clean_handoff(story)
        (story.write() / "c-7.journal").write_text("S,1,serv")
        verdict = check(read_run(story.directory))
        assert verdict.spotless
        assert verdict.processes == 2

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("H,payments,0,x,1,5", "cannot be read"),
            ("H,payments,0", "cannot be read"),
            ("D,payments,0,77,5", "without having been handed out"),
            ("Q,1", "unknown kind"),
            ("", "unknown kind"),
        ],
    )
    def test_broken_line_inside_is_refused(self, story: Story, line: str, complaint: str) -> None:
        clean_handoff(story)
        story.write()
        path = story.path("a")
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([first, line, *rest]) + "\n")
        with pytest.raises(JournalError, match=rf"a-\d+\.journal: line 2 .*{complaint}"):
            read_run(story.directory)

    def test_another_version_is_refused(self, story: Story) -> None:
        clean_handoff(story)
        path = story.write() / "z-9.journal"
        path.write_text(f"S,{JOURNAL_VERSION + 1},service,z,9,0,0\n")
        with pytest.raises(JournalError, match="version"):
            read_run(story.directory)

    def test_id_sent_twice_is_refused(self, story: Story) -> None:
        story.sent(0, 0)
        story.sent(0, 0)
        with pytest.raises(JournalError, match="unique"):
            read_run(story.write())

    def test_unknown_end_is_said(self, story: Story) -> None:
        story.send_all({0: 1})
        story.works("a", 0, range(1), at=0)
        story.handed("b", 0, 0, at=100)
        verdict = verdict_of(story)
        assert verdict.unknown_ends == ("b/1002",)
        assert "not fully checked" in str(verdict)


class TestCommandLine:
    def test_clean_run_exits_0(self, story: Story, capsys: pytest.CaptureFixture[str]) -> None:
        clean_handoff(story)
        assert main([str(story.write()), "--strict"]) == 0
        assert "lost              0" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("fault", "normal", "strict"),
        [
            (lambda story: story.sent(0, 30), 1, 1),
            (lambda story: story.works("c", 0, range(1), at=12), 1, 1),
            (lambda story: story.works("c", 0, range(30, 31), at=999), 1, 1),
            (lambda story: story.works("c", 0, range(28, 30), at=999), 0, 1),
        ],
        ids=["lost", "double owner", "foreign", "repeated"],
    )
    def test_faults_exit_1(self, story: Story, fault: Callable[[Story], None], normal: int, strict: int) -> None:
        clean_handoff(story)
        fault(story)
        directory = str(story.write())
        assert main([directory]) == normal
        assert main([directory, "--strict"]) == strict

    def test_json_carries_everything(self, story: Story, capsys: pytest.CaptureFixture[str]) -> None:
        clean_handoff(story)
        story.sent(0, 30)
        assert main([str(story.write()), "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["ok"] is False
        assert found["lost"][0]["offset"] == 30
        assert found["double_owners"] == []

    def test_nothing_to_check_exits_2(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path)]) == 2
        assert "nothing to check" in capsys.readouterr().err

    def test_no_acknowledged_record_proves_nothing(self, story: Story) -> None:
        story.sent(0, 0, acknowledged=False)
        story.works("a", 0, range(1), at=0)
        assert main([str(story.write())]) == 2

    def test_many_findings_are_counted_and_shortened(self, story: Story) -> None:
        story.send_all({0: 50})
        story.works("a", 0, range(1), at=0)
        text = str(verdict_of(story))
        assert "lost              49" in text
        assert "and 39 more" in text


def lawful_run(story: Story, draw: random.Random) -> dict[int, int]:
    """A random run without faults: owners in turn, some crash; returns the records per partition."""
    counts = {partition: draw.randint(1, 25) for partition in range(draw.randint(1, 3))}
    story.send_all(counts)
    crashed = 0
    for partition, count in counts.items():
        at, offset = draw.uniform(0, 5), 0
        while offset < count:
            owner = f"m{draw.randint(0, 3)}"
            upto = draw.randint(offset + 1, count)
            at = story.works(owner, partition, range(offset, upto), at, takes=draw.uniform(0.1, 9))
            offset = upto
            if draw.random() < 0.2 and offset < count:
                # A process of its own dies with a record in hand: whatever it had in other partitions is not mixed up.
                crashed += 1
                victim = f"crash{crashed}"
                story.handed(victim, partition, offset, at + 1)
                story.dies(victim, at + 2)
                at += draw.uniform(2.1, 50)
    return counts


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_lawful_runs_are_clean(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    story = Story(tmp_path_factory.mktemp("lawful"))
    lawful_run(story, random.Random(seed))
    verdict = verdict_of(story)
    assert verdict.ok, f"seed {seed}: {verdict}"
    assert not verdict.repeated
    assert not verdict.out_of_order


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), fault=st.sampled_from(["lose", "repeat", "intrude"]))
def test_one_random_fault_in_a_lawful_run_is_found(
    tmp_path_factory: pytest.TempPathFactory, seed: int, fault: str
) -> None:
    """Goal: no lawful history hides a fault. Each kind is put in at a random record of a random run."""
    draw = random.Random(seed)
    story = Story(tmp_path_factory.mktemp("faulty"))
    lawful_run(story, draw)
    story.write()
    handouts = [h for h in read_run(story.directory).handouts() if h.done_ns is not None]
    victim = draw.choice(handouts)
    name = victim.process.split("/")[0]
    partition, offset = victim.tp.partition, victim.offset
    if fault == "lose":
        path = story.path(name)
        lines = [
            line
            for line in path.read_text().splitlines()
            if not line.startswith((f"H,payments,{partition},{offset},", f"D,payments,{partition},{offset},"))
        ]
        path.write_text("\n".join(lines) + "\n")
        found: Sequence[object] = check(read_run(story.directory)).lost
    elif fault == "repeat":
        story.works("other", partition, range(offset, offset + 1), at=1e9)
        found = verdict_of(story).repeated
    else:
        assert victim.done_ns is not None
        middle_ms = (victim.handed_ns + victim.done_ns) / 2e6
        story.works("other", partition, range(offset, offset + 1), at=middle_ms, takes=0.001)
        found = verdict_of(story).double_owners
    assert found, f"seed {seed}: {fault} at {victim} not found"


def test_journal_written_by_the_service_reads_back(tmp_path: Path) -> None:
    """The writer that the service uses and the reader that the checker uses agree."""

    class Message:
        topic, partition, offset = "payments", 3, 41

    journal = Journal(tmp_path, "payments-0")
    journal.handed_out(Message, "17")
    journal.done(Message)
    journal.handed_out(Message, "18")
    run = read_run(tmp_path)
    (process,) = run.processes
    first, second = process.handouts
    assert (first.tp, first.offset, first.record_id) == (("payments", 3), 41, "17")
    assert first.done_ns is not None
    assert process.started_ns <= first.handed_ns <= first.done_ns <= second.handed_ns
    assert second.end_ns is None
    journal.close()
    (process,) = read_run(tmp_path).processes
    assert process.handouts[1].end_ns == process.ended_ns
