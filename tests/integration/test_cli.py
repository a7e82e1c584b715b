"""The command line against a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

from integration.harness import eventually
from loadtrim.cli import main
from loadtrim.cli.status import Screen, watch
from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import following
from loadtrim.observer.group import ObservedGroup
from loadtrim.orchestrator.orchestrator import LocalOrchestrator, OrchestratorOptions
from loadtrim.testing import Cluster
from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import COORDINATION
from loadtrim_agent.wire.ownership_records import (
    AssignmentRecord,
    HelloRecord,
    LoadRecord,
    ManualOverrideRecord,
    MemberEntry,
    ReleaseRecord,
)
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, RejectedPlan, ReportRecord
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = pytest.mark.kafka

WAIT_SECONDS = 30.0
Run = Callable[..., "Any"]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOADTRIM_CONTROL_TOPIC", "LOADTRIM_DRAIN_SECONDS"):
        monkeypatch.delenv(name, raising=False)


class Group:
    """A group whose control topic the test writes itself."""

    def __init__(self, bootstrap: str, producer: AIOKafkaProducer) -> None:
        # With characters that topic names do not have, or have twice.
        self.name = f"pay.ments_{uuid.uuid4().hex[:8]}"
        self.topic = control_topic(self.name)
        self.bootstrap = bootstrap
        self.connection = Connection(bootstrap, "the test")
        self._producer = producer

    async def create(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            configs = {"message.timestamp.type": "LogAppendTime"}
            await admin.create_topics([NewTopic(self.topic, 2, 1, topic_configs=configs)])
        finally:
            await admin.close()

    async def write(self, *records: Record | bytes) -> None:
        sent = [
            await self._producer.send(
                self.topic,
                record if isinstance(record, bytes) else encode(record),
                partition=COORDINATION if isinstance(record, bytes) else type(record).lands_on,
            )
            for record in records
        ]
        await asyncio.gather(*sent)

    async def coordination(self) -> list[Record]:
        """Everything in the coordination log."""
        at = TopicPartition(self.topic, COORDINATION)
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([at])
            end = (await reader.end_offsets([at]))[at]
            found: list[Record] = []
            while len(found) < end:
                found += [decode(message.value) for message in (await reader.getmany(timeout_ms=200)).get(at, [])]
        return found

    def base(self, generation: int = 1, manual_override: ManualOverrideRecord | None = None) -> AssignmentRecord:
        """Member a leads and owns 0 to 2, b owns 3."""
        members = {
            "a": MemberEntry(attempt=1, topics=("payments",), owns=(("payments", (0, 1, 2)),)),
            "b": MemberEntry(attempt=1, topics=("payments",), owns=(("payments", (3,)),)),
        }
        return AssignmentRecord(
            group=self.name,
            member="a",
            at=time.time(),
            generation=generation,
            members=members,
            manual_override=manual_override,
        )

    def release(self, partition: int, source: str, target: str, version: int = 0) -> ReleaseRecord:
        return ReleaseRecord(
            group=self.name, member=source, at=time.time(), generation=1, topic="payments", partition=partition,
            version=version, source=source, target=target, offset=7,
        )  # fmt: skip

    def load(self, member: str = "a") -> LoadRecord:
        return LoadRecord(group=self.name, member=member, at=time.time(), generation=1)

    def report(self, member: str, instance: str, *partitions: PartitionReport) -> ReportRecord:
        return ReportRecord(
            group=self.name, member=member, at=time.time(), sequence=1, generation=1, instance=instance,
            busy_seconds=0.5, in_time=99, late={"forecast": 1}, partitions=partitions,
        )  # fmt: skip

    def decision(self, sequence: int, wanted: int = 2, reason: str = "the work fits") -> DecisionRecord:
        return DecisionRecord(
            group=self.name, member="a", at=time.time(), generation=1, sequence=sequence,
            outcome="none" if wanted == 2 else "up", reason=reason, policy="objective", packer="trim",
            replicas_actual=2, replicas_wanted=wanted, members={"a": 0.5, "b": 0.4}, rate=100.0, work=0.9,
            rejected=(RejectedPlan(replicas=1, reason="0.9 of 1 is too much"),),
        )  # fmt: skip


@pytest.fixture
async def group(kafka: Cluster) -> AsyncIterator[Group]:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=5) as producer:
        group = Group(kafka.bootstrap, producer)
        await group.create()
        yield group


@pytest.fixture
def run(kafka: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command as ``main`` does; returns (exit code, standard output, standard error)."""

    async def run_command(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, [*words, "--bootstrap", kafka.bootstrap])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run_command


async def status(run: Run, group: Group) -> dict[str, Any]:
    code, out, err = await run("status", group.name, "--json")
    assert code == 0, err
    state: dict[str, Any] = json.loads(out)
    return state


def owners(state: dict[str, Any]) -> dict[int, str]:
    return {each["partition"]: each["member"] for each in state["partitions"]}


async def test_status_tells_the_true_owners(group: Group, run: Run) -> None:
    lag = PartitionReport(topic="payments", partition=0, arrived=40, done=30, lag=12, lag_seconds=0.25)
    await group.write(
        group.base(),
        b"no record at all",
        b'{"kind":"from the future","group":"x","member":"y","at":0}',
        group.release(0, "a", "b"),
        group.release(0, "a", "b"),
        group.release(0, "b", "a", version=1),
        group.release(1, "a", "b"),
        group.report("a", "pay-1", lag),
        group.report("b", "pay-2"),
        group.decision(1),
    )
    code, out, _ = await run("status", group.name, "--partitions")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"{group.name}: generation 1, leader pay-1"
    assert "  behind    12 records, the oldest 250 ms old" in lines
    assert "  in time   99 % of the last 60 s" in lines
    assert "pay-1 *  running  50 %      12  250 ms  2: payments 0 2" in lines
    assert "pay-2    running  50 %       0       -  2: payments 1 3" in lines
    assert [line.split()[:2] for line in lines[-4:]] == [
        ["payments-0", "pay-1"],
        ["payments-1", "pay-2"],
        ["payments-2", "pay-1"],
        ["payments-3", "pay-2"],
    ]
    state = await status(run, group)
    assert (owners(state), state["replicas"], state["owners_from"]) == ({0: "a", 1: "b", 2: "a", 3: "b"}, 2, "log")


async def test_the_map_is_found_far_back_in_the_log(group: Group, run: Run) -> None:
    await group.write(group.base(), group.release(3, "b", "a"))
    await group.write(*[group.load() for _ in range(30_000)])
    await group.write(group.release(2, "a", "b"))
    state = await status(run, group)
    assert owners(state) == {0: "a", 1: "a", 2: "b", 3: "a"}


async def test_without_a_map_within_reach_the_reports_are_shown(
    group: Group, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtrim.observer.control_topic.CHUNK_RECORDS", 10)
    monkeypatch.setattr("loadtrim.observer.control_topic.SCAN_SECONDS", 0.0)
    await group.write(group.base(), *[group.load() for _ in range(100)])
    await group.write(group.report("b", "pay-2", PartitionReport(topic="payments", partition=3)))
    code, out, _ = await run("status", group.name)
    assert code == 0
    assert "owners are those that reported last" in out
    assert "1: payments 3" in out


async def test_the_brake_goes_on_and_off(group: Group, run: Run) -> None:
    await group.write(group.base(), group.load())
    code, out, _ = await run("hold", group.name)
    assert code == 0
    assert f"{group.name} is held" in out
    assert f"Undo it with: loadtrim resume {group.name} --bootstrap {group.bootstrap}" in out
    assert (await status(run, group))["brake"]["action"] == "hold"
    code, out, _ = await run("scale", group.name, "3")
    assert code == 0
    assert f"{group.name} is to have 3 replicas" in out
    _, out, _ = await run("status", group.name)
    assert f"brake on: 3 replicas until `loadtrim resume {group.name}`" in out
    code, out, _ = await run("resume", group.name, "--json")
    assert code == 0
    assert json.loads(out)["action"] == "resume"
    assert (await status(run, group))["brake"] is None
    written = [record for record in await group.coordination() if isinstance(record, ManualOverrideRecord)]
    assert [(each.action, each.replicas, each.member) for each in written] == [
        ("hold", None, "cli"),
        ("scale", 3, "cli"),
        ("resume", None, "cli"),
    ]


async def test_a_number_above_the_bounds_is_refused_or_warned_about(group: Group, run: Run) -> None:
    """A typing mistake of a 9 too many cost 97 pods."""
    bounded = msgspec.structs.replace(group.decision(1), replicas_max=2, partition_count=4)
    await group.write(group.base(), group.load(), bounded)
    code, out, problem = await run("scale", group.name, "99")
    assert (code, out) == (2, "")
    assert "LOADTRIM_MAX_REPLICAS=2" in problem
    assert "--force" in problem
    assert not [each for each in await group.coordination() if isinstance(each, ManualOverrideRecord)]
    code, out, problem = await run("scale", group.name, "5", "--force")
    assert code == 0
    assert "5 replicas are more than the group's 4 partitions" in problem
    (written,) = [each for each in await group.coordination() if isinstance(each, ManualOverrideRecord)]
    assert (written.replicas, written.forced) == (5, True)
    _, out, _ = await run("status", group.name)
    assert "brake on: 5 replicas, also outside the bounds, until" in out


async def test_a_brake_for_nobody_is_said_to_be_for_later(group: Group, run: Run) -> None:
    code, out, _ = await run("hold", group.name)
    assert code == 0
    assert "Nobody is in the group now: it counts as soon as a member starts." in out


async def test_explain_tells_the_last_decisions(group: Group, run: Run) -> None:
    _, out, _ = await run("explain", group.name)
    assert "no decisions yet" in out
    quiet = [group.decision(sequence) for sequence in range(1, 201)]
    await group.write(group.report("a", "pay-1"), *quiet[:150])
    await group.write(group.decision(151, wanted=3, reason="a third replica is needed"), *quiet[151:])
    code, out, _ = await run("explain", group.name, "--last", "2")
    assert code == 0
    first, second = out.split("\n\n")
    assert "decision 1.151 by pay-1 (objective/trim): scales up, 2 -> 3 replicas: a third replica is needed" in first
    assert "not taken: 1 replica: 0.9 of 1 is too much" in first
    assert "decision 1.200 by pay-1" in second
    assert "the same 49 times since" in second
    _, out, _ = await run("explain", group.name, "--last", "3", "--all", "--json")
    assert [json.loads(line)["sequence"] for line in out.splitlines()] == [198, 199, 200]


async def test_the_groups_of_a_cluster_are_listed(group: Group, run: Run) -> None:
    await group.write(group.base())
    code, out, _ = await run("groups")
    assert code == 0
    assert group.name in out.splitlines()
    code, out, _ = await run("groups", "--json")
    assert code == 0
    assert group.name in json.loads(out)


async def test_a_wrong_group_is_told_with_the_right_ones(group: Group, run: Run) -> None:
    code, out, err = await run("status", group.name[:-1])
    assert (code, out) == (1, "")
    assert f"The group '{group.name[:-1]}' has no control topic ({group.topic[:-1]})" in err
    assert f"Did you mean '{group.name}'?" in err


async def test_a_group_of_plain_consumers_is_told_apart(kafka: Cluster, run: Run) -> None:
    topic = kafka.create_topic(partitions=1)
    plain = f"plain-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, group_id=plain) as consumer:
        await consumer.getmany(timeout_ms=0)
        code, _, err = await run("hold", plain)
    assert code == 1
    assert "The group exists, but no loadtrim member ever used it" in err


MEMBER = """
import asyncio, json, os, signal, sys, time, urllib.request
from aiokafka import AIOKafkaProducer
from loadtrim_agent.wire.telemetry_records import ReportRecord
from loadtrim_agent.wire.codec import encode

async def main(bootstrap, group, topic):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    me = os.environ["LOADTRIM_INSTANCE"]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        report = ReportRecord(group=group, member="m-" + me, at=time.time(), sequence=1, generation=1, instance=me)
        await producer.send_and_wait(topic, encode(report), partition=1)
    if me == "pay-1":
        plan = {"generation": 1, "sequence": 1}
        body = {"group": group, "replicas": 2, "victims": [], "plan": plan, "reason": "test"}
        token = {"Authorization": "Bearer " + os.environ["LOADTRIM_SCALER_TOKEN"]}
        url = os.environ["LOADTRIM_SCALER_URL"]
        request = urllib.request.Request(url, json.dumps(body).encode(), token, method="PUT")
        await asyncio.to_thread(urllib.request.urlopen, request)
    await stop.wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def until(changed: asyncio.Event, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            changed.clear()
            await changed.wait()


async def test_up_scales_as_a_member_asks_and_the_view_follows(group: Group, tmp_path: Path) -> None:
    changed = asyncio.Event()
    command = [sys.executable, "-c", MEMBER, group.bootstrap, group.name, group.topic]
    options = OrchestratorOptions(name="pay", log_directory=tmp_path)
    async with (
        LocalOrchestrator(command, options) as up,
        following(group.connection, group.name, changed.set) as follower,
    ):

        def members() -> list[str]:
            state: ObservedGroup = follower.state()
            return [each.instance for each in state.members]

        await up.wait_until(lambda up: up.replicas == 2, WAIT_SECONDS)
        assert up.groups == (group.name,)
        await until(changed, lambda: set(follower.view.names.values()) == {"pay-1", "pay-2"})
        await group.write(HelloRecord(group=group.name, member="m-pay-1", at=time.time(), instance="pay-1"))
        await until(changed, lambda: "pay-1" in members())
        assert follower.trouble == ""
    assert up.killed == 0


async def test_following_begins_once_the_group_does(kafka: Cluster) -> None:
    changed = asyncio.Event()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        group = Group(kafka.bootstrap, producer)
        async with following(group.connection, group.name, changed.set) as follower:
            await until(changed, lambda: "has no control topic" in follower.trouble)
            await group.create()
            await group.write(group.base())
            await until(changed, lambda: follower.trouble == "" and follower.view.state(0.0).generation == 1)
            await group.write(group.base(generation=2))
            await until(changed, lambda: follower.view.state(0.0).generation == 2)


class Shown(Screen):
    """A screen that a test looks at."""

    def __init__(self) -> None:
        super().__init__(as_json=False, partitions=False)
        self.states: list[ObservedGroup] = []

    def show(self, state: ObservedGroup, trouble: str = "") -> None:
        self.states.append(state)

    @property
    def owner(self) -> str | None:
        """Owner of the first partition, as shown last."""
        return self.states[-1].partitions[0].member if self.states else None


async def test_status_is_shown_again_as_the_group_changes(group: Group, run: Run) -> None:
    await group.write(group.base(), group.report("a", "pay-1"))
    code, _, err = await run("status", f"{group.name}-not", "--watch")
    assert (code, "has no control topic" in err) == (1, True)

    screen = Shown()
    watching = asyncio.create_task(watch(group.connection, group.name, 0.1, screen))
    try:
        await eventually(lambda: screen.owner == "a", "it is shown")
        await group.write(group.release(0, "a", "b"))
        await eventually(lambda: screen.owner == "b", "the new owner is shown")
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
