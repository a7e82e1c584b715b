"""Whose pods are looked at, by whom, and what is sent then; in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import convert, structs

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod import Pod
from loadtrim_agent.runtime.ended_pods import KNOWN_SECONDS, EndedPods, pod_of
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LeftRecord, LoadRecord
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence
from unit.leader.scaling.kubernetes.test_pod import running, status, terminated

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]
UID = "6f1c"


class House:
    """Member ``b`` of the group of a, b and c, which a leads."""

    def __init__(self, leader: str = "a") -> None:
        assignment = SimpleNamespace(members=dict.fromkeys("abc"))
        self.group = SimpleNamespace(
            stable=True,
            assignment=assignment,
            member="b",
            leader=leader,
            generation=7,
            config=SimpleNamespace(group="g"),
        )
        self.requests = self.log = self
        self.left: list[tuple[str, float]] = []
        self.asked: list[tuple[str, float]] = []
        self.pods: dict[str, Any] = {}
        """Pod -> its status; what is an error is raised."""
        self.answers = True
        """The coordinator answers to LeaveGroup."""
        self.fence = OpenFence()
        self.talks: set[str] = set("abc")
        """Members that write load records, each second."""
        self.written: list[Record] = []
        self.log_seconds = 0.0
        """A record takes so long."""
        self.watches = False
        """Pods are to be watched."""
        self.refusal: ApiError | None = None
        """Of a watch."""
        self.watched: list[float] = []
        """Times at which a watch began."""
        self.take: Callable[[str, Pod], None] | None = None
        """Takes the events of the watch that is open; None: there is none."""
        self.watch_ends = asyncio.Event()
        self.ended = EndedPods(self, self, self.fence, clock=self.now)  # type: ignore[arg-type]

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

    async def write(self, record: Record) -> bool:
        await asyncio.sleep(self.log_seconds)
        self.written.append(record)
        return True

    async def watch(self, take: Callable[[str, Pod], None]) -> None:
        self.watched.append(self.now())
        if self.refusal is not None:
            raise self.refusal
        self.take = take
        try:
            await self.watch_ends.wait()
            self.watch_ends.clear()
        finally:
            self.take = None

    def tell(self, name: str, pod: dict[str, Any], kind: str = "MODIFIED") -> None:
        """The watch that is open brings an event."""
        assert self.take is not None
        named = convert(pod, Pod)
        self.take(kind, structs.replace(named, metadata=structs.replace(named.metadata, name=name)))

    async def _talk(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            for member in sorted(self.talks):
                self.ended.note_load(
                    LoadRecord(group="g", member=member, at=100.0 + self.now(), generation=1, pod=f"pod-{member}/{UID}")
                )
            await asyncio.sleep(1.0)


@contextlib.asynccontextmanager
async def house(leader: str = "a", *, watches: bool = False) -> AsyncIterator[House]:
    made = House(leader)
    made.watches = watches
    tasks = [asyncio.create_task(work) for work in (made.ended.run(), made.ended.keep_watch(), made._talk(600))]
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
        at.ended.note_load(LoadRecord(group="g", member="c", at=100.0, generation=1))
        await asyncio.sleep(30.0)
        assert at.asked == []


# -- pods that are watched


async def test_the_end_of_a_watched_pod_is_acted_on_at_once_and_the_log_is_told() -> None:
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.talks.remove("c")  # its last word was at 110.0
        await asyncio.sleep(0.2)
        at.tell("pod-c", status(terminated(began=50, ended=110)))
        await asyncio.sleep(0.01)
        assert [member for member, _ in at.left] == ["c"]
        (left,) = at.written
        assert isinstance(left, LeftRecord)
        assert (left.group, left.member, left.generation) == ("g", "c", 7)
        await asyncio.sleep(5.0)
        assert (at.asked, len(at.left), len(at.watched)) == ([], 1, 1)


async def test_a_log_that_is_away_holds_up_the_end_of_no_other() -> None:
    """It was written for 40 s between two that had ended, and longer than the session timeout."""
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.talks.clear()
        at.log_seconds = 40.0
        at.tell("pod-a", status(terminated(began=50, ended=110)))
        at.tell("pod-c", status(terminated(began=50, ended=110)))
        await asyncio.sleep(0.5)
        assert [member for member, _ in at.left] == ["a", "c"]
        at.group.assignment.members["d"] = None
        at.ended.note_load(LoadRecord(group="g", member="d", at=111.0, generation=1, pod=f"pod-d/{UID}"))
        at.pods["pod-d"] = status(terminated(began=50, ended=111))
        await asyncio.sleep(5.0)
        assert [member for member, _ in at.left] == ["a", "c", "d"]
        assert at.written == []


async def test_a_process_that_talks_on_is_not_ended_by_the_status_of_the_run_before() -> None:
    """Its first word was in the second of the end, or after it: it may be of the next run."""
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.ended._heard.clear()
        await asyncio.sleep(10.0)  # its first word is of 111.0
        for ended in (111, 110):
            at.tell("pod-c", status({"waiting": {}}, terminated(began=50, ended=ended)))
            await asyncio.sleep(0.3)
        at.tell("pod-c", status(running(111), terminated(began=50, ended=111)))
        await asyncio.sleep(20.0)
        assert at.left == []


async def test_a_member_that_came_lately_has_to_be_silent_too() -> None:
    """A status that comes late, of a machine whose clock is wrong, would look like this."""
    async with house("b", watches=True) as at:
        await asyncio.sleep(KNOWN_SECONDS - 1.5)
        at.talks.remove("c")
        at.pods["pod-c"] = pod = status(terminated(began=50, ended=104))
        at.tell("pod-c", pod)
        await asyncio.sleep(0.5)
        assert at.left == []
        await asyncio.sleep(2.0)
        assert [member for member, _ in at.left] == ["c"]


async def test_a_pod_that_ends_no_member_any_more_is_forgotten() -> None:
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.tell("pod-d", status(terminated(began=50, ended=110)))
        at.tell("pod-e", status(terminated(began=50, ended=110)))
        at.tell("pod-d", status(terminated(began=50, ended=110)), "DELETED")
        at.tell("pod-e", status(running(120)))
        assert at.ended._terminated == {}
        assert at.left == []


async def test_the_leader_watches_and_the_first_of_the_others_and_nobody_else() -> None:
    for leader, watches in (("b", True), ("a", True), ("c", False)):
        async with house(leader, watches=True) as at:
            await asyncio.sleep(30.0)
            assert (len(at.watched), at.asked) == (int(watches), []), leader


async def test_who_is_not_to_watch_any_more_ends_its_watch() -> None:
    async with house("b", watches=True) as at:
        await asyncio.sleep(1.0)
        assert at.take is not None
        at.group.leader = "c"
        await asyncio.sleep(1.0)
        assert at.take is None
        at.group.leader = "a"
        await asyncio.sleep(1.0)
        assert at.take is not None


async def test_the_second_watcher_acts_for_a_leader_that_has_ended_and_for_nobody_else() -> None:
    async with house("a", watches=True) as at:
        await asyncio.sleep(10.5)
        at.talks.remove("c")
        at.tell("pod-c", status(terminated(began=50, ended=110)))
        await asyncio.sleep(0.5)
        assert at.left == [], "that is for a, which leads"
        at.talks.remove("a")
        at.tell("pod-a", status(terminated(began=50, ended=110)))
        await asyncio.sleep(0.01)
        assert [member for member, _ in at.left] == ["a", "c"], "b is the first of those that are left"


async def test_a_watch_that_the_api_server_ends_begins_again_with_what_is_there() -> None:
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.talks.remove("c")
        at.tell("pod-d", status(terminated(began=50, ended=110)))
        at.watch_ends.set()
        await asyncio.sleep(0.6)
        assert len(at.watched) == 2
        assert at.ended._terminated == {}
        at.tell("pod-c", status(terminated(began=50, ended=110)), "ADDED")
        await asyncio.sleep(0.01)
        assert [member for member, _ in at.left] == ["c"]


async def test_a_watch_that_is_refused_is_told_once_and_silence_tells_still(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "loadtrim")
    async with house("b", watches=True) as at:
        at.refusal = ApiError(403, "pods is forbidden")
        await asyncio.sleep(60.5)
        assert 5 <= len(at.watched) <= 8, "1, 2, 4 .. s apart"
        assert len(caplog.records) == 1
        assert "watch on pods" in caplog.text
        at.talks.remove("c")
        at.pods["pod-c"] = status(terminated(began=50, ended=160))
        await asyncio.sleep(3.0)
        assert [member for member, _ in at.left] == ["c"]


async def test_one_that_was_frozen_ends_nobody_whose_end_it_has_watched() -> None:
    async with house("b", watches=True) as at:
        await asyncio.sleep(10.5)
        at.fence.open = False
        at.talks.remove("c")
        at.tell("pod-c", status(terminated(began=50, ended=110)))
        await asyncio.sleep(1.0)
        assert at.left == []
