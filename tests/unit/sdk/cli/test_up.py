"""What ``loadtrim up`` refuses before it starts anything, and what it says and does about its group and signals."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim.cli import up
from loadtrim.cli.up import JOIN_SECONDS, REPEAT_SECONDS
from loadtrim.errors import UsageError
from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import CONNECTING, GroupFollower
from loadtrim.orchestrator.instances import InstanceInfo
from loadtrim.orchestrator.supervisor import Phase
from loadtrim_agent.wire.ownership_records import HelloRecord

RUNNING: Any = SimpleNamespace(over=False, failing=lambda _: False)
"""An orchestrator whose instances run."""


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    up.add_parser(parser.add_subparsers())
    args = parser.parse_args(["up", *words])
    args.command = ("python", "service.py")
    return up.run(args)


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--min", "4", "--max", "3"], {}, "--min 4 is more than --max 3"),
        (["--min", "4"], {"LOADTRIM_MAX_REPLICAS": "3"}, "--min 4 is more than LOADTRIM_MAX_REPLICAS=3"),
        (["--max", "2"], {"LOADTRIM_MIN_REPLICAS": "3"}, "LOADTRIM_MIN_REPLICAS=3 is more than --max 2"),
        (["--replicas", "3", "--max", "2"], {}, "--replicas 3 is more than --max 2"),
        (["--replicas", "3"], {"LOADTRIM_MAX_REPLICAS": "1"}, "--replicas 3 is more than LOADTRIM_MAX_REPLICAS=1"),
        (["--replicas", "1", "--min", "2"], {}, "--replicas 1 is less than --min 2"),
    ],
)
def test_bounds_that_no_number_keeps_are_refused_wherever_they_are_said(
    words: list[str], env: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of them in the environment every instance ended at its start, six times, before that was told."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said):
        run(*words)


@pytest.mark.parametrize(("words", "env", "begins"), [([], {}, 1), (["--min", "2"], {}, 2), ([], {"MIN": "3"}, 3)])
def test_the_least_is_where_it_begins(
    words: list[str], env: dict[str, str], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started(args: argparse.Namespace, connection: object) -> int:
        return int(args.replicas)

    for name, value in env.items():
        monkeypatch.setenv(f"LOADTRIM_{name}_REPLICAS", value)
    monkeypatch.setattr(up, "_run", started)
    assert run(*words) == begins


def session_of(*words: str) -> up._Session:
    """Return a session whose instances and whose group's follower are never started."""
    parser = argparse.ArgumentParser()
    up.add_parser(parser.add_subparsers())
    args = parser.parse_args(["up", *words])
    args.command, args.replicas = ("python", "service.py"), 1
    return up._Session(args, Connection("localhost:1", "--bootstrap"))


@pytest.mark.parametrize("group", ["", "\ud800"])
def test_a_group_that_is_none_is_wrong_use(group: str) -> None:
    """Not a word was said of it, and nothing was ever shown."""
    with pytest.raises(UsageError, match="cannot be looked for"):
        run("--group", group)


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_trouble_with_the_group_is_told_once_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the live view showed it: members were not told of processes that had ended, and nobody knew."""
    session = session_of("--json")
    follower = session._follower = GroupFollower(session._connection, "payments")
    task = asyncio.create_task(session._until_stopped(RUNNING))
    for trouble in (CONNECTING, "No broker can be talked to.", "", "No broker can be talked to.", "Refused."):
        follower.trouble = trouble
        await asyncio.sleep(2.0)
    session._stop.set()
    await task
    session.close()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["group"], each["text"]) for each in told] == [
        ("trouble", "payments", "No broker can be talked to."),
        ("trouble", "payments", "No broker can be talked to."),
        ("trouble", "payments", "Refused."),
    ]


async def test_trouble_with_the_group_is_told_with_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    session = session_of("--plain")
    session._follower = GroupFollower(session._connection, "payments")
    session._follower.trouble = "No broker can be talked to."
    session._say_trouble()
    session.close()
    assert "cannot follow payments: No broker can be talked to; its members are not told of" in capsys.readouterr().out


async def test_an_instance_that_does_not_join_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One that hung at its start counted as a replica, and not a word was said of it."""
    session = session_of("--json")
    follower = session._follower = GroupFollower(session._connection, "payments")
    follower.trouble = ""
    now = time.time()
    follower.view.apply(HelloRecord(group="payments", member="m", at=now, instance="pay-2"), now)
    ages = {"pay-1": JOIN_SECONDS + 1.0, "pay-2": JOIN_SECONDS + 1.0, "pay-3": JOIN_SECONDS - 1.0}
    instances = [
        InstanceInfo(name=name, phase=Phase.RUNNING, asked_at=now - age, started_at=now - age, process_id=number)
        for number, (name, age) in enumerate(ages.items())
    ]
    instances.append(InstanceInfo(name="pay-4", phase=Phase.WAITING, asked_at=now - 100.0))
    session._orchestrator = SimpleNamespace(instances=tuple(instances))  # type: ignore[assignment]
    for _ in range(2):
        session._say_group()
    session.close()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    strangers = [each for each in told if each["kind"] == "no_member"]
    assert [(each["instance"], each["group"]) for each in strangers] == [("pay-1", "payments")]
    assert "pay-1 has run for 61 s and is no member of payments" in strangers[0]["text"]


@pytest.mark.parametrize(
    ("at_seconds", "kills"), [((0.0, 0.001), 0), ((0.0, 0.4, 0.8), 0), ((0.0, REPEAT_SECONDS), 1), ((0.0, 0.6, 1.2), 1)]
)
async def test_a_signal_that_is_repeated_at_once_is_no_second_one(
    at_seconds: tuple[float, ...], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout 60 loadtrim up ...` sends SIGTERM to its child and to its group: all instances were killed."""
    session = session_of("--plain")
    killed = list[float]()
    monkeypatch.setattr(session._orchestrator, "kill", lambda: killed.append(0.0))
    for at in at_seconds:
        monkeypatch.setattr(up.time, "monotonic", lambda now=at: 1000.0 + now)
        session._on_signal()
    session.close()
    assert session._stop.is_set()
    assert len(killed) == kills
