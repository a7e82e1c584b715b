"""The planner's thread gives the interpreter's lock away before it is asked to."""

from __future__ import annotations

import pytest

from loadtrim_agent.common import pauses
from loadtrim_agent.common.pauses import in_turns, may_pause
from loadtrim_agent.leader import turns
from loadtrim_agent.leader.turns import taking_turns


def test_a_thread_that_takes_turns_pauses_once_it_held_the_lock_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = [0.0], list[float]()
    monkeypatch.setattr(turns.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(turns.time, "sleep", slept.append)
    with taking_turns():
        may_pause()
        assert slept == [], "it has only begun"
        clock[0] += turns.HOLD_SECONDS
        may_pause()
        may_pause()
        assert slept == [turns.PAUSE_SECONDS], "it begins anew after each pause"
    clock[0] += 10.0
    may_pause()
    assert len(slept) == 1, "a thread that plans for a simulator takes no turns"


def test_a_long_sequence_has_points_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    seen: list[int] = []
    monkeypatch.setattr(pauses, "_pause", lambda: passed.append(1))
    seen.extend(in_turns(range(10), 3))
    assert seen == list(range(10))
    assert len(passed) == 4
