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
        report("a", instance="pay-1", process="100-abc"),
        report("b", instance="pay-1", process="100-abc"),
        report("c", instance="pay-2", process="200-def"),
        report("d", instance="pay-1", process="101-fff"),
        report("e", instance="other-1", process="100-eee"),
        *records,
    ).state(1.0)


def test_all_members_of_the_process_are_found() -> None:
    assert members_of(group(), "pay-1", 100) == ("a", "b")


def test_what_a_process_forked_goes_on() -> None:
    """A shell, or a server whose workers outlive it, is gone: its children have other process ids."""
    assert members_of(group(), "pay-1", 99) == ()
    assert members_of(group(), "pay-1", 10) == ()


def test_the_same_process_id_in_another_container_is_somebody_else() -> None:
    assert members_of(group(), "pay-2", 100) == ()


def test_a_member_that_has_only_said_hello_is_found() -> None:
    assert members_of(group(hello("f", "pay-3", "300-abc")), "pay-3", 300) == ("f",)


def test_who_has_left_is_not_ended_again() -> None:
    left = LeftRecord(group=GROUP, member="a", at=0.5, generation=1)
    assert members_of(group(left), "pay-1", 100) == ("b",)


async def ends(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> tuple[list[Any], list[str]]:
    asked: list[Any] = []
    said: list[str] = []

    async def end(connection: Connection, name: str, members: tuple[str, ...]) -> None:
        asked.append((connection, name, members))
        if error is not None:
            raise error

    monkeypatch.setattr(ended, "end_memberships", end)
    processes = EndedProcesses(NOWHERE, said.append)
    processes.process_ended(group(), "pay-1", 100)
    processes.process_ended(group(), "pay-1", 77)
    for _ in range(5):
        await asyncio.sleep(0)
    await processes.close()
    return asked, said


async def test_the_group_is_told_once_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = await ends(monkeypatch, None)
    assert asked == [(NOWHERE, GROUP, ("a", "b"))]
    assert said == [f"pay-1 has ended, and group {GROUP} was told: others take its partitions now"]


async def test_a_group_that_cannot_be_told_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = await ends(monkeypatch, GroupAuthorizationFailedError("no"))
    assert len(said) == 1
    assert "notices by the session timeout" in said[0]
    assert "READ on the group" in said[0]
