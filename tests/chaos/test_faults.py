"""What goes wrong around a group and must not stop it: user code, the webhook, garbage on the control topic."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from contract.webhook_receiver import Receiver, answer, hang, hang_up
from integration.harness import Group, Member, eventually, group_of_processes
from loadtrim.testing import Cluster
from loadtrim.testing.ports import free_ports
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


async def counted(member: Member, metric: str, **labels: str) -> float:
    """Sum of a metric's samples that carry these labels."""
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    total = 0.0
    for line in (await member.get("/metrics")).splitlines():
        if re.match(rf"{metric}[{{ ]", line) and all(label in line for label in wanted):
            total += float(line.rsplit(" ", 1)[1])
    return total


# -- user code ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "code"), [("raise", 3), ("break", 0)])
async def test_user_code_gives_up_with_a_record_in_hand(
    quick_kafka: Cluster, tmp_path: Path, kind: str, code: int
) -> None:
    """An exception or a break: the record in hand is not done, the consumer leaves in order, another is handed it."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a")
        await group.start("b", fault={"kind": kind, "at": 10})
        assert await group.exited("b") == code
        await group.until_consuming()
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    assert not verdict.repeated, str(verdict)
    (again,) = verdict.handed_out_again
    assert [touch.process[0] for touch in again.handed_out] == ["b", "a"]
    assert again.times_done == 1


async def test_user_code_that_blocks_its_loop(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Blocked for 20 s, over three session timeouts: nobody is evicted, no generation ends, nothing is repeated."""
    session_ms = 6_000
    async with group_of_processes(quick_kafka, tmp_path, session_ms=session_ms) as group:
        await group.start_all("a")
        blocked = await group.start("b", fault={"kind": "block", "at": 40, "seconds": 20.0})
        before = await group.until_stable("a", "b", members=2)
        await group.until(lambda seen: blocked_with(group, blocked, 40), "user code blocks")
        lease = await blocked.status()
        assert lease["state"] == "stable", "the agent answers while user code does not"
        await group.until(lambda seen: not blocked_with(group, blocked, 40), "user code goes on")
        after = await group.until_stable("a", "b", members=2)
        assert [s["member"] for s in after] == [s["member"] for s in before]
        assert [s["generation"] for s in after] == [s["generation"] for s in before]
        assert after[1]["errors"] == {}
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


def blocked_with(group: Group, member: Member, number: int) -> bool:
    """Whether the member's ``number``-th record is in hand."""
    lines = group.journal_of(member)
    handed = sum(line[0] == "H" for line in lines)
    return handed == number and sum(line[0] == "D" for line in lines) == number - 1


async def test_batches_and_manual_commits(quick_kafka: Cluster, tmp_path: Path) -> None:
    """getmany, and commits by hand after each record: members come and go and nothing committed is repeated."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", fault={"kind": "many"})
        await group.start_all("b", fault={"kind": "many"})
        await group.until_stable("a", "b", members=2)
        assert await group.end("a") == 0
        await group.until_stable("b", members=1)
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_manual_commits_start_at_the_last_one(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Commits by hand after each record: what was committed is never handed out again, whoever comes and goes."""
    async with group_of_processes(quick_kafka, tmp_path, rate=40.0) as group:
        await group.start_all("a", fault={"kind": "manual"}, enable_auto_commit=False)
        await group.start_all("b", "c", fault={"kind": "manual"}, enable_auto_commit=False)
        await group.until_stable("a", "b", "c", members=3)
        await group.until_owned("a", "b", "c")
        assert await group.end("a") == 0
        await group.until_stable("b", "c", members=2)
        assert await group.end("b") == 0
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


# -- the webhook -------------------------------------------------------------------------------------------------

WEBHOOK = {"LOADTRIM_SCALER": "webhook", "LOADTRIM_MIN_REPLICAS": "2", "LOADTRIM_DECISION_SECONDS": "0.3"}


async def test_webhook_down(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Nobody listens there: said, counted, tried again; the group goes on, and takes who comes anyway."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/scale"
    async with group_of_processes(quick_kafka, tmp_path) as group:
        (member,) = await group.start_all("a", env={**WEBHOOK, "LOADTRIM_SCALER_URL": url})

        async def tried() -> bool:
            return await counted(member, "loadtrim_scaler_requests_total") >= 2

        await eventually(tried, "two requests are counted")
        assert await counted(member, "loadtrim_scaler_requests_total", outcome="accepted") == 0
        scaler = (await member.status())["scaler"]
        assert scaler["failures"] >= 2
        assert not scaler["delivered"]
        assert (await member.get("/healthz")).startswith("ok")
        await group.start_all("b")
        await group.until_stable("a", "b", members=2)
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)


async def test_webhook_slow_and_failing(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Hangs up, answers 500, does not answer, then accepts: the wish arrives in the end, consuming never stops."""
    with Receiver() as receiver:
        receiver.behaviours.extend([hang_up, answer(500, "no"), hang])
        async with group_of_processes(quick_kafka, tmp_path) as group:
            (member,) = await group.start_all("a", env={**WEBHOOK, "LOADTRIM_SCALER_URL": receiver.url})
            await eventually(lambda: len(receiver.requests) >= 3, "the third request hangs")
            await group.until_consuming()
            await eventually(lambda: receiver.state, "the fourth request is accepted")
            assert receiver.state["replicas"] == 2
            assert receiver.state["group"] == group.group

            async def all_counted() -> bool:
                accepted = await counted(member, "loadtrim_scaler_requests_total", outcome="accepted")
                return accepted >= 1 and await counted(member, "loadtrim_scaler_requests_total") >= 4

            await eventually(all_counted, "accepted and not accepted ones are counted")
            verdict = await group.finish()
    assert verdict.spotless, str(verdict)


# -- the control topic -------------------------------------------------------------------------------------------


def garbage(group: str, generation: int, member: str) -> Iterable[bytes | None]:
    """What is no record of ours, or one that makes no sense."""
    yield None
    yield b""
    yield b"\x00\xff\xfe garbage"
    yield b"[]"
    yield b"null"
    yield b'{"kind":"from-the-future","v":9,"group":"x","member":"y","at":1}'
    yield b'{"kind":"release"}'
    yield b'{"kind":"release","group":"g","member":1,"at":"now","generation":"x"}'
    yield b'{"kind":"brake","group":"g","member":"cli","at":1,"action":"explode"}'
    yield b'{"kind":"brake","group":"g","member":"cli","at":1,"action":"scale","replicas":0}'
    yield b'{"kind":"load","group":"g","member":"nobody","at":-1e308,"generation":-5,"slack":1e308}'
    yield b'{"kind":"hello","group":"another","member":"nobody","at":1}'
    yield b'{"kind":"brake","group":"another","member":"cli","at":9e9,"action":"hold"}'
    start = f'"group":"{group}","at":1,"generation":{generation}'
    # Releases of partitions that are not the writer's, do not exist, or come from a void version.
    for partition, version, source in ((0, 7, member), (0, 0, "nobody"), (99_999, 0, member), (-1, 0, member)):
        yield (
            f'{{"kind":"release",{start},"member":"nobody","topic":"nowhere","partition":{partition},'
            f'"version":{version},"from":"{source}","to":"nobody","offset":-3}}'
        ).encode()
    yield f'{{"kind":"plan",{start},"member":"nobody","sequence":0,"moves":[{{"topic":"t","partition":1}}]}}'.encode()
    yield f'{{"kind":"report",{start},"member":"nobody","sequence":1,"partitions":[{{}}]}}'.encode()
    yield f'{{"kind":"decision",{start},"member":"nobody","sequence":"x","outcome":5,"reason":null}}'.encode()
    yield b'{"kind":"report","group":"g","member":"m","at":1,"sequence":1,"generation":1' + b"[" * 10_000
    # Well-formed, and nested deeper than a decoder goes; also in a record of another group.
    for nested in (group, "another"):
        yield (
            f'{{"kind":"hello","group":"{nested}","member":"m","at":1,"x":'.encode()
            + b"[" * 1_000
            + b"]" * 1_000
            + b"}"
        )


async def test_malformed_control_records(quick_kafka: Cluster, tmp_path: Path) -> None:
    """Garbage in both partitions of the control topic is counted and skipped; the group still hands over and plans."""
    async with group_of_processes(quick_kafka, tmp_path) as group:
        await group.start_all("a", "b")
        before = await group.until_stable("a", "b", members=2)
        leader, status = await group.leader()
        records = list(garbage(group.group, status["generation"], status["member"]))
        async with AIOKafkaProducer(bootstrap_servers=quick_kafka.bootstrap) as producer:
            for partition in (0, 1):
                for record in records:
                    await producer.send_and_wait(control_topic(group.group), record, key=b"?", partition=partition)
        for member in group.members.values():

            async def skipped(member: Member = member) -> bool:
                return await counted(member, "loadtrim_agent_errors_total", where="control_record") >= 10

            await eventually(skipped, f"{member.name} has counted what it skipped")
        after = await group.until_stable("a", "b", members=2)
        assert [s["generation"] for s in after] == [s["generation"] for s in before]
        assert [s["brake"] for s in after] == [None, None], "another group's brake is not ours"
        assert all("planning" not in s["errors"] for s in after)
        # It still works: a newcomer, a handoff, a leader that goes.
        await group.start_all("c")
        await group.until_owned("a", "b", "c")
        assert await group.end(leader, signal.SIGTERM) == 0
        await group.until_stable(*group.members, members=2)
        verdict = await group.finish()
    assert verdict.spotless, str(verdict)
