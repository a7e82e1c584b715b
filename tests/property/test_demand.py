"""Programs that work on many records at once ask for as many replicas as they need: the product on virtual time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from benchmarks.programs.cells import START_SECONDS, Cell, cells

from loadtrim_agent.wire.telemetry_records import ReportRecord
from whole.demand import Demand

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
]

SEED = 5
CELLS = {cell.name: cell for cell in cells(random.Random(SEED))}


def short(name: str) -> Cell:
    """Return the cell with half a minute that is judged."""
    return replace(CELLS[name], seconds=150.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "replicas"),
    [("semaphore/0.7", 1), ("semaphore/1.5", 2), ("gather/0.3", 1), ("workers/0.7", 1), ("threads/0.3", 1)],
)
def test_a_constant_load_is_given_the_fewest_replicas(name: str, replicas: int) -> None:
    """They were given all that there may be: work on ten records at once looked like ten times the work."""
    verdict = Demand(short(name), SEED).run()
    assert verdict.wanted[-1][1] == replicas, verdict.wanted
    assert (verdict.late, verdict.lost, verdict.repeated) == (0, 0, 0)


@pytest.mark.slow
def test_a_fixed_number_is_there_from_the_beginning_and_stays() -> None:
    verdict = Demand(short("threads/0.3"), SEED, replicas=2).run()
    assert verdict.replica_minutes == pytest.approx(2 * 150 / 60)
    assert (verdict.scalings_whole, verdict.wanted_min, verdict.wanted_max) == (0, 2, 2)
    assert (verdict.late, verdict.lost, verdict.repeated) == (0, 0, 0)


@pytest.mark.slow
def test_members_tell_the_start_that_was_played() -> None:
    """They told how long ago this machine had been started, in the quarter of an hour after that."""
    demand = Demand(replace(CELLS["semaphore/1.5"], seconds=130.0), SEED)
    demand.run()
    assert demand.played is not None
    reports = [record for _, record in demand.played.control if isinstance(record, ReportRecord)]
    told = {report.instance: report.startup_seconds for report in reports if report.startup_seconds is not None}
    assert len(told) > 1
    for name, seconds in told.items():
        least = 0.0 if name == "m1" else START_SECONDS
        assert least <= seconds < least + 1.0, (name, seconds)


def reports_of(name: str, seconds: float) -> list[ReportRecord]:
    """Return what one member told."""
    demand = Demand(replace(CELLS[name], seconds=seconds), SEED, replicas=1)
    demand.run()
    assert demand.played is not None
    return [record for _, record in demand.played.control if isinstance(record, ReportRecord)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "waiting"), [("semaphore", 0), ("workers", 0), ("threads", 1)], ids=["semaphore", "workers", "threads"]
)
def test_a_member_that_is_full_knows_what_it_can_do_and_how_well(name: str, waiting: int) -> None:
    """Beside what its threads work on, one record waits in hand for the next that is free."""
    told = reports_of(f"{name}/1.5", 60.0)[-1].capacity
    able = CELLS[f"{name}/1.5"].shape.at_once + waiting
    assert told.known
    assert told.error < 0.05 * told.value
    assert told.value == pytest.approx(able, abs=3.0 * told.error + 0.02 * told.value)


@pytest.mark.slow
def test_a_member_that_was_never_full_tells_the_least_that_it_can_do() -> None:
    told = [report.capacity for report in reports_of("semaphore/0.3", 60.0)]
    able = CELLS["semaphore/0.3"].shape.at_once
    assert not any(each.known for each in told[1:])
    assert all(0.0 <= each.value - each.error <= able for each in told[1:])
    assert told[-1].value - told[-1].error > 0.2 * able, "it did three tenths of it, and at times more"
