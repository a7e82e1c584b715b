"""Baselines for tests: a week of slots in UTC, written as the Spark pipeline writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from loadtrim_agent.wire.baseline_records import WEEK_SECONDS, BaselineRecord

MONDAY = 1_700_438_400
"""2023-11-20 00:00 UTC."""


def utc_slots(zone: str, bucket_seconds: int, begin: int, count: int) -> Sequence[int] | None:
    """The calendar of somebody who knows UTC only."""
    return [(begin + i * bucket_seconds - MONDAY) % WEEK_SECONDS // bucket_seconds for i in range(count)]


def value(
    level: Callable[[int], float] = lambda second: 1.0,
    *,
    topic: str = "orders",
    group: str = "g",
    bucket_seconds: int = 900,
    **changes: Any,
) -> dict[str, Any]:
    """A record whose level at each second of the week is ``level`` times ``rate``, as JSON."""
    shape = [round(1000 * level(start)) for start in range(0, WEEK_SECONDS, bucket_seconds)]
    told: dict[str, Any] = {
        "kind": "baseline", "v": 1, "at": MONDAY, "group": group, "topic": topic, "rate": 100.0, "growth": 0.0,
        "quantiles": [1.0, 1.0, 1.0], "shape": shape, "time_zone": "UTC", "bucket_seconds": bucket_seconds,
        "from": MONDAY - 6 * WEEK_SECONDS, "to": MONDAY, "weeks": 6, "error": 0.1, "outliers": 0.0,
    }  # fmt: skip
    return told | changes


def key(topic: str | None = "orders", partition: int | None = None, group: str = "g") -> bytes:
    return msgspec.json.encode([group, topic, partition])


def data(told: dict[str, Any]) -> bytes:
    return msgspec.json.encode({name: entry for name, entry in told.items() if entry is not None})


def record(level: Callable[[int], float] = lambda second: 1.0, **changes: Any) -> BaselineRecord:
    return msgspec.json.decode(data(value(level, **changes)), type=BaselineRecord)
