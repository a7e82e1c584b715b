"""How the baseline topic is followed, on logs in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.kafka import baselines as reading
from loadtrim_agent.kafka.baselines import BaselineReader
from loadtrim_agent.kafka.partition_log import Fetched
from loadtrim_agent.wire.baseline_records import Baselines
from unit.planning.baseline_feed import MONDAY, data, key, utc_slots, value


class Log:
    """A partition: keys and values from offset ``begin`` on."""

    def __init__(self, begin: int, *records: tuple[bytes, bytes | None]) -> None:
        self.begin, self.records = begin, records

    async def first(self) -> int:
        return self.begin

    async def end(self) -> int:
        return self.begin + len(self.records)

    async def read(self, position: int, **_: Any) -> Fetched:
        told = [SimpleNamespace(key=name, value=told) for name, told in self.records[position - self.begin :]]
        return Fetched(told, await self.end(), await self.end())


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[int, Log]:
    """The topic's partitions."""
    made: dict[int, Log] = {}
    monkeypatch.setattr(reading, "PartitionLog", lambda _connections, _topic, partition, **_: made[partition])
    return made


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(logs: dict[int, Log]) -> None:
    """A leader went on by the old topic's baselines, as long as the new one was shorter than what it had read."""
    known = Baselines("g", utc_slots)
    reader = BaselineReader({}, "baselines", known, SimpleNamespace(broke=None))  # type: ignore[arg-type]
    old = data(value(topic="a", rate=10.0))
    logs[0] = Log(0, *[(key("a"), old)] * 50, (key("gone"), data(value(topic="gone"))))
    await reader._read(0)
    assert sorted(known.curves(MONDAY)) == ["a", "gone"]
    logs[0] = Log(0, (key("a"), data(value(topic="a", rate=99.0))))
    await reader._read(0)
    assert {topic: curve.rates[0] for topic, curve in known.curves(MONDAY).items()} == {"a": 99.0}


async def test_what_is_compacted_away_is_no_sign_of_a_new_topic(logs: dict[int, Log]) -> None:
    known = Baselines("g", utc_slots)
    reader = BaselineReader({}, "baselines", known, SimpleNamespace(broke=None))  # type: ignore[arg-type]
    logs[0] = Log(0, (key("a"), data(value(topic="a"))), (key("b"), data(value(topic="b"))))
    await reader._read(0)
    logs[0] = Log(2)
    await reader._read(0)
    assert sorted(known.curves(MONDAY)) == ["a", "b"]


async def test_what_a_token_provider_raises_is_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised as it was, it ended the task: nothing was expected of the history any more."""
    broke: list[str] = []
    reader = BaselineReader({}, "baselines", Baselines("g", utc_slots), SimpleNamespace(broke=broke.append))  # type: ignore[arg-type]

    async def fail() -> None:
        raise LookupError("503 from the identity provider")

    monkeypatch.setattr(reader._connections, "start", fail)
    await reader._look()
    assert broke == ["baselines"]
