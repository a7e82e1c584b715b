"""The search finds the fewest replicas that hold the objective, wherever it begins, and tries one below."""

from __future__ import annotations

import pytest
from benchmarks.programs.judge import StatusMinute, Verdict
from benchmarks.programs.search import Search

SHARE = 0.99


def outcome(*, late: int, lost: int = 0) -> Verdict:
    told = StatusMinute(share=None, share_true=None, latency_p99=None, latency_p99_true=None)
    return Verdict(
        records=1000, late=late, whole_records=1000, whole_late=late, lost=lost, repeated=0, replica_minutes=1.0,
        wanted=(), wanted_min=None, wanted_max=None, scalings=0, scalings_whole=0, told=told, reasons=(),
    )  # fmt: skip


def tried(search: Search, enough: int) -> list[int]:
    """Play a search in which so many replicas are enough; return what it tried."""
    while (replicas := search.next) is not None:
        search.tell(replicas, outcome(late=10 if replicas >= enough else 11))
    return list(search.tried)


@pytest.mark.parametrize(
    ("begin", "enough", "order"),
    [
        (None, 2, [2]),
        (None, 5, [2, 3, 4, 5]),
        (5, 5, [5, 4]),
        (7, 5, [7, 6, 5, 4]),
        (4, 5, [4, 5]),
        (1, 2, [2]),
        (99, 8, [8, 7]),
    ],
)
def test_the_fewest_are_found(begin: int | None, enough: int, order: list[int]) -> None:
    search = Search(2, 8, SHARE, begin)
    assert tried(search, enough) == order
    assert search.fewest == enough


def test_a_search_in_which_nothing_is_enough_ends() -> None:
    search = Search(2, 4, SHARE)
    assert tried(search, 9) == [2, 3, 4]
    assert search.fewest is None


def test_a_run_that_lost_a_record_holds_nothing() -> None:
    search = Search(1, 1, SHARE)
    search.tell(1, outcome(late=0, lost=1))
    assert search.fewest is None
