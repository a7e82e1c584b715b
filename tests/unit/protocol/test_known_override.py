"""Of two orders in the log the later one counts; what repeats them tells those that have read none."""

from __future__ import annotations

from loadtrim_agent.protocol.known_override import KnownOverride
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord


def order(action: str, at: float) -> ManualOverrideRecord:
    return ManualOverrideRecord(group="g", member="cli", at=at, action=action)


def test_what_is_read_counts_whatever_clocks_wrote_it() -> None:
    known = KnownOverride()
    assert (known.latest, known.known) == (None, False)
    known.read(order("hold", 9.0))
    known.read(order("resume", 1.0))
    assert (known.latest, known.known) == (order("resume", 1.0), True)
    known.repeated(order("hold", 9.0))
    assert known.latest == order("resume", 1.0)


def test_what_is_repeated_tells_those_that_have_read_none() -> None:
    known = KnownOverride()
    known.repeated(None)
    assert (known.latest, known.known) == (None, True)
    known.repeated(order("hold", 1.0))
    assert known.latest == order("hold", 1.0)


def test_after_a_gap_the_later_of_both_counts() -> None:
    known = KnownOverride()
    known.read(order("hold", 2.0))
    known.gap()
    assert not known.known
    known.repeated(order("resume", 1.0))
    assert known.latest == order("hold", 2.0)
    known.repeated(order("resume", 3.0))
    assert known.latest == order("resume", 3.0)
    known.read(order("hold", 1.0))
    known.repeated(order("resume", 4.0))
    assert known.latest == order("hold", 1.0), "nothing was missed since"
