"""README's sample on a real Kafka, word for word, and the same words with the import that it replaces."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import aiokafka
import pytest

import loadtrim
from integration.harness import eventually
from integration.harness_consumers import new_group, send
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PAGE = (Path(__file__).parents[2] / "README.md").read_text()
IMPORT = "from loadtrim import Consumer            # was: from aiokafka import AIOKafkaConsumer\n"
EARLY = "before it reads"
RECORDS = [f"payment {number}" for number in range(20)]


def sample(topic: str, group: str, bootstrap: str) -> str:
    """Return the sample for a topic, a group and a broker of the test's own, as a function that can be awaited."""
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    head, line, body = found[1].partition(IMPORT)
    assert (head, line) == ("", IMPORT), "the import is the sample's first line"
    for word, own in (("payments-service", group), ("payments", topic), ("localhost:9092", bootstrap)):
        assert body.count(f'"{word}"') == 1
        body = body.replace(f'"{word}"', f'"{own}"')
    return "async def service():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


@pytest.mark.parametrize("package", ["loadtrim", "aiokafka"])
async def test_the_sample_handles_each_record_and_so_does_it_with_aiokafka(
    package: str, quick_kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADTRIM_HTTP", "off")
    topic = quick_kafka.create_topic(partitions=2)
    handled: list[str] = []

    async def handle(message: Any) -> None:
        handled.append(message.value.decode())

    names: dict[str, Any] = {
        "handle": handle,
        "Consumer": loadtrim.Consumer if package == "loadtrim" else aiokafka.AIOKafkaConsumer,
    }
    exec(sample(topic, new_group(), quick_kafka.bootstrap), names)
    service = asyncio.create_task(names["service"]())

    async def reads() -> bool:
        """The sample begins at the log's end, as aiokafka does, so that a record may come too early for it."""
        assert not service.done(), service.exception()
        await send(quick_kafka, topic, [EARLY], partition=None)
        return bool(handled)

    await eventually(reads, "a record is handled")
    await send(quick_kafka, topic, RECORDS, partition=None)
    await eventually(lambda: set(RECORDS) <= set(handled), "all are handled")
    service.cancel()
    with pytest.raises(asyncio.CancelledError):
        await service
    assert sorted(value for value in handled if value != EARLY) == sorted(RECORDS)
