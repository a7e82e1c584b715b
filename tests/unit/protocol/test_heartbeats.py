"""When the next heartbeat is due."""

from __future__ import annotations

from loadtrim_agent.protocol.heartbeats import BURST_GAPS_SECONDS, Heartbeats
from loadtrim_agent.protocol.retry_backoff import RetryBackoff

NEVER = float("inf")


def due(now: float = 100.0) -> Heartbeats:
    heartbeats = Heartbeats(1.0, RetryBackoff(0.5))
    heartbeats.by(now)
    return heartbeats


def test_refused_ones_pause_for_longer_each_time_until_the_coordinator_answers() -> None:
    heartbeats = due()
    pauses = []
    for _ in range(5):
        heartbeats.refused(100.0, "m1")
        pauses.append(heartbeats.wakeup - 100.0)
    assert pauses[0] == 0.0
    assert 0.0 < pauses[1] < pauses[2] < pauses[3] < pauses[4] <= 0.5
    heartbeats.accepted()
    assert heartbeats.wakeup == 100.0
    heartbeats.refused(100.0, "m1")
    assert heartbeats.wakeup == 100.0, "the next refusal is a first one"


def test_one_is_on_its_way_at_a_time() -> None:
    heartbeats = due()
    heartbeats.sent()
    heartbeats.by(0.0)
    assert heartbeats.wakeup == NEVER
    heartbeats.answered()
    heartbeats.next(100.5)
    assert heartbeats.wakeup == 101.5


def test_a_burst_ends_with_the_interval_or_with_the_generation() -> None:
    heartbeats = due()
    heartbeats.burst(100.0)
    gaps = []
    for _ in range(len(BURST_GAPS_SECONDS) + 1):
        heartbeats.next(100.0)
        gaps.append(heartbeats.wakeup - 100.0)
    assert [round(gap, 6) for gap in gaps] == [*BURST_GAPS_SECONDS, 1.0]
    heartbeats.burst(100.0)
    heartbeats.entered(100.0)
    heartbeats.next(100.0)
    assert heartbeats.wakeup == 101.0


def test_none_is_sent_while_stopped() -> None:
    heartbeats = due()
    heartbeats.stopped = True
    assert heartbeats.wakeup == NEVER
    heartbeats.joined(100.0)
    assert heartbeats.wakeup == 100.0
