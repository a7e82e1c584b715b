"""Whether the records of single partitions come by chance is seen over blocks of 20 s."""

from __future__ import annotations

import random

import pytest

from loadtrim_agent.planning.chance import Blocks, BlockSums, chance_share

PARTITIONS = 6


def observed(counts: list[list[int]], rate: float | None = None) -> list[BlockSums]:
    """One report a second of each partition; the rate is the mean so far, or given."""
    sums = []
    for series in counts:
        blocks, total = Blocks(180.0), 0
        for second, arrived in enumerate(series, 1):
            total += arrived
            blocks.add(arrived, 1.0, total / second if rate is None else rate)
        sums.append(blocks.sums)
    return sums


def by_chance(seed: int, rate: float, seconds: int = 300) -> list[list[int]]:
    rng = random.Random(seed)
    return [[sum(rng.random() < rate / 50 for _ in range(50)) for _ in range(seconds)] for _ in range(PARTITIONS)]


@pytest.mark.parametrize("rate", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_records_that_come_by_chance_are_taken_to(seed: int, rate: float) -> None:
    assert chance_share(observed(by_chance(seed, rate))) > 0.85


@pytest.mark.parametrize("every", [2, 5, 10])
def test_records_that_are_dealt_out_in_turn_are_seen(every: int) -> None:
    in_turn = [[int((second + number) % every == 0) for second in range(120)] for number in range(PARTITIONS)]
    assert chance_share(observed(in_turn)) < 0.35


def test_little_that_was_seen_is_chance() -> None:
    in_turn = [[int(second % 10 == 0) for second in range(40)] for _ in range(PARTITIONS)]
    assert chance_share(observed(in_turn)) == 1.0
    assert chance_share(observed([])) == 1.0
    assert chance_share(observed([[0] * 300] * PARTITIONS)) == 1.0


def test_a_rate_that_follows_the_load_says_nothing_of_what_it_follows() -> None:
    """The rate of 20 s explains these 20 s: what was known before them counts."""
    blocks = Blocks(180.0)
    series = by_chance(1, 2.0, 600)[0]
    for second, arrived in enumerate(series, 1):
        blocks.add(arrived, 1.0, sum(series[max(0, second - 20) : second]) / min(second, 20))
    assert blocks.sums.squares > 0.5 * blocks.sums.records


@pytest.mark.parametrize(("blocks", "share"), [(12.0, 1.0), (50.0, 0.84), (1e6, 0.6)])
def test_few_blocks_may_be_alike_by_accident(blocks: float, share: float) -> None:
    assert chance_share([BlockSums(blocks=blocks, records=10.0 * blocks, squares=6.0 * blocks)]) == pytest.approx(
        share, abs=0.01
    )


def test_one_partition_that_is_even_says_nothing_of_the_others() -> None:
    """Most records are of one that is dealt out in turn; where most partitions are by chance, members are as well."""
    even = [[100] * 300]
    assert chance_share(observed(even + by_chance(1, 0.5) + by_chance(2, 0.5))) > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_partitions_without_records_are_no_evidence(seed: int) -> None:
    assert chance_share(observed([*by_chance(seed, 0.5, 200)[:1], *[[0] * 200] * 50])) == 1.0


def test_a_load_that_jumps_is_not_even() -> None:
    jumps = [[1] * 60 + [9] * 60 for _ in range(PARTITIONS)]
    assert chance_share(observed(jumps)) == 1.0


def test_old_blocks_are_forgotten() -> None:
    sums = Blocks(180.0)
    for second in range(4000):
        sums.add(int(second < 2000 and second % 7 == 0), 1.0, 1.0 / 7)
    assert sums.sums.blocks < 12.0
    assert sums.sums.records < 1.0
    assert BlockSums() == Blocks(180.0).sums
