"""What one client reads is timed without a wait for records that there are not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from benchmarks.suite.drain import CONSUME_RECORDS, Stretch, consume


class OneMessage:
    """A record as confluent-kafka gives it."""

    def value(self) -> bytes:
        return b"12345"

    def error(self) -> None:
        return None


@dataclass
class FakeConsumer:
    """confluent-kafka's: it gives back what it was asked for at once, and waits where there is less."""

    left: int
    asked: list[int] = field(default_factory=list)
    waited: int = 0

    def consume(self, records: int, timeout: float) -> list[OneMessage]:
        assert timeout > 0
        self.asked.append(records)
        self.waited += records > self.left
        given = min(records, self.left)
        self.left -= given
        return [OneMessage()] * given


@pytest.mark.parametrize("batch", CONSUME_RECORDS)
def test_consume_asks_for_no_more_than_is_left(batch: int) -> None:
    """The 500th record that never came cost half a second: as long as the reading of all the others."""
    consumer, stretch = FakeConsumer(74_999), Stretch()
    consume(consumer, stretch, 74_999, batch)
    assert consumer.waited == 0
    assert consumer.asked[:-1] == [batch] * (74_999 // batch)
    assert (stretch.records, stretch.size_bytes) == (74_999, 5 * 74_999)
