"""Partition logs in memory, for tests of what reads and appends them."""

from __future__ import annotations

from types import SimpleNamespace

from loadtrim_agent.kafka.partition_log import Fetched
from loadtrim_agent.wire.codec import Record, encode

__all__ = ["SharedLog"]


class SharedLog:
    """A partition that several groups write to: offset -> value."""

    def __init__(self, *records: Record) -> None:
        self.values = [encode(record) for record in records]
        self.reads = 0

    async def first(self) -> int:
        return 0

    async def end(self) -> int:
        return len(self.values)

    async def read(self, position: int, *, wait_seconds: float, timeout: float) -> Fetched:
        self.reads += 1
        messages = [SimpleNamespace(offset=n, value=value) for n, value in enumerate(self.values)][position:]
        return Fetched(messages, len(self.values), len(self.values))
