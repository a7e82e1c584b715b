"""What was done, as the streams tell it and as the meter wants it."""

from __future__ import annotations

import pytest

from loadtrim_agent.measuring import unpack
from loadtrim_agent.stream import Finished


def test_one_by_one_each_record_has_its_own_time() -> None:
    latencies, busies, timed = unpack([Finished([1_000, 1_500, 1_500], [2.0, 2.25, 2.5, 4.5], at_once=False)], 10.0)
    assert latencies == pytest.approx([11.25, 11.0, 13.0])
    assert busies == pytest.approx([0.25, 0.25, 2.0])
    assert timed == latencies


def test_a_batch_is_done_at_once_and_shares_its_time() -> None:
    latencies, busies, timed = unpack([Finished([1_000, 2_000], [2.0, 4.0], at_once=True)], 10.0)
    assert latencies == pytest.approx([13.0, 12.0])
    assert busies == pytest.approx([1.0, 1.0])
    assert timed == latencies


def test_records_without_a_timestamp_have_no_latency() -> None:
    finished = [
        Finished([-1, 1_000], [2.0, 3.0, 4.0], at_once=False),
        Finished([-1, -1, 3_000], [4.0, 5.5], at_once=True),
    ]
    latencies, busies, timed = unpack(finished, 10.0)
    assert latencies == pytest.approx([0.0, 13.0, 0.0, 0.0, 12.5])
    assert busies == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.5])
    assert timed == pytest.approx([13.0, 12.5])
