"""Who is ended in the name of whom: members of the process that is gone, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError

from loadtrim.observer import ended
from loadtrim.observer.connection import Connection
from loadtrim.observer.ended import EndedProcesses, members_of
from loadtrim.observer.group import ObservedGroup
from loadtrim_agent.wire.ownership_records import HelloRecord, LeftRecord

from .control_records import GROUP, base, report, view

NOWHERE = Connection(bootstrap="nowhere:9092", given_by="the test")


def hello(member: str, instance: str, process: str) -> HelloRecord:
    return HelloRecord(group=GROUP, member=member, at=0.5, instance=instance, process=process)


def group(*records: Any) -> ObservedGroup:
    return view(
        base(1, {"a": (0,), "b": (1,), "c": (2,), "d": (3,), "e": ()}),
        report("a", instance="pay-1", process="100-abc-0a0a"),
        report("b", instance="pay-1", process="100-abc-0a0a"),
        report("c", instance="pay-2", process="200-def-0a0a"),
        report("d", instance="pay-1", process="101-fff-0a0a"),
        report("e", instance="other-1", process="100-eee-0a0a"),
        *records,
    ).state(1.0)


def test_all_members_of_the_process_are_found() -> None:
    assert members_of(group(), "pay-1", 100, "0a0a") == ("a", "b")


def test_what_a_process_forked_goes_on() -> None:
    """A shell, or a server whose workers outlive it, is gone: its children have other process ids."""
    assert members_of(group(), "pay-1", 99, "0a0a") == ()
    assert members_of(group(), "pay-1", 10, "0a0a") == ()


def test_the_same_names_in_another_container_are_somebody_elses() -> None:
    """Two orchestrators of one group name their first instance the same, and process ids repeat."""
    twin = report("t", instance="pay-1", process="100-ddd-1b1b")
    assert members_of(group(hello("t", "pay-1", "100-ddd-1b1b"), twin), "pay-1", 100, "0a0a") == ("a", "b")
    assert members_of(group(), "pay-2", 100, "0a0a") == ()


def test_who_was_started_by_somebody_else_is_no_child() -> None:
    """Nothing tells that it was: a member without the mark of a start, or with another one."""
    assert members_of(group(hello("g", "pay-1", "100-ddd")), "pay-1", 100, "") == ()
    assert members_of(group(), "pay-1", 100, "2c2c") == ()


def test_a_member_that_has_only_said_hello_is_found() -> None:
    assert members_of(group(hello("f", "pay-3", "300-abc-0a0a")), "pay-3", 300, "0a0a") == ("f",)


def test_who_has_left_is_not_ended_again() -> None:
    left = LeftRecord(group=GROUP, member="a", at=0.5, generation=1)
    assert members_of(group(left), "pay-1", 100, "0a0a") == ("b",)


async def ends(monkeypatch: pytest.MonkeyPatch, error: Exception | None, known: int = 2) -> tuple[list[Any], list[str]]:
    asked: list[Any] = []
    said: list[str] = []

    async def end(connection: Connection, name: str, members: tuple[str, ...]) -> int:
        asked.append((connection, name, members))
        if error is not None:
            raise error
        return known

    monkeypatch.setattr(ended, "end_memberships", end)
    processes = EndedProcesses(NOWHERE, said.append)
    processes.process_ended(group(), "pay-1", 100, "0a0a")
    processes.process_ended(group(), "pay-1", 77, "0a0a")
    for _ in range(5):
        await asyncio.sleep(0)
    await processes.close()
    return asked, said


async def test_the_group_is_told_once_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = await ends(monkeypatch, None)
    assert asked == [(NOWHERE, GROUP, ("a", "b"))]
    assert said == [f"pay-1 has ended, and group {GROUP} was told: others take its partitions now"]


async def test_nothing_is_said_of_members_that_had_left_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a process is seen before its last record in the log is read."""
    asked, said = await ends(monkeypatch, None, known=0)
    assert asked == [(NOWHERE, GROUP, ("a", "b"))]
    assert said == []


async def test_a_group_that_cannot_be_told_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = await ends(monkeypatch, GroupAuthorizationFailedError("no"))
    assert len(said) == 1
    assert "notices by the session timeout" in said[0]
    assert "READ on the group" in said[0]
