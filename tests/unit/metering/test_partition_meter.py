"""Until when a partition is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.metering.partition_meter import POLL_SECONDS, PartitionMeter


@pytest.mark.parametrize(
    ("waiting", "age", "until_now"),
    [
        ((), POLL_SECONDS, True),
        ((), POLL_SECONDS + 0.5, False),
        ((), 1_000_000.0, False),
        ((1,), POLL_SECONDS / 2, False),
    ],
)
def test_without_records_the_last_poll_covers_until_the_next_is_due(
    waiting: tuple[int, ...], age: float, until_now: bool
) -> None:
    """Behind that, nothing may have come, or nobody may have looked."""
    seen_at = 1_000_000.0
    meter: Any = SimpleNamespace(arrivals=SimpleNamespace(seen_at=seen_at), queue=SimpleNamespace(records=waiting))
    now = seen_at + age
    assert PartitionMeter.observed_until(meter, now) == (now if until_now else seen_at)
