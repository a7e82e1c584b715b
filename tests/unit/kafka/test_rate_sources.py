"""What a monitor makes of answers that leave something out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.rate_sources import OffsetTimeRates


class Untold:
    """A broker whose partition 1 has messages without time stamps."""

    async def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, None]:
        return dict.fromkeys(timestamps)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: 7 for at in partitions if at.partition == 0}


async def test_a_partition_that_the_broker_leaves_out_is_no_idle_one() -> None:
    untold: Any = Untold()
    monitor = OffsetTimeRates(untold, interval_seconds=2.0)
    assert (await monitor.rates([Partition("t", 0)], 100.0)) is not None
    with pytest.raises(KafkaError, match="no offset by time of 1 partitions"):
        await monitor.rates([Partition("t", 0), Partition("t", 1)], 100.0)
