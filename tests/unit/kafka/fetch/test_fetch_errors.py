"""What user code hears of a fetcher's errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from loadtrim_agent.common.tasks import OwnedTasks
from loadtrim_agent.kafka.fetch.fetch_errors import FetchErrors


class Told(list[tuple[Exception, bool]]):
    """Errors as a sink of the fetcher hears them."""

    @property
    def sink(self) -> Any:
        return SimpleNamespace(failed=lambda error, *, for_good: self.append((error, for_good)))


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
    [(error, for_good)] = told
    assert (type(error), for_good) == (KafkaError, True)
    assert str(error) == "KafkaError: Unexpected error during data retrieval: ZeroDivisionError('of a broker')"
    await tasks.close()


def test_an_error_of_a_partition_is_told_and_fetching_goes_on() -> None:
    errors, told, refused = FetchErrors(), Told(), TopicAuthorizationFailedError("orders")
    errors.tell(refused)
    errors.serve(told.sink)
    assert told == [], "the fetcher did not run yet"
    errors.tell(refused)
    assert told == [(refused, False)]
