"""Slots of a report that count for nothing: of another length, or far from the time of the report's append.

Nobody knows what came for a member whose slots are left out, so it counts as one that is not heard.
"""

from __future__ import annotations

__all__ = ["BUCKET_SECONDS", "SLOTS_SECONDS", "left_out_slots"]

BUCKET_SECONDS = 0.1
SLOTS_SECONDS = 180.0
"""Slots are remembered for so long: what the stages look at, and what comes late."""
SLOTS_AHEAD_SECONDS = 60.0
"""Slots that end so long after the report was appended are no past: one taken for truth would shut the real ones out.
Chosen: clocks of members and brokers are off by less."""
SLOTS_BEHIND_SECONDS = SLOTS_SECONDS
"""The same before it. Derived: slots of before are forgotten. The group's are looked at up to the last that every
member has told about, so nothing would be left of the others'."""


def left_out_slots(slot_seconds: float, after: int, logged_at: float) -> str:
    """Return why a report's slots are left out, as ``observation.LEFT_OUT`` names it; empty: they are not.

    Args:
        slot_seconds: length of a slot in the report.
        after: number of the slot after the last one.
        logged_at: when it was appended, seconds since the epoch.
    """
    if abs(slot_seconds - BUCKET_SECONDS) > 1e-6:
        return "slot_length"
    ahead_seconds = after * BUCKET_SECONDS - logged_at
    return "" if -SLOTS_BEHIND_SECONDS <= ahead_seconds <= SLOTS_AHEAD_SECONDS else "slot_time"
