"""The user's settings that fetching works by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["FetchSettings"]

LOW_BYTES_MIN = 1 << 20
"""More is asked for while no more than this is left, or than one answer brings, so that what is read has a successor.
With half of it user code had read all of a partition, and of the others at about the same time, before that."""
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of ``AIOKafkaConsumer`` by its names, with its defaults."""

    isolation_level: int
    """Number of ``isolation_level`` in Kafka's protocol."""
    auto_offset_reset: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    metadata_max_age_seconds: float
    request_timeout_ms: int
    check_crcs: bool
    client_rack: str

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> FetchSettings:
        """Return what the constructor arguments say.

        Raises:
            ValueError: ``isolation_level`` is none that Kafka has.
        """
        isolation = settings.get("isolation_level", "read_uncommitted")
        if isolation not in _ISOLATION:
            raise ValueError(f"Incorrect isolation level {isolation}")
        return cls(
            isolation_level=_ISOLATION[isolation],
            auto_offset_reset=str(settings.get("auto_offset_reset", "latest")),
            fetch_min_bytes=int(settings.get("fetch_min_bytes", 1)),
            fetch_max_bytes=int(settings.get("fetch_max_bytes", 50 << 20)),
            fetch_max_wait_ms=int(settings.get("fetch_max_wait_ms", 500)),
            max_partition_fetch_bytes=int(settings.get("max_partition_fetch_bytes", 1 << 20)),
            metadata_max_age_seconds=float(settings.get("metadata_max_age_ms", 300_000)) / 1000,
            request_timeout_ms=int(settings.get("request_timeout_ms", 40_000)),
            check_crcs=bool(settings.get("check_crcs", True)),
            client_rack=settings.get("client_rack") or "",
        )

    @property
    def committed_only(self) -> bool:
        """Records of open and aborted transactions are left out."""
        return self.isolation_level == _ISOLATION["read_committed"]

    @property
    def low_bytes(self) -> int:
        """More of a partition is asked for while no more than this is buffered."""
        return max(LOW_BYTES_MIN, self.max_partition_fetch_bytes)
