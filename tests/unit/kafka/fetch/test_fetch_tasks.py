"""The fetcher's tasks: one that breaks ends fetching, and somebody is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from loadtrim_agent.kafka.fetch.fetch_tasks import FetchTasks


async def broken() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("early", [True, False], ids=["before the fetcher runs", "while it runs"])
async def test_a_task_that_breaks_is_told_once_and_for_good(early: bool) -> None:
    """Before the fetcher ran nobody was there to be told: nothing was fetched, and nothing raised."""
    tasks, told = FetchTasks(), []
    sink: Any = SimpleNamespace(failed=lambda error, *, for_good: told.append((error, for_good)))
    if not early:
        tasks.serve(sink)
    await asyncio.gather(tasks.spawn(broken(), "poll"), return_exceptions=True)
    await asyncio.sleep(0)
    if early:
        tasks.serve(sink)
    ((error, for_good),) = told
    assert isinstance(error, KafkaError)
    assert "ZeroDivisionError" in str(error)
    assert for_good
    await tasks.close()


async def test_an_error_of_a_partition_is_told_and_fetching_goes_on() -> None:
    tasks, told = FetchTasks(), []
    tasks.tell_error(KafkaError("early"))
    tasks.serve(SimpleNamespace(failed=lambda error, *, for_good: told.append((str(error), for_good))))  # type: ignore[arg-type]
    tasks.tell_error(KafkaError("late"))
    assert told == [("KafkaError: late", False)]
    await tasks.close()
