"""Membership at its edges, on a real broker: what cannot start says why, what can goes on; the brake; shadow mode."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import GroupAuthorizationFailedError, InconsistentGroupProtocolError, KafkaConnectionError
from aiokafka.protocol.admin import CreateAclsRequest

from integration.harness import WAIT_SECONDS, eventually, group_of_processes
from integration.harness_consumers import consumers, drain, generation, make, new_group, send, started, take
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster, LocalKafka
from loadtrim.testing.ports import free_ports
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.kafka.connections import Channel, Coordinator
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.telemetry_records import ReportRecord
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = pytest.mark.kafka

PROJECT = Path(__file__).resolve().parents[2]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


# -- what cannot start -------------------------------------------------------------------------------------------


async def test_wrong_bootstrap_address() -> None:
    """As AIOKafkaConsumer: KafkaConnectionError, naming the address; nothing is left behind."""
    (port,) = free_ports(1)
    consumer = Consumer(
        "topic",
        bootstrap_servers=f"127.0.0.1:{port}",
        group_id="g",
        client_id="nowhere",
        settings=Settings(http="off"),
        handle_signals=False,
    )
    for _ in range(2):  # another start is no other case
        with pytest.raises(KafkaConnectionError, match=str(port)):
            await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
        assert not any(thread.name == "loadtrim-nowhere" for thread in threading.enumerate())
    await consumer.stop()


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("LOADTRIM_SLA_SECONDS", "soon", "a number of seconds above 0"),
        ("LOADTRIM_MIN_REPLICAS", "0", "1 or more"),
        ("LOADTRIM_POLICY", "wishful", "objective"),
        ("LOADTRIM_PACKER", "tetris", "trim"),
        ("LOADTRIM_MODE", "ghost", "shadow"),
        ("LOADTRIM_HTTP", "here", "host:port"),
        ("LOADTRIM_SCALER", "webhook", "LOADTRIM_SCALER_URL"),
        ("LOADTRIM_TIME_ZONE", "Moon/Base", "IANA"),
    ],
)
def test_unreadable_settings(variable: str, value: str, allowed: str) -> None:
    """One line: the variable, the value, what is allowed. No traceback of ours in it, nothing started."""
    code = (
        "import asyncio, loadtrim\n"
        "async def main():\n"
        "    try:\n"
        "        loadtrim.Consumer('t', group_id='g', bootstrap_servers='localhost:1')\n"
        "    except loadtrim.SettingsError as error:\n"
        "        print(error)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**_clean(), variable: value}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert variable in line
    assert value in line
    assert allowed in line


def _clean() -> dict[str, str]:
    paths = os.pathsep.join(
        [os.environ.get("PYTHONPATH", ""), *(str(PROJECT / path) for path in ("agent", "consumer_sdk"))]
    )
    return {k: v for k, v in os.environ.items() if not k.startswith("LOADTRIM_")} | {"PYTHONPATH": paths}


async def test_no_shared_protocol_names_both_lists(quick_kafka: Cluster) -> None:
    """A group of sticky consumers: the start fails at once and says what either side offers."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    plain = AIOKafkaConsumer(
        topic,
        bootstrap_servers=quick_kafka.bootstrap,
        group_id=group,
        partition_assignment_strategy=[StickyPartitionAssignor],
    )
    async with plain:
        await eventually(plain.assignment, "the plain one has its generation")
        consumer = make(quick_kafka, topic, group=group)
        with pytest.raises(InconsistentGroupProtocolError) as caught:
            await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
        said = str(caught.value)
        assert "loadtrim, roundrobin, range" in said
        assert "sticky" in said
        await consumer.stop()


async def test_behind_a_failover_plain_consumers_and_members_without_a_control_topic_get_in(tmp_path: Path) -> None:
    """Such a coordinator knows the protocol in use alone, and refused who offers the others until a rebalance.

    A program could not be taken back to a plain consumer: each one failed, as long as the group was at rest.
    """
    with LocalKafka(properties={"group.min.session.timeout.ms": "500"}, data_dir=tmp_path, short_run=True) as kafka:
        topic, group, narrow = kafka.create_topic(partitions=4), new_group(), kafka.create_topic(partitions=1)
        async with started(kafka, topic, group=group, session_timeout_ms=6_000) as one:
            before = generation(one)
            (broker,) = kafka.brokers
            await asyncio.to_thread(broker.stop)
            await asyncio.to_thread(broker.start)
            await eventually(lambda: generation(one) > before, "it has joined again by itself")
            assert len(one.assignment()) == 4, "and kept all meanwhile"
            other = make(kafka, topic, group=group, settings=Settings(http="off", control_topic=narrow))
            await asyncio.wait_for(other.start(), WAIT_SECONDS)
            plain = AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, group_id=group)
            async with plain:
                await eventually(lambda: all(each.assignment() for each in (one, other, plain)), "all have their part")
            await other.stop()


# -- authorization -----------------------------------------------------------------------------------------------

READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 3
LITERAL = 3
ALLOW = 3


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[LocalKafka]:
    """A broker with a SASL listener, where user ``app`` may do nothing until it is allowed to."""
    properties = {
        "listener.name.app.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.app.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_app="secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.min.session.timeout.ms": "500",
    }
    with LocalKafka(properties=properties, listeners={"APP": "SASL_PLAINTEXT"}, short_run=True) as kafka:
        yield kafka


def sasl(kafka: LocalKafka) -> dict[str, Any]:
    """How ``app`` connects."""
    return {
        "bootstrap_servers": kafka.bootstrap_at("APP"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "app",
        "sasl_plain_password": "secret",
    }


async def allow(kafka: LocalKafka, *rights: tuple[int, str, int]) -> None:
    """Allow ``app`` these (resource, name, operation), and return when the broker knows."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        for kind, name, operation in rights:
            request = CreateAclsRequest(kind, name, LITERAL, "User:app", "*", operation, ALLOW)
            answer = await admin._client.send(admin._client.get_random_node(), request)
            assert [entry[0] for entry in answer.creation_responses] == [0]
    finally:
        await admin.close()


def guarded(kafka: LocalKafka, *topics: str, group: str, **options: Any) -> Consumer:
    return make(kafka, *topics, group=group, **{**sasl(kafka), **options})


async def test_control_topic_not_creatable(
    guarded_kafka: LocalKafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said, with the topic, the command and the ACLs; the group goes on as a mixed one. With the ACLs it is ours again,
    by itself."""
    monkeypatch.setattr("loadtrim_agent.runtime.control_access.RETRY_SECONDS_MAX", 0.5)
    topic, group = guarded_kafka.create_topic(partitions=2), new_group()
    own = control_topic(group)
    await allow(
        guarded_kafka,
        (TOPIC_RESOURCE, topic, READ),
        (TOPIC_RESOURCE, topic, DESCRIBE),
        (GROUP_RESOURCE, group, READ),
        (GROUP_RESOURCE, group, DESCRIBE),
    )
    await send(guarded_kafka, topic, numbers(10), partition=None)
    caplog.set_level(logging.ERROR, logger="loadtrim")
    first, second = (guarded(guarded_kafka, topic, group=group) for _ in range(2))
    async with first:
        (said,) = [r.getMessage() for r in caplog.records if r.name == "loadtrim" and own in r.getMessage()]
        assert "TopicAuthorizationFailedError" in said
        assert all(word in said for word in ("CREATE", "READ", "WRITE", "DESCRIBE", "--partitions 2"))
        async with second, drain(first, second) as counts:
            await eventually(lambda: len(counts) == 10, "everything arrives")
            await eventually(lambda: [len(c.assignment()) for c in (first, second)] == [1, 1], "both have a part")
            assert not speaks_loadtrim(first)
            # The operator does as told.
            rights = [(TOPIC_RESOURCE, own, operation) for operation in (CREATE, READ, WRITE, DESCRIBE)]
            await allow(guarded_kafka, *rights)
            await eventually(lambda: all(map(speaks_loadtrim, (first, second))), "both come back")
            await eventually(lambda: [len(c.assignment()) for c in (first, second)] == [1, 1], "both have a part")
            await send(guarded_kafka, topic, numbers(10), partition=None)
            await eventually(lambda: counts.total() == 20, "everything arrives")
            assert set(counts.values()) == {2}, "once each time"


def speaks_loadtrim(consumer: Consumer) -> bool:
    """In a generation that does, with a log."""
    agent = consumer._client.link.agent
    return agent is not None and agent.log is not None and agent.snapshot().speaks_loadtrim


async def test_group_not_allowed_is_raised(guarded_kafka: LocalKafka) -> None:
    """As AIOKafkaConsumer does: GroupAuthorizationFailedError from start(), instead of trying for ever."""
    topic, group = guarded_kafka.create_topic(partitions=1), new_group()
    await allow(guarded_kafka, (TOPIC_RESOURCE, topic, READ), (TOPIC_RESOURCE, topic, DESCRIBE))
    consumer = guarded(guarded_kafka, topic, group=group)
    with pytest.raises(GroupAuthorizationFailedError, match=group):
        await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    await consumer.stop()


# -- the brake, and shadow mode ----------------------------------------------------------------------------------


async def command(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtrim", *arguments, env=_clean(), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT_SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_brake_is_heeded_by_every_member_and_outlives_the_leader(quick_kafka: Cluster, tmp_path: Path) -> None:
    """loadtrim hold, scale and resume: seen by all, in every decision, by newcomers and after the leader has gone."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        fast = {"LOADTRIM_DECISION_SECONDS": "0.3"}
        await group.start_all("a", "b", env=fast)
        at = ("--bootstrap", quick_kafka.bootstrap)
        await command("hold", group.group, *at)
        await until_braked(group, "hold")
        leader, _ = await group.leader()
        assert await group.end(leader) == 0
        # Held, nothing moves by plan: a newcomer owns nothing, and the others go on.
        await group.start("c", env=fast)
        await group.until_stable(*group.members, members=2)
        await until_braked(group, "hold")
        await group.until_consuming()
        assert (await group.members["c"].status())["partitions"] == []
        await command("scale", group.group, "3", *at)
        await until_braked(group, "scale")

        async def wants_three() -> bool:
            _, status = await group.leader()
            return status["replicas_wanted"] == 3

        await eventually(wants_three, "the leader wants what it was told")
        await command("resume", group.group, *at)
        await until_braked(group, "resume")
        await group.until_working("c")
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_brake_outlives_a_time_without_any_member(quick_kafka: Cluster, tmp_path: Path) -> None:
    """One replica that is deployed anew, or crashes, is the whole group: what was held scaled up with its successor."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        fast = {"LOADTRIM_DECISION_SECONDS": "0.3"}
        at = ("--bootstrap", quick_kafka.bootstrap)
        await group.start_all("a", env=fast)
        await command("hold", group.group, *at)
        await until_braked(group, "hold")
        assert await group.end("a") == 0
        await group.start_all("b", env=fast)
        await until_braked(group, "hold")
        await group.end("b", signal.SIGKILL)
        await command("scale", group.group, "2", *at)
        await group.start_all("c", env=fast)
        await until_braked(group, "scale")
        assert await group.end("c") == 0
        await command("resume", group.group, *at)
        await group.start_all("d", env=fast)
        await until_braked(group, "resume")


async def until_braked(group: Any, action: str) -> None:
    async def heeded() -> bool:
        statuses = [await member.status() for member in group.members.values()]
        return all((status.get("brake") or {}).get("action") == action for status in statuses)

    await eventually(heeded, f"all members heed {action}")

    async def decided() -> bool:
        _, status = await group.leader()
        manual_override = (status["last_decision"] or {}).get("brake")
        return (manual_override or {}).get("action", "resume") == action

    await eventually(decided, f"the leader decides by {action}")


async def test_shadow_mode_plans_and_asks_for_nothing(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Decisions are made and shown; the webhook hears nothing."""
    from contract.webhook_receiver import Receiver

    with Receiver() as receiver:
        env = {
            "LOADTRIM_MODE": "shadow",
            "LOADTRIM_SCALER": "webhook",
            "LOADTRIM_SCALER_URL": receiver.url,
            "LOADTRIM_MIN_REPLICAS": "2",
            "LOADTRIM_DECISION_SECONDS": "0.2",
        }
        async with group_of_processes(quick_kafka, tmp_path) as group:
            (member,) = await group.start_all("a", env=env)

            async def decided() -> Any:
                status = await member.status()
                decision = status.get("last_decision") or {}
                return decision.get("sequence", 0) >= 5 and status["replicas_wanted"] == 2 and decision

            decision = await eventually(decided, "some decisions want a second replica")
            assert decision["mode"] == "shadow"
            assert receiver.requests == []
            assert "shadow mode, so nothing is scaled" in member.log
            counts = re.findall(r"^loadtrim_plans_total\{.*\} (\d+)", await member.get("/metrics"), re.MULTILINE)
            assert sum(map(int, counts)) >= 5
            verdict = await group.finish()
    assert verdict.spotless, str(verdict)


# -- a second life -----------------------------------------------------------------------------------------------


async def test_members_of_several_groups_do_not_disturb_each_other(quick_kafka: Cluster) -> None:
    """Groups on one control topic given by mistake, or on one data topic: each goes its own way."""
    topic = quick_kafka.create_topic(partitions=2)
    shared = quick_kafka.create_topic(partitions=2)
    settings = Settings(http="off", control_topic=shared)
    await send(quick_kafka, topic, numbers(20), partition=None)
    one, two = new_group(), new_group()
    async with (
        started(quick_kafka, topic, group=one, settings=settings) as first,
        started(quick_kafka, topic, group=two, settings=settings) as second,
    ):
        for consumer in (first, second):
            got = [message.value.decode() for message in await take(consumer, 20)]
            assert sorted(got, key=int) == numbers(20)
            assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


async def test_user_code_that_asks_for_nothing_is_out_and_comes_back(quick_kafka: Cluster) -> None:
    """max_poll_interval_ms: the member leaves with its record in hand; the next call joins again."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    async with started(quick_kafka, topic, group=group, max_poll_interval_ms=700) as consumer:
        assert [m.value for m in await take(consumer, 1)] == [b"0"]
        agent = consumer._client.link.agent
        assert agent is not None
        member = agent.snapshot().member
        await eventually(agent.condition.left.is_set, "it has left")
        async with started(quick_kafka, topic, group=group) as other:
            assert [m.value for m in await take(other, 2)] == [b"0", b"1"]
        assert [m.value for m in await take(consumer, 2)] == [b"1", b"2"]
        assert agent.snapshot().member != member


# -- telemetry ---------------------------------------------------------------------------------------------------


async def test_a_member_that_leaves_reports_what_it_did_last(quick_kafka: Cluster) -> None:
    """Its work since the report before would be missing from the leader's rates."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, numbers(20), partition=None)
    settings = Settings(http="off", report_seconds=30.0)
    async with started(quick_kafka, topic, group=group, settings=settings) as consumer:
        await take(consumer, 20)
        await consumer.getmany()  # the last one is done
    reports = [record for record in await telemetry(quick_kafka, group) if isinstance(record, ReportRecord)]
    assert sum(entry.done for report in reports for entry in report.partitions) == 20
    assert {report.instance for report in reports} == {instance_name(settings)}
    assert all(report.member for report in reports)


async def telemetry(kafka: Cluster, group: str) -> list[Record]:
    """Every record of a group's telemetry up to now."""
    at = TopicPartition(control_topic(group), TELEMETRY)
    records: list[Record] = []
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([at])
        end = (await reader.end_offsets([at]))[at]
        while await reader.position(at) < end:
            for messages in (await reader.getmany(timeout_ms=200)).values():
                records += [decode(message.value) for message in messages]
    return records


async def test_a_start_that_is_cancelled_before_it_knows_its_id_holds_nobody_up(
    quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker waits for an id that it has just given: the next member joined after the session's end."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    asked, ask, held = asyncio.Event(), Coordinator.ask, list[bool]()
    user_loop, agents = asyncio.get_running_loop(), list[Any]()

    async def slowly(self: Coordinator, channel: Channel, *args: Any, **options: Any) -> Any:
        answer = await ask(self, channel, *args, **options)
        if channel is Channel.JOIN and not held:
            held.append(True)
            user_loop.call_soon_threadsafe(asked.set)
            async with asyncio.timeout(WAIT_SECONDS):
                while not agents or agents[0].condition.leave_by == float("inf"):  # noqa: ASYNC110 - of the agent
                    await asyncio.sleep(0.01)
        return answer

    # A member that is in the group already joins again when the next one comes, and would wait with it.
    long = {"session_timeout_ms": 20_000}
    async with started(quick_kafka, topic, group=group, **long) as first:
        await consumers(first, parts=[{TopicPartition(topic, 0), TopicPartition(topic, 1)}])
        monkeypatch.setattr(Coordinator, "ask", slowly)
        consumer = make(quick_kafka, topic, group=group, **long)
        starting = asyncio.create_task(consumer.start())
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        agents.append(consumer._client.link.need_agent())  # type: ignore[union-attr]
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, WAIT_SECONDS)
        async with asyncio.timeout(15.0), started(quick_kafka, topic, group=group, **long) as second:
            await eventually(lambda: [len(c.assignment()) for c in (first, second)] == [1, 1], "each has one")
