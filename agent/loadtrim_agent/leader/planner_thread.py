"""The planner's thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import GroupState, PlanConfig
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

__all__ = ["PlannerThread"]


class PlannerThread:
    """The planner in a thread of its own, so that a slow plan costs neither heartbeats nor handoffs.

    Records that come while it thinks wait for the next decision.
    """

    def __init__(self, config: PlanConfig) -> None:
        self._planner = make_planner(config)
        self._pending: list[tuple[ReportRecord | DecisionRecord, float]] = []

    def observe(self, record: ReportRecord | DecisionRecord, received_at: float) -> None:
        """Take in a report, or a decision of an earlier leader."""
        self._pending.append((record, received_at))

    async def decide(self, now: float, state: GroupState) -> DecisionRecord:
        """Make one decision at a time; wait for it however long it takes."""
        pending, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[DecisionRecord] = loop.create_future()

        def think() -> None:
            made: DecisionRecord | Exception
            try:
                made = self._decide(pending, now, state)
            except Exception as error:
                made = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, answer, made)

        # A daemon thread, unlike an executor's, does not keep a process from exiting.
        threading.Thread(target=think, name="loadtrim-planner", daemon=True).start()
        return await answer

    def _decide(
        self, pending: list[tuple[ReportRecord | DecisionRecord, float]], now: float, state: GroupState
    ) -> DecisionRecord:
        for record, received_at in pending:
            if isinstance(record, ReportRecord):
                self._planner.observe(record, received_at)
            else:
                self._planner.remember(record)
        return self._planner.decide(now, state)


def _settle(answer: asyncio.Future[DecisionRecord], made: DecisionRecord | Exception) -> None:
    if answer.done():
        return
    if isinstance(made, Exception):
        answer.set_exception(made)
    else:
        answer.set_result(made)
