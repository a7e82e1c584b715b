"""A partition's windows, of which the edge of a bucket may cut a part away."""

from __future__ import annotations

import random

import pytest

from loadtrim_agent.planning.estimate import unit_curve
from loadtrim_agent.planning.shape import UNCUT, cut_of, shape_of, uncut
from loadtrim_agent.planning.values import TAUS_SECONDS

WHOLE = (1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0)
"""All of a second at once."""
MEASURED = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Lengths at which a member measures."""


def told(before: float) -> tuple[float, ...]:
    """Return what a partition tells of bursts of which so much came before the edge: windows end with a bucket."""
    short = before * before + (1.0 - before)
    return shape_of([(tau, short if tau < 1.0 else tau) for tau in MEASURED])


@pytest.mark.parametrize("before", [0.0, 0.02, 0.29, 0.5, 0.8])
def test_a_burst_that_an_edge_cuts_in_every_partition_is_whole(before: float) -> None:
    """Three of five partitions on a member looked as if they were in time, and a tenth of what came was late."""
    shape = told(before)
    cut = cut_of([(0.3, shape), (0.5, shape), (0.2, shape)], WHOLE)
    assert uncut(shape, cut) == pytest.approx(WHOLE)


def test_a_partition_that_flows_beside_one_with_bursts_goes_on_flowing() -> None:
    flowing, bursts = tuple(TAUS_SECONDS), WHOLE
    group = tuple(0.5 * (one + other) for one, other in zip(flowing, bursts, strict=True))
    assert cut_of([(0.5, flowing), (0.5, bursts)], group) == UNCUT
    assert uncut(flowing, UNCUT) == flowing


def test_partitions_whose_bursts_meet_by_chance_have_more_than_the_group() -> None:
    """Nothing is added where nothing was cut."""
    rng = random.Random(5)
    slots = [[rng.expovariate(1.0) if rng.random() < 0.2 else 0.0 for _ in range(600)] for _ in range(6)]
    shapes = [(sum(each), unit_curve(each).mean) for each in slots]
    assert cut_of(shapes, unit_curve([sum(each) for each in zip(*slots, strict=True)]).mean) == UNCUT


@pytest.mark.parametrize("shapes", [[], [(0.0, WHOLE)], [(1.0, (0.0, *TAUS_SECONDS[1:]))], [(1.0, (1e-300,) * 7)]])
def test_where_nothing_is_told_nothing_was_cut(shapes: list[tuple[float, tuple[float, ...]]]) -> None:
    assert cut_of(shapes, WHOLE) == UNCUT
