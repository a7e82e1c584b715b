"""Packers are judged over all families and in the form that is the default; what looks better has no verdict."""

from __future__ import annotations

import pytest
from benchmarks.suite.bench_packers import gap_figures, rscore_figures
from benchmarks.suite.packing import FAMILIES, HARD, PackedStream


def test_the_gap_is_judged_over_all_families() -> None:
    """Six families at 0.4 % and two at 6.1 % are 1.8 % in the mean, which is missed."""
    by_family = {**dict.fromkeys(FAMILIES, (0.4, 0.7)), **dict.fromkeys(HARD, (6.1, 9.4))}
    judged, worst, *beside = gap_figures(by_family)
    assert judged.value == pytest.approx((6 * 0.4 + 2 * 6.1) / 8)
    assert judged.met is False
    assert worst.peer in HARD
    assert [figure.met for figure in (worst, *beside)] == [None, None, None]


def moved(rscore: float) -> PackedStream:
    return PackedStream(opened=(15,), bound=(14,), rscore=rscore, moves=1, misfits=0)


def test_what_is_moved_is_judged_with_the_default_form() -> None:
    judged, calm = rscore_figures(moved(1.0), default=moved(0.59), calm=moved(0.41))
    assert (judged.value, judged.met) == (0.59, False)
    assert (calm.value, calm.met) == (0.41, None)
