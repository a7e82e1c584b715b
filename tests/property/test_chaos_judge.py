"""The judge of ``chaos.long`` against histories that are wrong, each in one way, and against what it must excuse."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos.long.evidence import Ending, Evidence, Notes, Window
from chaos.long.judge import Judgement, judge
from chaos.long.load import ABORTED
from demo.journal import read_run
from integration.offsets_topic import Commit, Generation, GroupLog, read_entry
from unit.examples.stories import EPOCH_NS, MILLISECOND, Story

FAR_MS = 1_000_000.0
TAKES_MS = 5.0


@dataclass
class History:
    """A run as it is written down; times are milliseconds from its start."""

    story: Story
    notes: Notes = field(
        default_factory=lambda: Notes(
            log=GroupLog(),
            windows=[],
            endings={},
            bound_seconds=7.0,
            bound_mixed_seconds=13.0,
            epoch_offset_ns=EPOCH_NS,
        )
    )

    def works(self, who: str, offsets: range, at: float, partition: int = 0) -> float:
        """Work on records that were sent just before; returns the time after the last one."""
        for offset in offsets:
            self.story.sent(partition, offset, at - 2)
            at = self.story.works(who, partition, range(offset, offset + 1), at, takes=TAKES_MS) + 100
        return at

    def again(self, who: str, offsets: range, at: float, partition: int = 0) -> float:
        return self.story.works(who, partition, offsets, at, takes=TAKES_MS)

    def commit(self, offset: int, at: float, partition: int = 0) -> None:
        self.notes.log.commits.append(Commit(partition, offset, self.epoch(at), self.story.topic))

    def group(self, at: float, *members: str) -> None:
        """A generation begins with these."""
        number = len(self.notes.log.generations)
        self.notes.log.generations.append(Generation(self.epoch(at), number, {f"{m}-id": m for m in members}))

    def fault(self, kind: str, begun: float, recovered: float, over: float = 0, **more: Any) -> None:
        self.notes.windows.append(
            Window(kind=kind, begun_ns=_ns(begun), recovered_ns=_ns(recovered), over_ns=_ns(over), **more)
        )

    def dies(self, who: str, at: float) -> None:
        self.story.dies(who, at)
        self.notes.endings[who] = Ending(at_ns=_ns(at), code=-9, crash=True)

    def leaves(self, who: str, at: float, asked: float = 0) -> None:
        """A process ends in order."""
        self.story.ends(who, at)
        self.notes.endings[who] = Ending(at_ns=_ns(at + 200), code=0, asked_ns=_ns(asked))

    def fenced(self, who: str, at: float) -> None:
        """A transactional member's producer is of no use any more."""
        self.notes.endings[who] = Ending(at_ns=_ns(at), code=4, crash=True, expected=False, fenced=True)

    def judged(self) -> Judgement:
        return judge(Evidence(read_run(self.story.write()), self.notes))

    @staticmethod
    def epoch(at: float) -> float:
        return EPOCH_NS / 1e9 + at / 1000


def _ns(at: float) -> int:
    return round(at * MILLISECOND)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(Story(tmp_path / "run"))
    made.group(0, "a", "b")
    made.commit(0, 0)
    return made


def violated(found: Judgement) -> dict[str, int]:
    return {name: len(texts) for name, texts in found.violations.items() if texts}


def killed_with_repeats(history: History, committed: int | None) -> None:
    """Member a does ten records and is killed, b takes over at offset 5."""
    at = history.works("a", range(10), 1000)
    if committed is not None:
        history.commit(committed, at)
    history.fault("kill", at, at + 10_000)
    history.dies("a", at + 1)
    history.group(at + 5_900, "b")
    at = history.again("b", range(5, 10), at + 6_000)
    history.works("b", range(10, 12), at)


class TestWhatIsRight:
    def test_a_run_without_faults(self, history: History) -> None:
        at = history.works("a", range(10), 1000)
        history.commit(10, at)
        history.works("b", range(10, 20), at)
        found = history.judged()
        assert found.ok, found.violations
        assert (found.sent, found.acknowledged, found.delivered) == (20, 20, 20)

    def test_repeats_after_a_kill_above_the_commit(self, history: History) -> None:
        killed_with_repeats(history, committed=5)
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["repeated after a crash"] == 5
        assert found.rows["kill"].repeats == 5
        assert found.rows["kill"].count == 1

    def test_a_record_in_hand_of_a_member_whose_session_ended(self, history: History) -> None:
        """It was frozen with a record in hand, another was handed that, and it did it all the same."""
        at = history.works("a", range(3), 1000)
        history.commit(2, at)
        history.fault("freeze", at, at + 20_000, evicts=True)
        history.story.sent(0, 3, at)
        history.story.handed("a", 0, 3, at)
        history.group(at + 6_000, "b")
        history.again("b", range(2, 4), at + 6_100)
        history.story.done("a", 0, 3, at + 10_000)
        history.group(at + 11_000, "a", "b")
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["repeated after a lost membership"] == 2
        assert found.excused["two owners after a lost lease"] == 2, "while record 3 is in hand"
        assert found.excused["evictions"] == 1

    def test_a_record_that_user_code_gave_up(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.story.handed("a", 0, 3, at)
        history.story.ends("a", at + 2)
        history.group(at + 90, "b")
        history.again("b", range(3, 4), at + 100)
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["repeated after user code gave it up"] == 1

    def test_a_batch_that_user_code_gave_up_behind_its_first_record(self, history: History) -> None:
        """The first one was done, but the call that says so never came."""
        at = history.works("a", range(3), 1000)
        for offset in (3, 4):
            history.story.sent(0, offset, at)
        for offset in (3, 4):
            history.story.handed("a", 0, offset, at + 1)
        history.story.done("a", 0, 3, at + 2)
        history.story.ends("a", at + 3)
        history.group(at + 90, "b")
        history.again("b", range(3, 5), at + 100)
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["repeated after user code gave it up"] == 2

    def test_all_but_a_loss_in_a_mixed_group(self, history: History) -> None:
        at = history.works("a", range(5), 1000)
        history.fault("foreign", at - 500, at + 5_000, mixed=True, evicts=True)
        history.again("b", range(3, 5), at)
        history.commit(6, at + 100)
        history.story.sent(0, 5, at)
        history.again("b", range(5, 6), at + 1_000)
        assert history.judged().ok

    def test_a_standstill_that_the_fault_itself_makes(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("rights", at, at + 12_000, over=at + 10_000)
        history.story.sent(0, 3, at)
        history.again("a", range(3, 4), at + 11_000)
        found = history.judged()
        assert found.ok, found.violations
        assert found.rows["rights"].worst_seconds == pytest.approx(1.0, abs=0.01)

    def test_a_log_that_was_cut_off_and_makes_a_generation(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("cut", at + 500, at + 9_000, over=at + 4_000, cut_ns=_ns(at + 1_000))
        history.group(at + 5_000, "a", "b")
        assert history.judged().ok

    def test_transactional_members_whose_producers_a_fault_ends(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("connections", at, at + 2_000, fences=2)
        history.fenced("t1", at + 1_000)
        history.fault("freeze", at, at + 9_000, fences=1, meets=["t2"])
        history.fenced("t2", at + 19_000)
        history.fenced("t3", at + 19_500)
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["ends of transactional members"] == 3

    def test_a_partition_of_a_member_that_a_fault_holds_up(self, history: History) -> None:
        """Of the one that was handed its records before, or after, or of nobody knows whom in between."""
        at = history.works("a", range(3), 1000)
        for partition in (1, 2):
            history.commit(0, 0, partition)
            history.works("b", range(3), 1000, partition)
        for partition in range(3):
            history.story.sent(partition, 3, at)
        history.fault("block", at, at + 9_000, over=at + 8_500, meets=["a"])
        history.again("a", range(3, 4), at + 8_000)
        history.again("a", range(3, 4), at + 8_000, partition=1)
        history.again("c", range(3, 4), at + 8_000, partition=2)
        history.group(at, "a", "b", "c")
        assert history.judged().ok

    def test_the_last_ones_leave_with_their_commits(self, history: History) -> None:
        at = history.works("a", range(5), 1000)
        history.commit(5, at)
        for name in "ab":
            history.leaves(name, at)
        history.group(at + 50)
        assert history.judged().ok

    def test_a_cut_that_may_have_been_noticed_in_the_generation_of_another_reason(self, history: History) -> None:
        """A JoinGroup that was under way is sent again to the next coordinator, when the cut has been noticed."""
        history.group(500, "a", "b", "c")
        at = history.works("a", range(3), 1000)
        for number in range(9):
            history.fault("kill", at + number, at + number + 1)
        history.leaves("c", at + 100)
        history.fault("cut", at, at + 40_000, over=at + 4_000, cut_ns=_ns(at + 1_000))
        history.group(at + 6_500, "a", "b")
        found = history.judged()
        assert found.ok, found.violations
        assert len(found.failed) == 1

    def test_a_record_in_hand_that_outlives_a_stop(self, history: History) -> None:
        """Told to stop, the member has left before user code was through with the record."""
        at = history.works("a", range(3), 1000)
        history.commit(3, at)
        history.story.sent(0, 3, at)
        history.story.handed("a", 0, 3, at)
        history.group(at + 3_000, "b")
        history.again("b", range(3, 4), at + 3_010)
        history.story.done("a", 0, 3, at + 6_000)
        history.leaves("a", at + 6_010, asked=at + 10)
        found = history.judged()
        assert found.ok, found.violations
        assert found.excused["repeated after a stop with the record in hand"] == 1
        assert found.excused["two owners after a lost lease"] == 1


class TestWhatIsWrong:
    def test_a_record_that_nobody_did(self, history: History) -> None:
        history.works("a", range(3), 1000)
        history.story.sent(0, 3, 1500)
        history.works("b", range(4, 6), 2000)
        assert violated(history.judged()) == {"lost": 1}

    def test_a_record_that_was_handed_out_and_not_done(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.story.handed("a", 0, 3, at)
        assert violated(history.judged()) == {"lost": 1}

    def test_two_owners_at_once(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.story.sent(0, 4, at)
        history.story.handed("a", 0, 3, at + 2)
        history.story.handed("b", 0, 4, at + 3)
        history.story.done("b", 0, 4, at + 5)
        history.story.done("a", 0, 3, at + 9)
        assert violated(history.judged()) == {"double owner": 1}

    def test_a_repeat_without_a_crash(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.again("b", range(2, 3), at)
        assert violated(history.judged()) == {"repeated": 1}

    def test_a_repeat_after_the_crash_of_somebody_else(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.works("b", range(3, 4), at)
        history.fault("kill", at, at + 5_000)
        history.dies("b", at + 200)
        history.group(at + 300, "a", "c")
        history.again("c", range(2, 3), at + 400)
        assert violated(history.judged()) == {"repeated": 1}

    def test_a_repeat_below_the_last_commit(self, history: History) -> None:
        killed_with_repeats(history, committed=7)
        assert violated(history.judged()) == {"below a commit": 2}

    def test_repeats_long_after_a_mixed_group_of_what_was_delivered_before_it(self, history: History) -> None:
        at = history.works("a", range(10), 1000)
        history.commit(10, at)
        history.fault("foreign", 20_000, 25_000, mixed=True, evicts=True)
        history.again("b", range(10), 600_000)
        assert violated(history.judged()) == {"repeated": 10, "below a commit": 10}

    def test_two_owners_in_turn_long_after_a_mixed_group(self, history: History) -> None:
        """The other one was handed its last record before that, and owns the partition ever since."""
        at = history.works("a", range(3), 1000)
        at = history.works("b", range(3, 6), at)
        history.commit(6, at)
        history.fault("foreign", 20_000, 25_000, mixed=True, evicts=True)
        history.again("a", range(3, 4), 600_000)
        assert violated(history.judged()) == {"repeated": 1, "double owner": 1, "below a commit": 1}

    def test_a_repeat_after_a_stop_of_what_was_done_before_it(self, history: History) -> None:
        at = history.works("a", range(4), 1000)
        history.group(at + 3_000, "b")
        history.again("b", range(3, 4), at + 3_010)
        history.leaves("a", at + 6_010, asked=at + 10)
        assert violated(history.judged()) == {"repeated": 1}

    def test_a_commit_of_what_nobody_had_done(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.commit(4, at)
        history.story.sent(0, 3, at)
        history.again("a", range(3, 4), at + 500)
        assert violated(history.judged()) == {"committed ahead": 1}

    def test_a_commit_that_goes_back(self, history: History) -> None:
        at = history.works("a", range(10), 1000)
        history.commit(9, at)
        history.commit(8, at + 1)
        assert violated(history.judged()) == {"committed back": 1}

    def test_a_record_of_an_aborted_transaction(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at, acknowledged=False)
        history.story._line("producer", "producer", "F", "0:3", ABORTED)
        history.again("a", range(3, 4), at)
        found = history.judged()
        assert violated(found) == {"aborted": 1}
        assert found.aborted == 1

    def test_a_record_for_a_member_that_the_group_does_not_have(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("freeze", at, at + 9_000, evicts=True)
        history.group(at, "b")
        history.works("a", range(3, 4), at + 1_000)
        assert violated(history.judged()) == {"shut out": 1}

    def test_a_partition_that_nobody_owns_for_too_long(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("kill", at, at + 9_000)
        history.story.sent(0, 3, at)
        history.again("b", range(3, 4), at + 7_500)
        found = history.judged()
        assert violated(found) == {"unowned": 1}
        assert found.rows["kill"].worst_seconds == pytest.approx(7.5, abs=0.01)

    def test_a_partition_that_nobody_owns_for_too_long_even_in_a_mixed_group(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("foreign", at, at + 15_000, mixed=True)
        history.story.sent(0, 3, at)
        history.again("b", range(3, 4), at + 13_500)
        assert violated(history.judged()) == {"unowned": 1}

    def test_a_standstill_without_a_fault(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.again("a", range(3, 4), at + 7_500)
        assert violated(history.judged()) == {"unowned": 1}

    def test_a_member_that_is_evicted_where_no_fault_explains_it(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.group(at, "b")
        assert violated(history.judged()) == {"evicted": 1}

    def test_a_member_that_is_evicted_while_another_one_is_frozen(self, history: History) -> None:
        """And what comes with it: two owners, and repeats."""
        history.group(500, "a", "b", "c")
        at = history.works("a", range(4), 1000)
        history.commit(2, at)
        history.fault("freeze", at, at + 20_000, evicts=True, meets=["c"])
        history.story.sent(0, 4, at)
        history.story.handed("a", 0, 4, at + 2)
        history.group(at + 1_000, "b", "c")
        history.again("b", range(2, 5), at + 1_100)
        history.story.done("a", 0, 4, at + 3_000)
        history.group(at + 4_000, "a", "b", "c")
        assert violated(history.judged()) == {"evicted": 1, "repeated": 3, "double owner": 3}

    def test_a_log_that_was_cut_off_unnoticed(self, history: History) -> None:
        """The generations before and long after are of other causes."""
        at = history.works("a", range(3), 1000)
        history.group(at, "a", "b")
        history.fault("cut", at + 500, at + 9_000, over=at + 4_000, cut_ns=_ns(at + 1_000))
        history.group(at + 18_000, "a", "b")
        assert violated(history.judged()) == {"unnoticed": 1}

    def test_a_process_that_ends_by_itself(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.notes.endings["a"] = Ending(at_ns=_ns(at), code=4, expected=False)
        assert violated(history.judged()) == {"ended": 1}

    def test_transactional_members_that_end_after_a_fault_that_is_none_of_theirs(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("webhook", at, at + 2_000)
        for number in range(50):
            history.fenced(f"t{number}", at + 5_000)
        assert violated(history.judged()) == {"ended": 50}

    def test_more_transactional_members_than_a_fault_can_end(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("connections", at, at + 2_000, fences=2)
        for name in ("t1", "t2", "t3"):
            history.fenced(name, at + 1_000)
        assert violated(history.judged()) == {"ended": 1}

    def test_a_transactional_member_that_ends_while_another_one_is_frozen(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("freeze", at, at + 9_000, fences=1, meets=["t1"])
        history.fenced("t2", at + 8_000)
        assert violated(history.judged()) == {"ended": 1}

    def test_records_out_of_order(self, history: History) -> None:
        """Each is handed out once."""
        for offset in range(4):
            history.story.sent(0, offset, 990)
        at = 1000.0
        for offset in (0, 3, 2, 1):
            at = history.again("a", range(offset, offset + 1), at)
        assert violated(history.judged()) == {"disordered": 2}

    def test_a_partition_that_is_delivered_without_any_commit(self, history: History) -> None:
        """After a kill all that was ever done is handed out again."""
        history.notes.log.commits.clear()
        killed_with_repeats(history, committed=None)
        assert violated(history.judged()) == {"no start": 1}

    def test_an_auto_commit_that_never_commits(self, history: History) -> None:
        at = history.works("a", range(250), 1000)
        history.fault("kill", at, at + 9_000)
        history.dies("a", at + 1)
        history.group(at + 5_900, "b")
        history.again("b", range(250), at + 6_000)
        assert violated(history.judged()) == {"commit late": 1}

    def test_a_member_that_leaves_in_order_at_the_end_without_its_commit(self, history: History) -> None:
        at = history.works("a", range(5), 1000)
        history.commit(1, 1200)
        for name in "ab":
            history.leaves(name, at)
        history.group(at + 50)
        assert violated(history.judged()) == {"left uncommitted": 1}

    def test_faults_that_were_not_played(self, history: History) -> None:
        at = history.works("a", range(5), 1000)
        for number in range(20):
            history.fault("kill", at + number, at + number + 1)
        history.fault("cut", at, at + 9, failed="TimeoutError()")
        assert history.judged().ok
        history.fault("cut", at, at + 9, failed="TimeoutError()")
        history.fault("cut", at, at + 9, failed="TimeoutError()")
        assert violated(history.judged()) == {"not played": 3}

    def test_the_only_fault_was_not_played(self, history: History) -> None:
        at = history.works("a", range(5), 1000)
        history.fault("kill", at, at + 9, failed="AssertionError()")
        assert violated(history.judged()) == {"not played": 1}

    def test_a_standstill_that_began_long_before_the_fault(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.commit(3, at)
        history.fault("slow", at + 6_900, at + 30_000, over=at + 16_900, evicts=True)
        history.again("a", range(3, 4), at + 23_800)
        found = history.judged()
        assert violated(found) == {"unowned": 1}
        assert found.rows["slow"].worst_seconds == pytest.approx(13.8, abs=0.01)

    def test_a_standstill_while_a_fault_meets_another_member(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.story.sent(0, 3, at)
        history.fault("block", at, at + 9_000, over=at + 8_500, meets=["b"])
        history.again("a", range(3, 4), at + 8_000)
        assert violated(history.judged()) == {"unowned": 1}

    def test_a_log_that_was_cut_off_and_a_generation_for_another_reason(self, history: History) -> None:
        """It is the leaver's: nobody can tell whether the cut was noticed, and it was the only fault."""
        history.group(500, "a", "b", "c")
        at = history.works("a", range(3), 1000)
        history.leaves("c", at + 100)
        history.fault("cut", at, at + 40_000, over=at + 4_000, cut_ns=_ns(at + 1_000))
        history.group(at + 1_500, "a", "b")
        assert violated(history.judged()) == {"not played": 1}

    def test_rebalances_without_end(self, history: History) -> None:
        at = history.works("a", range(100), 1000)
        history.commit(100, at)
        for number in range(500):
            history.group(1000 + 20 * number, "a", "b")
        assert violated(history.judged()) == {"restless": 1}

    def test_a_group_that_is_not_well_long_after_a_fault(self, history: History) -> None:
        at = history.works("a", range(3), 1000)
        history.fault("cut", at, at + 50_000, well=False)
        assert violated(history.judged()) == {"not well": 1}


class TestTheCoordinatorsLog:
    """Bytes as Kafka's message schemas have them."""

    def test_a_commit(self) -> None:
        key = struct.pack(">h", 1) + _text("group") + _text("orders") + struct.pack(">i", 7)
        value = struct.pack(">hqi", 3, 4711, -1) + _text("") + struct.pack(">q", 0)
        assert read_entry(key, value, 1.5, "group") == Commit(7, 4711, 1.5, "orders")
        assert read_entry(key, value, 1.5, "another") is None
        assert read_entry(key, None, 1.5, "group") is None

    def test_a_generation(self) -> None:
        key = struct.pack(">h", 2) + _text("group")
        member = _text("a-id") + struct.pack(">h", -1) + _text("a") + _text("/10.0.0.1") + struct.pack(">ii", 12, 6)
        member += struct.pack(">i", 3) + b"\xff\xfe\xfd" + struct.pack(">i", 0)
        head = struct.pack(">h", 3) + _text("consumer") + struct.pack(">i", 9) + _text("loadtrim") + _text("a-id")
        value = head + struct.pack(">qi", 0, 2) + member + member.replace(b"a", b"b")
        assert read_entry(key, value, 1.5, "group") == Generation(1.5, 9, {"a-id": "a", "b-id": "b"})
        assert read_entry(key, None, 1.5, "group") == Generation(1.5, -1, None)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
