"""A run is judged by what its programs wrote down, and what is off is named."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.programs.cells import Cell
from benchmarks.programs.judge import Done, Life, Played, Sent, Verdict, judge

from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

CELL = Cell(
    program="threads",
    load="1.5",
    levels=((0.0, 1.5),),
    seconds=240.0,
    record_seconds=0.2,
    objective_seconds=2.0,
    objective_share=0.9,
)
GROUP = "g"


def decision(at: float, replicas: int) -> tuple[float, Record]:
    record = DecisionRecord(
        group=GROUP, member="m", at=at, generation=1, sequence=1, outcome="none", reason=f"to {replicas}",
        replicas_wanted=replicas,
    )  # fmt: skip
    return at, record


def report(at: float, in_time: int, late: int) -> tuple[float, Record]:
    record = ReportRecord(
        group=GROUP, member="m", at=at, generation=1, sequence=1, in_time=in_time, late={"waiting": late},
        latency_counts=((0.5, in_time), (8.0, late)),
    )  # fmt: skip
    return at, record


def played(
    latencies: dict[float, float], *control: tuple[float, Record], lives: tuple[Life, ...] = (), again: float = 0.0
) -> Played:
    """Return a run in which a record of each of these times took so long; infinite: it was never done."""
    sent = [Sent(at, 0, offset) for offset, at in enumerate(latencies)]
    done = [
        Done(at + seconds, 0, offset)
        for offset, (at, seconds) in enumerate(latencies.items())
        if math.isfinite(seconds)
    ]
    return Played(sent, done + [Done(again, 0, 0)] * bool(again), lives, control, GROUP)


def test_late_is_what_took_longer_than_the_objective_in_the_judged_time() -> None:
    verdict = judge(CELL, played({10.0: 9.0, 119.9: 9.0, 120.0: 2.0, 130.0: 2.1, 239.0: 0.1}))
    assert (verdict.late, verdict.records) == (1, 3)
    assert (verdict.whole_late, verdict.whole_records) == (3, 5)
    assert verdict.share == pytest.approx(2 / 3)


def test_a_record_that_was_never_done_is_lost_and_late() -> None:
    verdict = judge(CELL, played({130.0: math.inf, **{131.0 + i: 0.1 for i in range(50)}}))
    assert (verdict.late, verdict.lost) == (1, 1)
    assert verdict.share > CELL.objective_share
    assert not verdict.holds(CELL.objective_share)
    assert verdict.problems(CELL, None) == ("lost",)


def test_a_record_that_was_done_twice_counts_by_the_first_time() -> None:
    verdict = judge(CELL, played({130.0: 0.1, 131.0: 0.1}, again=140.0))
    assert (verdict.late, verdict.repeated) == (0, 1)
    assert verdict.problems(CELL, None) == ("repeated",)


def test_replica_minutes_are_from_the_request_to_the_end_while_the_load_lasted() -> None:
    lives = (Life(-5.0, math.inf), Life(60.0, 120.0), Life(300.0, math.inf))
    assert judge(CELL, played({}, lives=lives)).replica_minutes == pytest.approx(5.0)


def test_scalings_are_changes_of_what_is_asked_for() -> None:
    control = [
        decision(at, n) for at, n in ((-1.0, 9), (0.0, 1), (3.0, 2), (119.0, 2), (130.0, 3), (140.0, 3), (150.0, 2))
    ]
    verdict = judge(CELL, played({}, *control))
    assert verdict.wanted == ((0.0, 1), (3.0, 2), (130.0, 3), (150.0, 2))
    assert (verdict.scalings, verdict.scalings_whole) == (2, 3)
    assert (verdict.wanted_min, verdict.wanted_max) == (2, 3)
    assert verdict.reasons == ("130 s: to 3", "150 s: to 2")
    assert verdict.problems(CELL, 2) == ("scalings",)
    assert verdict.problems(CELL, 1) == ("too many", "scalings")
    assert verdict.problems(CELL, 4) == ("too few", "scalings")
    assert verdict.problems(replace(CELL, scalings_max=None), 2) == ()


def test_a_cell_with_a_price_is_judged_by_its_whole_time() -> None:
    cell = replace(CELL, replica_minutes_max=3.0, scalings_max=2)
    control = [decision(at, n) for at, n in ((0.0, 1), (3.0, 2), (60.0, 1), (70.0, 2))]
    verdict = judge(cell, played({}, *control, lives=(Life(0.0, math.inf),)))
    assert verdict.problems(cell, 2) == ("scalings", "replica-minutes")
    assert verdict.problems(replace(cell, replica_minutes_max=4.0, scalings_max=3), 2) == ()


def test_what_was_told_stands_beside_what_was() -> None:
    run = played({100.0 + i: 0.1 if i % 2 else 5.0 for i in range(130)}, report(200.0, 9, 1), report(230.0, 10, 0))
    told = judge(CELL, run).told
    assert told.share == pytest.approx(0.95)
    assert told.share_true == pytest.approx(0.5, abs=0.02)
    assert told.latency_p99 == 8.0
    assert told.latency_p99_true == pytest.approx(5.0)


def test_a_group_that_says_nothing_is_not_known() -> None:
    verdict: Verdict = judge(CELL, played({130.0: 0.1}))
    assert (verdict.told.share, verdict.told.latency_p99, verdict.wanted_max) == (None, None, None)
    assert verdict.problems(CELL, 1) == ()
