"""Results are kept by cell and written as a table."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.programs.cells import cells
from benchmarks.programs.judge import StatusMinute, Verdict
from benchmarks.programs.search import Search
from benchmarks.programs.table import HEAD, load_results, markdown, result_of, row, save_result

CELLS = {cell.name: cell for cell in cells(random.Random(1))}


def verdict(late: int, wanted: int) -> Verdict:
    told = StatusMinute(share=0.99999, share_true=None, latency_p99=2.5, latency_p99_true=1.0)
    return Verdict(
        records=1000, late=late, whole_records=2000, whole_late=late, lost=0, repeated=0, replica_minutes=8.0,
        wanted=((0.0, wanted),), wanted_min=wanted, wanted_max=wanted, scalings=0, scalings_whole=1, told=told,
        reasons=(),
    )  # fmt: skip


def search(share: float) -> Search:
    found = Search(2, 12, share)
    found.tell(2, verdict(50, 2))
    found.tell(3, verdict(0, 3))
    return found


def test_a_line_has_the_fewest_the_run_and_what_is_off() -> None:
    cell = CELLS["threads/1.5"]
    result = result_of(cell, 7, "laboratory", search(cell.objective_share), verdict(2, 5))
    line = dict(zip(HEAD[:9], row(result)[:9], strict=True))
    assert line == {
        "cell": "threads/1.5",
        "record, W": f"{cell.record_seconds:g}, {cell.objective_seconds:g} s",
        "fewest": "3",
        "late there": "0 of 1000 (100 %)",
        "one below": "50 of 1000 (95.00 %)",
        "asked for": "5",
        "scalings": "0 of 1",
        "late": "2 of 1000 (99.80 %)",
        "late of all": "2 (99.90 %)",
    }
    assert row(result)[-1] == "late, too many"
    assert "99.99 %" in row(result), "less than all is not told as all"
    assert len(markdown([result]).splitlines()) == 3


def test_a_program_that_tells_nothing_has_no_verdict() -> None:
    cell = CELLS["unbounded/1.5"]
    assert result_of(cell, 7, "laboratory", search(cell.objective_share), verdict(1000, 5)).problems == ()


def test_a_result_takes_the_place_of_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "results.json"
    assert load_results(path) == []
    for name, late in (("threads/1.5", 1), ("gather/1.5", 0), ("threads/1.5", 2)):
        cell = CELLS[name]
        save_result(path, result_of(cell, 7, "laboratory", search(cell.objective_share), verdict(late, 3)))
    assert [(each.name, each.verdict.late) for each in load_results(path)] == [("threads/1.5", 2), ("gather/1.5", 0)]
