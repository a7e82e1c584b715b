"""The judge of transactional output against outputs that are wrong, each in one way."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.long.evidence import Evidence, Notes
from chaos.long.judge import judge
from chaos.long.load import ABORTED
from chaos.long.outputs import LATE_SECONDS, AskedCommits, Made, Output, Outputs
from demo.journal import Journal, read_run
from integration.offsets_topic import Commit, GroupLog
from unit.examples.stories import EPOCH_NS, MILLISECOND, Story

RECORDS = 6
AT_MS = 1_000.0


class History:
    """Six records of one partition, done by a plain member, put out two to a transaction by others."""

    def __init__(self, directory: Path) -> None:
        self.story = Story(directory / "run")
        self.outputs = Outputs(source=self.story.topic, entries=[], asked=set())
        for offset in range(RECORDS):
            self.sent(offset)
        for first in range(0, RECORDS, 2):
            self.put_out(f"t1:{first}", first, first + 1)

    def sent(self, offset: int, *, aborted: bool = False) -> None:
        self.story.sent(0, offset, AT_MS, acknowledged=not aborted)
        if aborted:
            self.story._line("producer", "producer", "F", f"0:{offset}", ABORTED)
        else:
            self.story.works("a", 0, range(offset, offset + 1), AT_MS + 10 * offset + 2)

    def put_out(self, transaction: str, *offsets: int, asked: bool = True, late_ms: float = 500.0) -> None:
        for offset in offsets:
            made = Made(record_id=f"0:{offset}", offset=offset, transaction=transaction)
            at_ms = round(EPOCH_NS / MILLISECOND + AT_MS + late_ms)
            self.outputs.entries.append(Output(0, at_ms, made))
        if asked:
            self.outputs.asked.add(transaction)

    def violated(self) -> dict[str, int]:
        notes = Notes(
            log=GroupLog(commits=[Commit(0, 0, EPOCH_NS / 1e9, self.story.topic)]),
            windows=[],
            endings={},
            bound_seconds=7.0,
            bound_mixed_seconds=13.0,
            epoch_offset_ns=EPOCH_NS,
            outputs=self.outputs,
        )
        found = judge(Evidence(read_run(self.story.write()), notes))
        # These members are in no generation of a group.
        return {name: len(texts) for name, texts in found.violations.items() if texts and name != "shut out"}


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_each_record_once_is_right(history: History) -> None:
    assert history.violated() == {}


def test_records_of_aborted_transactions_of_the_producer_are_no_loss(history: History) -> None:
    history.sent(RECORDS, aborted=True)
    assert history.violated() == {}


def test_a_transaction_whose_commit_was_asked_for_and_is_not_visible_is_no_loss(history: History) -> None:
    """Its records were put out by the next one."""
    history.outputs.asked.add("t2:1")
    assert history.violated() == {}


def test_a_record_that_is_there_twice(history: History) -> None:
    history.put_out("t2:1", 5)
    assert history.violated() == {"output repeated": 1}


def test_a_record_that_is_not_there(history: History) -> None:
    del history.outputs.entries[3]
    assert history.violated() == {"output lost": 1}


def test_all_output_gone(history: History) -> None:
    history.outputs.entries.clear()
    assert history.violated() == {"output lost": RECORDS}


def test_an_aborted_transaction_that_shows_up(history: History) -> None:
    """Another did its records again, as it should."""
    history.put_out("t2:1", 4, 5, asked=False)
    assert history.violated() == {"output repeated": 2, "output uncommitted": 2, "output disordered": 1}


def test_an_aborted_transaction_that_shows_up_instead_of_another(history: History) -> None:
    history.outputs.asked.remove("t1:4")
    assert history.violated() == {"output uncommitted": 2}


def test_output_of_a_record_whose_own_transaction_was_aborted(history: History) -> None:
    history.sent(RECORDS, aborted=True)
    history.put_out("t1:6", RECORDS)
    assert history.violated() == {"output of an aborted input": 1}


def test_output_of_a_record_that_nobody_sent(history: History) -> None:
    history.put_out("t1:6", RECORDS)
    assert history.violated() == {"output foreign": 1}


def test_output_that_names_another_offset(history: History) -> None:
    history.outputs.entries[-1].made.offset += 1
    assert history.violated() == {"output foreign": 1}


def test_output_in_another_order(history: History) -> None:
    entries = history.outputs.entries
    entries[0], entries[1] = entries[1], entries[0]
    assert history.violated() == {"output disordered": 1}


def test_output_that_comes_too_late(history: History) -> None:
    history.sent(RECORDS)
    history.put_out("t1:6", RECORDS, late_ms=1_000 * LATE_SECONDS + 100)
    assert history.violated() == {"output late": 1}


def test_which_commits_were_asked_for(tmp_path: Path) -> None:
    journal, asked = Journal(tmp_path, "t1", role="transformer"), AskedCommits(tmp_path)
    journal.write("C", "t1:1", 5, 0, 2)
    assert asked.look().transactions == {"t1:1"}
    journal.write("C", "t1:3", 6, 0)
    assert asked.look().transactions == {"t1:1", "t1:3"}
    assert asked.last_ns == {0: 6, 2: 5}
