"""What a planned move costs is judged as a record sees it: the whole time between two records."""

from __future__ import annotations

import pytest
from benchmarks.suite.bench_move import GAP_P50_SECONDS, GAP_P99_SECONDS, Moved, gap_figures
from benchmarks.suite.stamps import Stamp


def handed(whole_seconds: float) -> Moved:
    """A record each 10 ms, and a hundred moves that take ``whole_seconds`` from record to record."""
    stamps, at_ns = [], 0
    for turn in range(101):
        for _ in range(5):
            stamps.append(Stamp(0, len(stamps), at_ns, f"member-{turn % 2}"))
            at_ns += 10_000_000
        at_ns += int(whole_seconds * 1e9) - 10_000_000
    return Moved(stamps, stamps, 0)


def test_the_whole_time_is_judged_and_the_net_time_stands_beside_it() -> None:
    """As measured once: "5.5 ms" were 15.4 ms, of which 9.9 pass without a move too."""
    p50, net50, p99, net99 = gap_figures(handed(0.0339))
    assert (GAP_P50_SECONDS, GAP_P99_SECONDS) == (0.016, 0.03)
    assert p50.value == p99.value == pytest.approx(0.0339)
    assert (p50.met, p99.met) == (False, False)
    assert net50.value == net99.value == pytest.approx(0.0239)
    assert (net50.met, net99.met) == (None, None)
    assert "without a move 10.0 ms" in p50.peer
    assert "another operation" in p99.peer


def test_a_move_that_takes_no_time_meets_both_targets() -> None:
    assert [figure.met for figure in gap_figures(handed(0.010))] == [True, None, True, None]
