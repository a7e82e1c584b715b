"""The list of exceptions only shrinks, and follows what is renamed."""

from __future__ import annotations

import pytest

from architecture.ratchet import Ceiling, Refused, problems, read, tightened, written

LINES = Ceiling("functions", 70, "lines", "split it")
PROSE = Ceiling("sentences", 0, "long sentences", "shorten them", slack=5)


def test_what_fits_the_list_is_no_problem() -> None:
    assert problems(LINES, {"a.f": 80, "a.g": 70, "a.h": 3}, {"a.f": 80}) == []


@pytest.mark.parametrize(
    ("measured", "listed", "says"),
    [
        ({"a.f": 71}, {}, "a.f: 71 lines, at most 70 are allowed; split it"),
        ({"a.f": 81}, {"a.f": 80}, "a.f: grew from 80 to 81 lines; split it"),
        ({"a.f": 79}, {"a.f": 80}, "a.f: shrank from 80 to 79 lines; run `make ceilings`"),
        ({"a.f": 70}, {"a.f": 80}, "a.f: is listed with 80 lines but is gone or within 70"),
        ({}, {"a.f": 80}, "a.f: is listed with 80 lines but is gone or within 70"),
    ],
)
def test_every_difference_is_told(measured: dict[str, int], listed: dict[str, int], says: str) -> None:
    [problem] = problems(LINES, measured, listed)
    assert problem.startswith(says)


def test_prose_may_shrink_a_little_before_the_list_must_follow() -> None:
    assert problems(PROSE, {"a": 95}, {"a": 100}) == []
    assert problems(PROSE, {"a": 94}, {"a": 100}) != []
    assert problems(PROSE, {}, {"a": 5}) == []
    assert problems(PROSE, {}, {"a": 6}) != []
    assert problems(PROSE, {"a": 101}, {"a": 100}) != []


def test_tightening_takes_smaller_numbers_and_strikes_what_is_gone() -> None:
    assert tightened(LINES, {"a.f": 75, "a.g": 60}, {"a.f": 80, "a.g": 90, "a.h": 71}) == {"a.f": 75}


@pytest.mark.parametrize(
    ("measured", "listed"),
    [
        ({"a.f": 81}, {"a.f": 80}),
        ({"a.f": 80, "a.g": 71}, {"a.f": 80}),
        ({"b.f": 81}, {"a.f": 80}),
        ({"b.f": 75, "c.f": 75}, {"a.f": 80}),
    ],
    ids=["grown", "new", "moved and grown", "one became two"],
)
def test_tightening_never_writes_more(measured: dict[str, int], listed: dict[str, int]) -> None:
    with pytest.raises(Refused):
        tightened(LINES, measured, listed)


def test_what_became_smaller_is_kept_while_something_else_has_grown() -> None:
    with pytest.raises(Refused, match=r"a.f: 80 -> 81") as refused:
        tightened(LINES, {"a.f": 81, "a.g": 72, "a.h": 70}, {"a.f": 80, "a.g": 75, "a.h": 90})
    assert refused.value.table == {"a.f": 80, "a.g": 72}


def test_an_exception_follows_what_is_moved_or_renamed() -> None:
    listed = {"a.b.C.f": 90, "a.b.C.g": 80}
    assert tightened(LINES, {"x.y.C.g": 80, "x.y.C.f": 90}, listed) == {"x.y.C.g": 80, "x.y.C.f": 90}
    assert tightened(LINES, {"a.b.C.new": 85, "a.b.C.g": 80}, listed) == {"a.b.C.new": 85, "a.b.C.g": 80}


def test_prose_may_move_between_rooms_but_not_grow() -> None:
    assert tightened(PROSE, {"a": 3, "b": 9}, {"a": 8, "b": 4}) == {"a": 3, "b": 9}
    with pytest.raises(Refused):
        tightened(PROSE, {"a": 4, "b": 9}, {"a": 8, "b": 4})


def test_the_file_is_read_as_it_was_written() -> None:
    tables = {"functions": {"a.f": 80}, "files": {}, "sentences": {"a": 3, "b": 4}}
    assert read(written(tables.items())) == tables


def test_of_two_branches_the_smaller_number_counts() -> None:
    assert read('[files]\n<<<<<<< ours\n"a" = 610\n=======\n"a" = 620\n>>>>>>> theirs\n') == {"files": {"a": 610}}


def test_a_line_that_is_no_exception_is_refused() -> None:
    with pytest.raises(ValueError, match="no exception"):
        read('[files]\n"a" = many\n')
