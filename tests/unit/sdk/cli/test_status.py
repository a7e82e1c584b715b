"""``loadtrim status --watch`` without a cluster: what is printed when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim.cli import main, status
from loadtrim.cli.status import CLEAR, Screen, watch
from loadtrim.observer.group import GroupObserver


class Follower:
    """A group that is followed; it has no members."""

    def __init__(self) -> None:
        self.trouble = ""
        self.state = lambda: GroupObserver("payments").state(0.0)


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Follower:
    found = Follower()

    async def read_state(connection: Any, group: str) -> Any:
        return found.state()

    @asynccontextmanager
    async def following(connection: Any, group: str) -> AsyncIterator[Follower]:
        yield found

    monkeypatch.setattr(status, "read_state", read_state)
    monkeypatch.setattr(status, "following", following)
    return found


async def watched(screen: Screen, follower: Follower, troubles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch for as long as there is something to come."""
    left = iter(troubles)

    async def sleep(seconds: float) -> None:
        assert seconds == 3.0
        if (trouble := next(left, None)) is None:
            raise asyncio.CancelledError
        follower.trouble = trouble

    monkeypatch.setattr(status, "asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        await watch(None, "payments", 3.0, screen)  # type: ignore[arg-type]


async def test_the_group_is_shown_again_and_trouble_is_waited_out(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await watched(Screen(as_json=False, partitions=False), follower, ["", "no broker", ""], monkeypatch)
    shown = capsys.readouterr().out.split("\n\npayments")
    assert len(shown) == 4
    assert [("no broker" in each) for each in shown] == [False, False, True, False]


async def test_a_terminal_is_wiped_before_it_is_shown_again(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    await watched(Screen(as_json=False, partitions=True), follower, [""], monkeypatch)
    out = capsys.readouterr().out
    assert out.count(CLEAR) == 1
    assert not out.startswith(CLEAR), "the first is no reason to wipe what was there"


async def test_as_json_each_state_is_a_line_and_trouble_goes_elsewhere(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    troubles = ["", "no broker", "no broker", ""]
    await watched(Screen(as_json=True, partitions=False), follower, troubles, monkeypatch)
    told = capsys.readouterr()
    assert [json.loads(line)["group"] for line in told.out.splitlines()] == ["payments"] * 3
    assert told.err == "loadtrim: no broker\n"


def test_ctrl_c_is_its_end(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(status.asyncio, "sleep", interrupted)
    assert main(["status", "payments", "--watch", "--json", "--bootstrap", "localhost:1"]) == 0
    told = capsys.readouterr()
    assert all(json.loads(line) for line in told.out.splitlines())
    assert told.err == "\n", "the prompt of a shell begins a line"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--every", "2"], "--every was given without --watch"),
        (["--watch", "--every", "0"], "'0' is not a number of seconds: 0.1 to 86400"),
        (["--watch", "--every", "soon"], "'soon' is not a number of seconds: 0.1 to 86400"),
        (["--watch", "--every", "nan"], "'nan' is not a number of seconds"),
    ],
)
def test_a_time_that_is_none_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A word was told to be an "invalid _seconds value"."""
    assert main(["status", "payments", *words]) == 2
    assert said in capsys.readouterr().err
