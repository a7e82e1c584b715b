"""Who handles SIGTERM, and from when until when."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from loadtrim.signals import StopSignals


class Asked:
    """Takes note of each signal: whether it asks to leave at once."""

    def __init__(self) -> None:
        self.times: list[bool] = []

    def take(self, at_once: bool) -> None:
        self.times.append(at_once)


@pytest.fixture(autouse=True)
def nobody_handles_it() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


async def test_the_first_one_hands_over_and_the_second_leaves_at_once() -> None:
    asked = Asked()
    signals = StopSignals(asked.take, enabled=True)
    signals.install()
    for _ in range(2):
        signals._signalled()
    assert asked.times == [False, True]
    assert signals.at_once
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    signals.remove()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_signals_are_left_alone_where_that_is_asked_for() -> None:
    StopSignals(Asked().take, enabled=False).install()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_handler_of_the_program_is_left_in_its_place() -> None:
    taken: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    asked = Asked()
    StopSignals(asked.take, enabled=True).install()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (taken, asked.times) == ([signal.SIGTERM], [])
