"""Records of generations that were not entered yet (rule 9)."""

from __future__ import annotations

from loadtrim_agent.protocol.future_records import FutureRecords
from sim.driver import ME, OTHER, assignment_of, release


def test_what_is_kept_is_given_out_once_and_with_all_before_it() -> None:
    records = FutureRecords()
    of_two, of_three, of_four = (release(generation, 0, 0, ME, OTHER) for generation in (2, 3, 4))
    for offset, record in enumerate((of_two, of_three, of_four)):
        assert records.keep(record.generation, offset, record)
    assert records.enter(3) == [of_three]
    assert records.enter(3) == []
    assert records.enter(2) == []
    assert records.enter(4) == [of_four]


def test_an_assignment_is_found_at_its_place_only() -> None:
    """Two leaders may have written one for the same generation: only one of them was answered."""
    records = FutureRecords()
    first, second = assignment_of(2, ME, m1=(0,)), assignment_of(2, OTHER, m1=(1,))
    records.keep(2, 5, first)
    records.keep(2, 8, second)
    assert records.assignment_at(2, 8) == second
    assert records.assignment_at(2, 6) is None
    assert records.assignment_at(3, 5) is None
    records.enter(2)
    assert records.assignment_at(2, 5) is None
