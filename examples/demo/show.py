"""The demo while it runs: the live view of ``loadtrim up`` with the demo's own lines, or plain lines."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from demo.journal import clock_ns
from demo.report import percentile
from demo.run import Live
from loadtrim.observer.connection import Connection
from loadtrim.observer.follow import GroupFollower, following
from loadtrim_agent.observability.text import counted, decision_line

__all__ = ["show"]

RECENT_SECONDS = 5.0
LINE_SECONDS = 5.0


@contextlib.asynccontextmanager
async def show(live: Live) -> AsyncIterator[None]:
    """Show a run inside the block: a picture on a terminal (with rich installed), a line every 5 s elsewhere."""
    connection = Connection(live.options.bootstrap, "the demo")
    async with following(connection, live.options.group) as group:
        task = asyncio.create_task(_draw(live, group) if sys.stdout.isatty() else _tell(live, group), name="show")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _draw(live: Live, group: GroupFollower) -> None:
    try:
        from loadtrim.cli.live import LiveView, Scene
    except ImportError:
        print("The live view needs rich (pip install rich); going on with plain lines.", flush=True)
        await _tell(live, group)
        return
    started_at = time.time()

    def scene() -> Any:
        now, up = time.time(), live.orchestrator
        return Scene(
            now=now,
            started_at=started_at,
            title="loadtrim demo",
            state=None if group.trouble else group.state(),
            trouble=group.trouble,
            instances=up.instances,
            wanted=up.wanted,
            replica_seconds=_replica_seconds(live),
            events=tuple(live.events[-20:]),
            facts={"demo": _progress(live), "journals": _latency(live)},
            footer=f"{live.options.rates.source}; Ctrl-C stops; evidence in {live.options.directory}",
        )

    await LiveView(scene).run()


def _replica_seconds(live: Live) -> float:
    """As the report counts them: from the start of the load."""
    if live.progress.started_ns is None:
        return 0.0
    return live.orchestrator.replica_seconds(since=time.time() - live.progress.second)


def _progress(live: Live) -> str:
    progress = live.progress
    second = int(progress.second)
    rates = live.options.rates.per_second
    rate = rates[second] if live.phase == "load" and second < len(rates) else 0.0
    return (
        f"{live.phase}, {min(second, len(rates))} of {len(rates)} s, {rate:.0f} records/s now; "
        f"{progress.sent:,} of {progress.records_total:,} sent, {len(live.follower.done):,} done"
    )


def _latency(live: Live) -> str:
    """The present as the processes' own journals tell it, whatever the agents say."""
    since = clock_ns() - round(RECENT_SECONDS * 1e9)
    latencies = sorted(latency for at, latency in live.follower.recent if at >= since)
    if not latencies:
        return f"nothing done in the last {RECENT_SECONDS:g} s"
    late = sum(latency > live.options.objective_seconds for latency in latencies)
    p50, p99, most = percentile(latencies, 0.5), percentile(latencies, 0.99), latencies[-1]
    return (
        f"last {RECENT_SECONDS:g} s: {len(latencies):,} done, p50 {p50:.3f} s, p99 {p99:.3f} s, max {most:.3f} s; "
        f"{late:,} later than {live.options.objective_seconds:g} s"
    )


async def _tell(live: Live, group: GroupFollower) -> None:
    said = None
    while True:
        await asyncio.sleep(LINE_SECONDS)
        print(f"{_progress(live)}; {counted(live.orchestrator.replicas, 'replica')}; {_latency(live)}", flush=True)
        if group.trouble:
            continue
        state = group.state()
        if state.decision is not None and state.decision.reason != said:
            said = state.decision.reason
            print(f"    {decision_line(state.decision, group.view.names)}", flush=True)
