"""What user code hears of a fetcher's errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import OwnedTasks
from loadtrim_agent.kafka.fetch.fetch_errors import FetchErrors


class Told(list[tuple[Exception, Partition | None]]):
    """Errors as a sink of the fetcher hears them."""

    @property
    def sink(self) -> Any:
        return SimpleNamespace(failed=lambda error, partition: self.append((error, partition)))


async def broken() -> None:
    raise ZeroDivisionError("of a broker")


@pytest.mark.parametrize("early", [True, False], ids=["before the fetcher runs", "while it runs"])
async def test_a_task_that_breaks_is_told_once_and_for_good_as_in_aiokafka(early: bool) -> None:
    """Before the fetcher ran nobody was there to be told: nothing was fetched, and nothing raised."""
    errors, told = FetchErrors(), Told()
    tasks = OwnedTasks(errors)
    await tasks.open()
    if not early:
        errors.serve(told.sink)
    task = tasks.spawn(broken(), "poll")
    assert task is not None
    await asyncio.wait([task])
    if early:
        errors.serve(told.sink)
    [(error, partition)] = told
    assert (type(error), partition) == (KafkaError, None)
    assert str(error) == "KafkaError: Unexpected error during data retrieval: ZeroDivisionError('of a broker')"
    await tasks.close()


def test_an_error_of_a_partition_is_told_and_fetching_goes_on() -> None:
    errors, told, refused, at = FetchErrors(), Told(), TopicAuthorizationFailedError("orders"), Partition("orders", 0)
    errors.tell(refused, at)
    errors.serve(told.sink)
    assert told == [], "the fetcher did not run yet"
    errors.tell(refused, at)
    assert told == [(refused, at)]
