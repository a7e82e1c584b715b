"""What every record of the control topic has: who wrote it and when, and the partition that it is written to.

Records are JSON objects, one tagged union on ``"kind"``, each with ``"v": 1``: :mod:`.ownership_records` are the
*coordination log*, which every member tails; :mod:`.telemetry_records` are what the leader and Spark read. Units are
seconds (float), records and bytes; times are seconds since the epoch.

Rules for changing them: a new field has a default; a kind, a name or a type never changes its meaning; readers ignore
unknown kinds and fields, count malformed records and skip them. Bytes written by older versions are kept in
``tests/golden`` and must stay readable.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from .ranges import Moment, Version

__all__ = ["COORDINATION", "MALFORMED", "TELEMETRY", "Envelope", "UnreadableRecord"]

COORDINATION = 0
"""Partition of the control topic that holds the coordination log."""
TELEMETRY = 1
"""Partition of the control topic that holds reports and decisions."""


MALFORMED = (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError)
"""Errors that decoders raise on bytes of any kind: two kilobytes of nested JSON are a ``RecursionError``."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Fields that every record has."""

    lands_on: ClassVar[int] = COORDINATION

    group: str
    member: str
    """The writer: its member id, or ``"cli"`` for the command line."""
    at: Moment
    """When it was written, by the writer's clock, seconds since the epoch."""
    v: Version = 1


class UnreadableRecord(ValueError):
    """Bytes on the control topic that are no record of this version. The reader counts and skips them."""
