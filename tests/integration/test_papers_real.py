"""Real runs of the papers: reference assignors as consumers, and Nexmark queries whose state moves along."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from benchmarks.papers import real

from demo.load import constant
from demo.run import RunOptions, run
from loadtrim.simulate import shares_even
from loadtrim.testing import Cluster
from nexmark import __main__ as nexmark
from nexmark.events import Generator
from nexmark.queries import Session, SessionCount
from nexmark.service import changelog_of, results_of
from nexmark.state import APPLIED

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("client", real.REFERENCES)
async def test_reference_consumers_are_scaled_and_lose_nothing(client: str, kafka: Cluster, tmp_path: Path) -> None:
    options = RunOptions(
        bootstrap=kafka.bootstrap,
        topic=kafka.create_topic(partitions=4),
        group=f"real-{client}",
        rates=constant(60, 8),
        shares=shares_even(4),
        directory=tmp_path / "run",
        objective_seconds=5.0,
        busy_seconds=0.001,
        client=client,
        replicas=1,
        replicas_at=((1.0, 2), (6.0, 1)),
    )
    report = await run(options)
    assert report.summary.records == 480
    assert (report.summary.lost, report.summary.left_over) == (0, 0)
    assert (report.summary.scale_ups, report.summary.scale_downs) == (1, 1)


def test_what_was_played_is_not_played_again(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "OUT", tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    words = ["--runs", "W1/", "--seconds", "3", "--begin", "120"]
    monkeypatch.setattr(real, "REFERENCES", ("aiokafka-sticky",))
    assert real.main(words) == 0
    first = capsys.readouterr().out
    rows = [line for line in first.splitlines() if line.startswith("| ")][1:]
    assert first.startswith("\nCLOSER'24 W1\n")
    wanted = [plan for plan in real.plans() if plan.load == "CLOSER'24 W1"]
    assert len([row for row in rows if not row.startswith("| ---")]) == len(wanted) == 5
    assert "| aiokafka-sticky, scaled as linear" in first
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert real.main(words) == 0
    assert capsys.readouterr().out == first


async def test_sessions_are_counted_exactly_over_moves(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nexmark, "PARTITIONS", 4)
    topic = nexmark._make_topics(kafka, "q11")
    options = nexmark.run_options("q11", "fixed:replicas=3", 0, 16, kafka.bootstrap, topic)
    options = dataclasses.replace(
        options,
        rates=constant(100, 16),
        events=Generator("q11", 4),
        directory=tmp_path / "run",
        busy_seconds=0.001,
        replicas=1,
    )
    report = await run(options)
    assert report.summary.ok, str(report.verdict)
    assert report.summary.moves > 0
    closed = [msgspec.json.decode(value, type=SessionCount) for _, value in await _read(kafka, results_of(topic))]
    kept: dict[str, bytes | None] = dict(await _read(kafka, changelog_of(topic)))
    still = [msgspec.json.decode(v, type=Session) for key, v in kept.items() if v is not None and key != APPLIED]
    assert closed
    assert sum(each.bids for each in (*closed, *still)) == 1600


async def _read(kafka: Cluster, topic: str) -> Iterable[tuple[str, Any]]:
    reader = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=None, auto_offset_reset="earliest")
    await reader.start()
    found = []
    try:
        places = [TopicPartition(topic, index) for index in range(4)]
        reader.assign(places)
        for place, end in (await reader.end_offsets(places)).items():
            while end and await reader.position(place) < end:
                for messages in (await reader.getmany(place, timeout_ms=200)).values():
                    found += [((message.key or b"").decode(), message.value) for message in messages]
    finally:
        await reader.stop()
    return found
