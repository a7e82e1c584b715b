"""The load that is played must be the load that is said to be played."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import datasets, load
from demo.datasets import TRACE_NAME, data_file


class TestSchedule:
    def test_burst_of_the_rate_rounded_up_at_the_start_of_each_second(self) -> None:
        rates = load.LoadRates((2.0, 0.0, 2.1), "test")
        due = list(load.schedule(rates, (1.0,)))
        assert [record.at_seconds for record in due] == [0.0, 0.0, 2.0, 2.0, 2.0]
        assert rates.records == 5

    def test_even_arrivals_spread_over_the_second(self) -> None:
        due = list(load.schedule(load.constant(4, 2), (1.0,), even=True))
        assert [record.at_seconds for record in due] == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]

    def test_records_are_sent_at_the_moments_that_are_given(self) -> None:
        rates = load.LoadRates((1.0, 0.0, 9.0), "test", moments=(0.1, 0.1, 2.7))
        due = list(load.schedule(rates, (0.5, 0.5)))
        assert [(record.at_seconds, record.partition) for record in due] == [(0.1, 0), (0.1, 1), (2.7, 0)]
        assert rates.records == 3

    def test_two_hot_partitions_have_half_of_every_burst(self) -> None:
        due = load.schedule(load.constant(140, 10), load.shares_skewed(9))
        for _, burst in groupby(due, key=lambda record: record.at_seconds):
            counts = Counter(record.partition for record in burst)
            assert counts[0] == counts[1] == 35
            assert {counts[partition] for partition in range(2, 9)} == {10}

    @pytest.mark.slow
    @given(
        st.lists(st.floats(0, 60), min_size=1, max_size=20),
        st.lists(st.integers(1, 20), min_size=1, max_size=12),
    )
    def test_every_partition_keeps_to_its_share_at_every_moment(self, rates: list[float], weights: list[int]) -> None:
        shares = [weight / sum(weights) for weight in weights]
        counts = [0] * len(shares)
        total = 0
        for record in load.schedule(load.LoadRates(tuple(rates), "test"), shares):
            total += 1
            counts[record.partition] += 1
            # Smooth weighted round-robin: the sum of the errors is zero, each is below the number of partitions.
            for count, share in zip(counts, shares, strict=True):
                assert abs(count - share * total) < len(shares)
        assert total == sum(math.ceil(rate) for rate in rates)

    @pytest.mark.slow
    def test_same_schedule_every_time(self) -> None:
        rates = load.trace()
        assert list(load.schedule(rates, load.shares_skewed(9))) == list(load.schedule(rates, load.shares_skewed(9)))

    def test_shares_that_do_not_sum_to_one_are_refused(self) -> None:
        with pytest.raises(ValueError, match="sum to 0\\.9"):
            list(load.schedule(load.constant(1, 1), (0.5, 0.4)))


class TestRates:
    def test_generated_trace_has_the_shape_of_the_recorded_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
        rates = load.trace(every=1)
        assert len(rates.per_second) == 600
        assert "generated" in rates.source
        assert "LOADTRIM_DATA" in rates.source, "where the recorded one is looked for"
        peaks = [round(max(rates.per_second[begin:end])) for begin, end in ((0, 212), (212, 387), (387, 600))]
        assert peaks == [200, 275, 350]
        assert min(rates.per_second[125:475]) > 100
        assert 105_000 < rates.records < 113_000

    def test_recorded_trace(self) -> None:
        if data_file(TRACE_NAME) is None:
            pytest.skip("the recorded trace is not on this machine")
        rates = load.trace(every=1)
        assert rates.records == 109_053
        every_fifth = load.trace()
        assert every_fifth.per_second == rates.per_second[::5]
        assert len(every_fifth.per_second) == 120
        assert "every 5th second" in every_fifth.source

    def test_data_directory_can_be_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / TRACE_NAME).write_text("0.5,1.5\n1.5,2.5\n")
        monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
        assert load.trace(every=1).per_second == (1.5, 2.5)

    def test_without_a_name_recordings_are_looked_for_beside_the_project(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("LOADTRIM_DATA", raising=False)
        monkeypatch.setattr(datasets, "_PROJECT", tmp_path / "project")
        assert data_file(TRACE_NAME) is None
        (tmp_path / "shared" / "data").mkdir(parents=True)
        (tmp_path / "shared" / "data" / TRACE_NAME).write_text("0.5,1.5\n")
        assert load.trace(every=1).per_second == (1.5,)

    def test_noise_stays_within_its_share_and_repeats_with_its_seed(self) -> None:
        rates = load.noisy(100, 600, 0.1, seed=7)
        assert all(90 <= rate <= 110 for rate in rates.per_second)
        assert max(rates.per_second) - min(rates.per_second) > 18
        assert rates == load.noisy(100, 600, 0.1, seed=7)
        assert rates != load.noisy(100, 600, 0.1, seed=8)

    @pytest.mark.parametrize(
        ("text", "first", "last", "seconds"),
        [
            ("constant:50:3", 50, 50, 3),
            ("step:10:90:2:5", 10, 90, 5),
            ("noisy:50:4:0", 50, 50, 4),
        ],
    )
    def test_parse(self, text: str, first: float, last: float, seconds: int) -> None:
        per_second = load.parse_rates(text).per_second
        assert (per_second[0], per_second[-1], len(per_second)) == (first, last, seconds)

    @pytest.mark.parametrize("text", ["", "wave", "constant", "constant:x:3", "step:1:2:3", "constant:1:2:3:4"])
    def test_what_is_not_understood_is_refused_with_what_is(self, text: str) -> None:
        with pytest.raises(ValueError, match="constant:RATE:SECONDS"):
            load.parse_rates(text)

    def test_skewed_shares(self) -> None:
        shares = load.shares_skewed(9)
        assert shares[:2] == (0.25, 0.25)
        assert sum(shares) == pytest.approx(1)
        assert load.shares_skewed(2) == (0.5, 0.5)
