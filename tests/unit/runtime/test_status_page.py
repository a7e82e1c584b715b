"""What ``/healthz`` fails for: reasons that are the agent's, and no others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.runtime.condition import AgentCondition
from loadtrim_agent.runtime.status_page import StatusPage, _log_words


def page(lag: int = 5, lease_seconds: float = 10.0, ran_seconds_ago: float = 0.5) -> StatusPage:
    condition = AgentCondition()
    condition.ran_at = boot_time() - ran_seconds_ago
    partitions = SimpleNamespace(gate=SimpleNamespace(lease_until=boot_time() + lease_seconds))
    metering = SimpleNamespace(snapshot=SimpleNamespace(partitions=(SimpleNamespace(lag_records=lag),)))
    sources: Any = SimpleNamespace(
        agent=SimpleNamespace(condition=condition, partitions=partitions),
        metering=metering,
        stays_ready=False,
        asks=True,
    )
    return StatusPage(sources)


def test_a_broker_that_is_away_is_no_reason_to_restart_a_consumer() -> None:
    """Every pod of the group was restarted once a broker was away for 10 s more than the lease."""
    well, reason = page(lease_seconds=-60.0).health()
    assert well
    assert "Kafka does not answer" in reason
    assert "over for 60 s" in reason


@pytest.mark.parametrize(("lag", "seconds"), [(0, 3.0), (0, 25.0), (5, 3.0)])
def test_an_outage_is_told_whatever_waited_before_it(lag: int, seconds: float) -> None:
    """It said "ok" unless records had waited before and the lease had been over for 10 s, when most are past."""
    well, reason = page(lag=lag, lease_seconds=-seconds).health()
    assert well
    assert f"Kafka does not answer: the lease has been over for {seconds:.0f} s" in reason


def test_without_a_lease_yet_and_after_the_leave_there_is_no_outage() -> None:
    starting = page()
    starting._sources.agent.partitions.gate.lease_until = 0.0
    assert starting.health() == (True, "ok")
    ended = page(lease_seconds=-60.0)
    ended._sources.agent.condition.left.set()
    assert ended.health() == (True, "ok")


@pytest.mark.parametrize(
    ("log", "works", "words"), [(object(), True, "ok"), (object(), False, "failed: "), (None, False, "not usable: ")]
)
def test_a_log_that_has_failed_is_told(log: object, works: bool, words: str) -> None:
    """``/status`` said that it was ok once it had been opened."""
    agent: Any = SimpleNamespace(log=log, log_works=works)
    assert _log_words(agent).startswith(words)


def test_an_agent_whose_thread_hangs_while_records_wait_is_not_well() -> None:
    well, reason = page(lease_seconds=-60.0, ran_seconds_ago=60.0).health()
    assert not well
    assert "5 records wait and the agent's thread has not run for 60 s" in reason
    assert page(lag=0, ran_seconds_ago=60.0).health() == (True, "ok"), "nothing waits, so nothing is held up"


def test_an_agent_that_failed_is_not_well() -> None:
    failed = page()
    failed._sources.agent.condition.failure = RuntimeError("fenced")
    assert failed.health() == (False, "the agent has failed: RuntimeError('fenced')")


def test_a_victim_is_drained_once_it_owns_nothing_until_a_plan_says_otherwise() -> None:
    """A generation begins without a plan: a victim must not be ready for the second until the next one."""
    shown = page()

    def drained(victims: tuple[str, ...] | None, *owned: int) -> bool | None:
        plan = None if victims is None else SimpleNamespace(victims=victims)
        group = SimpleNamespace(member="m2", plan=plan, assigned=dict.fromkeys(owned))
        shown._sources.agent.snapshot = lambda: group
        return shown.drained()

    assert not drained(None)
    assert not drained(("m2",), 0)
    assert drained(("m1", "m2"))
    assert drained(None), "a rebalance makes it no less a victim"
    assert not drained(None, 3)
    assert not drained(())


def test_a_member_whose_group_asks_for_no_replicas_says_nothing_of_its_pod() -> None:
    """What a plan says counts all the same: the leader may have other settings."""
    shown = page()
    shown._sources.asks = False  # type: ignore[misc]

    def drained(victims: tuple[str, ...], *owned: int) -> bool | None:
        group = SimpleNamespace(member="m2", plan=SimpleNamespace(victims=victims), assigned=dict.fromkeys(owned))
        shown._sources.agent.snapshot = lambda: group  # type: ignore[method-assign,assignment,return-value]
        return shown.drained()

    assert drained((), 3) is None
    assert drained(()) is None, "it owns nothing, as a member beyond the partitions does"
    assert drained(("m2",), 3) is False
    assert drained(("m2",)) is True


def test_a_drained_pod_of_a_statefulset_stays_ready() -> None:
    """Two that are not would hold each other up for ever; which one goes is a matter of numbers."""
    shown = page()
    shown._sources.stays_ready = True  # type: ignore[misc]
    group = SimpleNamespace(member="m2", plan=SimpleNamespace(victims=("m2",)), assigned={})
    shown._sources.agent.snapshot = lambda: group  # type: ignore[method-assign,assignment,return-value]
    assert not shown.drained()


@pytest.mark.looptime
async def test_the_loop_is_seen_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("loadtrim_agent.runtime.condition.boot_time", loop.time)
    condition = AgentCondition()
    task = asyncio.create_task(condition.watch_loop())
    await asyncio.sleep(30.5)
    assert loop.time() - condition.ran_at <= 1.0
    task.cancel()
