"""Whose pods are looked at, by whom, and what is sent then; in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import convert

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod import Pod
from loadtrim_agent.runtime.ended_pods import EndedPods, pod_of
from loadtrim_agent.wire.ownership_records import LoadRecord
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence
from unit.leader.scaling.kubernetes.test_pod import running, status, terminated

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]
UID = "6f1c"


class House:
    """Member ``b`` of the group of a, b and c, which a leads."""

    def __init__(self, leader: str = "a") -> None:
        assignment = SimpleNamespace(members=dict.fromkeys("abc"))
        self.group = SimpleNamespace(stable=True, assignment=assignment, member="b", leader=leader)
        self.requests = self
        self.left: list[tuple[str, float]] = []
        self.asked: list[tuple[str, float]] = []
        self.pods: dict[str, Any] = {}
        """Pod -> its status; what is an error is raised."""
        self.answers = True
        """The coordinator answers to LeaveGroup."""
        self.fence = OpenFence()
        self.talks: set[str] = set("abc")
        """Members that write load records, each second."""
        self.watch = EndedPods(self, self, self.fence, clock=self.now)  # type: ignore[arg-type]

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def snapshot(self) -> Any:
        return self.group

    async def leave_group(self, member: str) -> bool:
        self.left.append((member, self.now()))
        if self.answers:
            self.group.assignment.members.pop(member)
        return self.answers

    async def pod(self, name: str) -> Pod:
        self.asked.append((name, self.now()))
        found = self.pods.get(name, ApiError(404, f"pods {name!r} not found"))
        if isinstance(found, Exception):
            raise found
        return convert(found, Pod)

    async def _talk(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            for member in sorted(self.talks):
                self.watch.note_load(
                    LoadRecord(group="g", member=member, at=100.0 + self.now(), generation=1, pod=f"pod-{member}/{UID}")
                )
            await asyncio.sleep(1.0)


@contextlib.asynccontextmanager
async def house(leader: str = "a") -> AsyncIterator[House]:
    made = House(leader)
    tasks = [asyncio.create_task(made.watch.run()), asyncio.create_task(made._talk(600))]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nothing_is_asked_while_all_are_heard_of() -> None:
    async with house("b") as at:
        await asyncio.sleep(60.5)
        assert at.asked == []


async def test_a_member_whose_container_has_ended_leaves_within_two_seconds() -> None:
    async with house("b") as at:
        await asyncio.sleep(10.5)
        at.talks.remove("c")  # its last word was at 110.0
        at.pods["pod-c"] = status(terminated(began=50, ended=110))
        await asyncio.sleep(10.0)
        assert [member for member, _ in at.left] == ["c"]
        assert at.left[0][1] <= 12.0
        assert len(at.asked) == 1


async def test_one_that_runs_is_asked_for_until_it_has_ended() -> None:
    """A kubelet tells a second after."""
    async with house("b") as at:
        await asyncio.sleep(10.5)
        at.talks.remove("c")
        at.pods["pod-c"] = status(running(50))
        await asyncio.sleep(5.0)
        assert at.left == []
        assert 10 <= len(at.asked) <= 16
        at.pods["pod-c"] = status({"waiting": {}}, terminated(began=50, ended=110))
        await asyncio.sleep(0.5)
        assert [member for member, _ in at.left] == ["c"]


async def test_the_leader_looks_and_the_first_of_the_others_where_it_is_silent() -> None:
    async with house("a") as at:
        at.pods = {name: status(terminated(began=50, ended=200)) for name in ("pod-a", "pod-c")}
        await asyncio.sleep(10.5)
        at.talks.remove("c")
        await asyncio.sleep(5.0)
        assert at.asked == [], "that is for a, which leads"
        at.talks.add("c")
        await asyncio.sleep(2.0)
        at.talks.remove("a")
        await asyncio.sleep(5.0)
        assert [member for member, _ in at.left] == ["a"], "b is the first of b and c"


async def test_one_that_was_frozen_ends_nobody() -> None:
    """It has read nothing, so that all are silent to it."""
    async with house("b") as at:
        at.pods = {name: status(terminated(began=50, ended=200)) for name in ("pod-a", "pod-c")}
        at.fence.open = False
        await asyncio.sleep(5.5)
        at.talks.clear()
        await asyncio.sleep(30.0)
        assert at.asked == []
        assert at.left == []


async def test_a_rebalance_that_waits_for_the_one_that_is_gone_is_ended() -> None:
    """Its container was started again, and joined before the others had looked."""
    async with house("b") as at:
        await asyncio.sleep(5.5)
        at.talks.remove("c")
        at.group.stable = False
        at.pods["pod-c"] = status(terminated(began=50, ended=105))
        await asyncio.sleep(3.0)
        assert [member for member, _ in at.left] == ["c"]


async def test_nothing_is_done_without_an_assignment_of_ours() -> None:
    async with house("b") as at:
        await asyncio.sleep(5.5)
        at.talks.remove("c")
        kept, at.group.assignment = at.group.assignment, None
        await asyncio.sleep(5.0)
        assert at.asked == []
        at.group.assignment = kept
        await asyncio.sleep(1.0)
        assert at.asked


async def test_a_missing_right_is_told_once_with_what_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "loadtrim")
    async with house("b") as at:
        await asyncio.sleep(5.5)
        at.talks.remove("c")
        at.pods["pod-c"] = ApiError(403, "pods 'pod-c' is forbidden")
        await asyncio.sleep(10.0)
        assert len(caplog.records) == 1
        assert "403 pods 'pod-c' is forbidden" in caplog.text
        assert "get on pods" in caplog.text
        assert at.left == []


async def test_a_pod_that_cannot_be_looked_at_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "loadtrim")
    async with house("b") as at:
        await asyncio.sleep(5.5)
        at.talks -= {"a", "c"}  # The pod of a is gone; looks go in the order of the members.
        at.pods["pod-c"] = status(terminated(began=50, ended=105))
        await asyncio.sleep(3.0)
        assert [member for member, _ in at.left] == ["c"]
        assert [record.getMessage().count("Role") for record in caplog.records] == [0, 0], caplog.text


async def test_who_was_not_seen_to_leave_is_made_to_leave_again() -> None:
    async with house("b") as at:
        await asyncio.sleep(5.5)
        at.answers = False
        at.talks.remove("c")
        at.pods["pod-c"] = status(terminated(began=50, ended=105))
        await asyncio.sleep(2.0)
        at.answers = True
        await asyncio.sleep(1.0)
        assert len(at.left) > 1
        assert "c" not in at.group.assignment.members
        asked = len(at.asked)
        await asyncio.sleep(5.0)
        assert len(at.asked) == asked


async def test_who_does_not_name_its_pod_is_never_looked_at() -> None:
    assert pod_of("pod-a", "") == ""
    assert pod_of("pod-a", UID) == f"pod-a/{UID}"
    async with house("b") as at:
        at.talks.remove("c")
        at.watch.note_load(LoadRecord(group="g", member="c", at=100.0, generation=1))
        await asyncio.sleep(30.0)
        assert at.asked == []
