"""A broker that goes and comes back: same port, same data, the same group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.harness import group_of_processes
from loadtrim.testing import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[LocalKafka]:
    """A broker that nobody else uses."""
    with LocalKafka(properties={"group.min.session.timeout.ms": "500"}, short_run=True) as kafka:
        yield kafka


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_broker_restart(own_kafka: LocalKafka, tmp_path: Path, how: str) -> None:
    """The group finds its broker again by itself; members keep their ids, so nothing moves and nothing is repeated."""
    (broker,) = own_kafka.brokers
    async with group_of_processes(own_kafka, tmp_path, session_ms=10_000, rate=40.0) as group:
        await group.start_all("a", "b")
        before = await group.until_stable("a", "b", members=2)
        if how == "stopped":
            broker.stop()
        else:
            broker.kill()
        broker.start()
        await group.until_consuming()
        after = await group.until_stable("a", "b", members=2)
        assert [s["member"] for s in after] == [s["member"] for s in before]
        await group.start_all("c")
        await group.until_stable("a", "b", "c", members=3)
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
    assert verdict.spotless or how == "killed", str(verdict)


async def test_broker_away_for_longer_than_the_lease(own_kafka: LocalKafka, tmp_path: Path) -> None:
    """With no lease nothing is handed out, /healthz does not fail for it, and all goes on when the broker is back."""
    (broker,) = own_kafka.brokers
    async with group_of_processes(own_kafka, tmp_path, session_ms=2_000, rate=40.0) as group:
        await group.start_all("a", "b")
        await group.until_stable("a", "b", members=2)
        broker.kill()
        await group.until_no_lease("a", "b")
        for member in group.members.values():
            assert (await member.get("/healthz")).startswith("ok"), "a restart would bring no broker back"
        broker.start()
        await group.until_consuming()
        await group.until_stable("a", "b", members=2)
        verdict = await group.finish()
    assert verdict.ok, str(verdict)
