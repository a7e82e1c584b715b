"""The agent's way to the control topic: only this group's records go to the machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.kafka.control_topic import ControlTopicUnusable
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import GroupConfig
from loadtrim_agent.runtime import control_access
from loadtrim_agent.runtime.control_access import ControlAccess
from loadtrim_agent.runtime.observer import AgentObserver
from loadtrim_agent.wire.ownership_records import HelloRecord


class Member:
    config = GroupConfig(group="ours", topics=())

    def __init__(self) -> None:
        self.fed: list[e.Event] = []
        self.usable: list[bool] = []

    def feed(self, event: e.Event) -> None:
        self.fed.append(event)

    def use_log(self, usable: bool) -> None:
        self.usable.append(usable)


class Observer(AgentObserver):
    def __init__(self) -> None:
        self.groups: list[str] = []
        self.errors: list[str] = []

    def error(self, where: str) -> None:
        self.errors.append(where)

    def read(self, record: Any) -> None:
        self.groups.append(record.group)
        raise ZeroDivisionError


def access() -> tuple[ControlAccess, Member, Observer]:
    member, observer, tasks = Member(), Observer(), SimpleNamespace()
    return ControlAccess({}, "shared", member, observer, ErrorBoundary(observer), tasks), member, observer  # type: ignore[arg-type]


@pytest.mark.parametrize(("group", "taken"), [("ours", True), ("theirs", False), ("", False)])
def test_records_of_another_group_and_probes_are_passed_over(group: str, taken: bool) -> None:
    """Two groups may have been given one topic: a release of the other would move partitions of this one."""
    control, member, observer = access()
    event = e.LogReadEvent(now=1.0, offset=0, record=HelloRecord(group=group, member="m", at=1.0))
    control.feed(event)
    assert member.fed == ([event] if taken else [])
    assert observer.groups == ([group] if taken else []), "and what the observer raises goes no further"


def test_what_is_no_record_goes_to_the_machine() -> None:
    control, member, _ = access()
    event = e.LogGapEvent(now=1.0)
    control.feed(event)
    assert member.fed == [event]


def test_without_a_topic_each_command_is_answered_that_it_failed() -> None:
    control, member, _ = access()
    control.append(c.AppendCommand(append=3, record=HelloRecord(group="ours", member="m", at=1.0)))
    control.read_assignment(c.ReadAssignmentCommand(group="ours", timeout=0.5))
    first, second = member.fed
    assert isinstance(first, e.AppendedEvent)
    assert (first.append, first.offset) == (3, None)
    assert isinstance(second, e.AssignmentFoundEvent)
    assert second.assignment is None


async def test_a_topic_that_cannot_be_used_is_not_offered_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that offered loadtrim without a log could neither take nor give anything."""

    class Log:
        starts = 0

        def __init__(self, *_: object) -> None: ...

        async def start(self) -> None:
            Log.starts += 1
            if Log.starts < 3:
                raise ControlTopicUnusable("no rights")

        async def run(self) -> None: ...

    monkeypatch.setattr(control_access, "ControlLog", Log)
    monkeypatch.setattr(control_access, "RETRY_SECONDS", 0.0)
    control, member, observer = access()
    spawned: list[Any] = []
    control._tasks = SimpleNamespace(spawn=lambda work, name: spawned.append(work))  # type: ignore[assignment]
    await control.start()
    assert member.usable == [False]
    assert (control.log, member.fed, observer.errors) == (None, [], ["control_topic"])
    [again] = spawned
    await again
    assert [type(event) for event in member.fed] == [e.LogUsableEvent]
    assert member.usable == [False], "the machine itself joins once more"
    assert control.log is not None
    await spawned[1]
