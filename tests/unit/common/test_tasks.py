"""One task group: an error goes where it belongs, and cancels no sibling."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.tasks import AgentTasks, OwnedTasks


class Agent:
    """Remembers failures and contained errors."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.contained: list[str] = []
        self.tasks = AgentTasks(self, ErrorBoundary(self))

    def raise_to_user(self, error: BaseException) -> None:
        self.failures.append(error)

    def error(self, where: str) -> None:
        self.contained.append(where)


async def broken() -> None:
    raise ZeroDivisionError


async def test_a_task_that_fails_is_told_and_its_siblings_go_on() -> None:
    agent, ended = Agent(), asyncio.Event()

    async def lasting() -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            ended.set()

    await agent.tasks.open()
    agent.tasks.spawn(lasting(), "lasting")
    agent.tasks.spawn(broken(), "broken")
    agent.tasks.spawn_contained(broken(), "reports")
    await asyncio.sleep(0.01)
    assert [type(failure) for failure in agent.failures] == [ZeroDivisionError]
    assert agent.contained == ["reports"]
    assert not ended.is_set()
    await agent.tasks.close()
    assert ended.is_set(), "close waits for every task"


async def test_nothing_is_started_after_the_end() -> None:
    agent = Agent()
    await agent.tasks.open()
    await agent.tasks.close()
    assert agent.tasks.spawn_contained(broken(), "late") is None
    await asyncio.sleep(0)
    assert (agent.failures, agent.contained) == ([], [])


async def test_a_task_that_waits_for_something_cancelled_does_not_end_in_silence() -> None:
    """It was no task of the agent's that was cancelled, and nobody else would tell."""
    agent = Agent()
    await agent.tasks.open()
    elsewhere: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    elsewhere.cancel()

    async def waits() -> None:
        await elsewhere

    agent.tasks.spawn(waits(), "heartbeat")
    agent.tasks.spawn_contained(waits(), "reports")
    await asyncio.sleep(0.01)
    assert [str(failure) for failure in agent.failures] == [
        "What the agent's task loadtrim-heartbeat waited for was cancelled"
    ]
    assert agent.contained == ["reports"]
    await agent.tasks.close()


async def test_loops_see_the_end_though_their_cancellation_was_swallowed() -> None:
    """``asyncio.wait_for`` may do so, and its loop would go on for ever."""
    tasks, rounds = OwnedTasks(Agent()), 0

    async def deaf() -> None:
        nonlocal rounds
        while not tasks.closed:
            rounds += 1
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    await tasks.open()
    tasks.spawn(deaf(), "deaf")
    await asyncio.sleep(0)
    await tasks.close()
    assert (rounds, tasks.closed) == (1, True)


def test_every_task_has_an_owner() -> None:
    """The fetcher started its tasks by itself, with an error path of its own; a task without an owner outlives it."""
    bare = re.compile(r"asyncio\.create_task|loop\(?\)?\.create_task|ensure_future")
    agent = Path(__file__).parents[3] / "agent" / "loadtrim_agent"
    found = {
        path.relative_to(agent).as_posix(): len(bare.findall(path.read_text(encoding="utf-8")))
        for path in agent.rglob("*.py")
    }
    assert {path: count for path, count in found.items() if count} == {
        "common/tasks.py": 1,  # the owner itself
        "kafka/connections.py": 3,  # a call for a token: all that wait hear what it raises, the last ends it
        "kafka/pool.py": 1,  # connections being made: the pool ends them, and requests that wait hear what they raise
        "runtime/agent.py": 3,  # waits, and an opening, that end within the function
    }
