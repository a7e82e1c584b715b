"""The output of ``loadtrim simulate``: what is played, what came of it, and why."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from loadtrim.simulate import Load, Options
from loadtrim.simulate.loads.load import ReadAs
from loadtrim.simulate.model.simulation import drain_seconds
from loadtrim.simulate.report.text import curves_of, decision_lines, decisions_of, legend_lines, table_lines
from loadtrim.simulate.study.fixed_group import FIRST_SECONDS
from loadtrim_agent.observability.text import number

from .simulate_study import Study, cost_of, price_of
from .simulate_task import PolicyResult, Task

__all__ = ["head_lines", "json_of", "text_lines", "wrapped"]


def _amount(value: float) -> str:
    """Write an amount in whole numbers, and what is less than ten as it is: no load shows as none."""
    return number(value) if value < 10.0 else f"{value:,.0f}"


def head_lines(task: Task) -> list[str]:
    """Return what is played, in words, for what comes before the table."""
    load, options, config = task.load, task.options, task.configs[0]
    what = f"{load.source}: {_amount(load.records)} records in {load.seconds} s on {len(load.partitions)} partitions"
    what += " (assumed, for nothing tells how many; --partitions N), " if load.partitions_assumed else ", "
    group = f"W = {config.sla_seconds:g} s, {config.sla_share * 100:.10g}% of the records; "
    group += f"{options.costs}; start-up {options.startup_seconds:g} s; protocol {options.protocol.name}"
    group += ", members slice" if options.slicing else ""
    group += f"; begins with {options.replicas} replica{'s' if options.replicas > 1 else ''}"
    if task.arguments["replicas"] is None:
        group += f", what the first {min(load.seconds, FIRST_SECONDS)} s take"
    group += f"; baselines of {task.arguments['baselines'].name}" if options.baselines else ""
    return [
        what + f"up to {_amount(max(load.per_second))}/s, arriving as {load.arrivals}",
        *([] if load.read_as is None else [_read_line(load, load.read_as)]),
        group,
        *([f"also given: {' '.join(task.others)}"] if task.others else []),
        *(f"note: {note}" for note in task.notes),
        "",
    ]


NO_DECISIONS = "  none: no decision wanted another number of replicas, or moved anything"
QUANTITIES = {"rate": "records per second", "count": "the records of each row's time", "counter": "a counter"}
OTHERS = {"rate": "count", "count": "rate", "counter": "rate"}
"""Quantity that was read -> the one that is meant most often where that was wrong."""


def _read_line(load: Load, read: ReadAs) -> str:
    """Return how a table was read, and which option reads it otherwise."""
    spacing = f"{read.step_seconds:g} s apart" if read.regular else f"about {read.step_seconds:g} s apart"
    rows = f"read: {read.rows:,} rows, {spacing}" if read.rows > 1 else "read: 1 row, taken for one second"
    if read.rows > 1 and read.begins_at is not None and read.ends_at is not None:
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (read.begins_at, read.ends_at))
        rows += f", from {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    other = "" if read.why.startswith("as --values") else f" (otherwise: --values {OTHERS[read.quantity]})"
    mean = load.records / load.seconds
    rate = f"{mean:,.0f}" if mean >= 100.0 else f"{mean:.3g}"
    return f"{rows}; {read.column!r} is read as {QUANTITIES[read.quantity]}, {read.why}{other}; {rate}/s on average"


def text_lines(task: Task, runs: Sequence[PolicyResult], *, decisions: bool) -> list[str]:
    """The table as wide as the terminal, in a pipe one line per policy; what it does not tell, and what is in it."""
    summaries = [run.summary for run in runs]
    terminal = sys.stdout.isatty()
    lines = table_lines(summaries, shutil.get_terminal_size().columns if terminal else None, bold=terminal)
    said = [_left(run, task.configs[0].sla_seconds) for run in runs if run.summary.left]
    for run in runs:
        later = run.share_later
        if later is not None and f"{later:.4f}" > f"{run.summary.share_in_time:.4f}":
            said.append(_later(task, run.name, later))
    lines += wrapped(said)
    lines += ["", *legend_lines(summaries)]
    for run in runs if decisions else ():
        lines += ["", f"{run.name}, seed {run.summary.seeds[0]}:", *(decision_lines(run.first) or [NO_DECISIONS])]
    return lines


def wrapped(lines: Sequence[str]) -> list[str]:
    """Return sentences as wide as the terminal; in a pipe one a line."""
    if not sys.stdout.isatty():
        return list(lines)
    width = shutil.get_terminal_size().columns
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ") or [""]]


def _left(run: PolicyResult, objective_seconds: float) -> str:
    summary, several = run.summary, len(run.summary.seeds) > 1
    # A mean may be below 1.
    left = f"a mean of {summary.left:,.1f}" if several else f"{summary.left:,.0f}"
    return (
        f"{run.name}: {left} records ({summary.left / summary.records:.2%}) were not done "
        f"{drain_seconds(objective_seconds):g} s after the load's end; they are late, and > means at least"
    )


def _later(task: Task, name: str, share: float) -> str:
    """Return what the cold start cost."""
    return (
        f"{name}: without the first {task.seconds_until_joined} s, in which no replica that is asked for can be "
        f"there, {share * 100:.2f} % are in time"
    )


def json_of(task: Task, runs: Sequence[PolicyResult], study: Study, *, curves: bool, decisions: bool) -> str:
    """The whole setting, and what came of it."""
    told = {
        "load": _load(task.load),
        "notes": list(task.notes),
        "objective": {"seconds": task.configs[0].sla_seconds, "share": task.configs[0].sla_share},
        "costs": _costs(task.options),
        "group": _group(task),
        "arguments": task.arguments,
        "advice": None if study.advice is None else {"policy": study.advised} | asdict(study.advice),
        "price": price_of(task, study),
        "runs": [
            asdict(run.summary)
            | {"without_first": {"seconds": task.seconds_until_joined, "share_in_time": run.share_later}}
            | cost_of(task, run)
            | ({"decisions": decisions_of(run.first)} if decisions else {})
            | ({"curves": curves_of(task.load, run.first)} if curves else {})
            for run in runs
        ],
    }
    return msgspec.json.encode(told, enc_hook=str).decode()


def _load(load: Load) -> dict[str, Any]:
    return {
        "source": load.source,
        "seconds": load.seconds,
        "records": load.records,
        "partitions": [str(partition) for partition in load.partitions],
        # None: they change from second to second.
        "shares": load.shares[0] if len(load.shares) == 1 else None,
        "arrivals": load.arrivals,
        "keys": load.keys,
        "partitions_assumed": load.partitions_assumed,
        "read_as": None if load.read_as is None else asdict(load.read_as),
    }


def _costs(options: Options) -> dict[str, Any]:
    costs = options.costs
    spread = {"variation": costs.variation} if costs.kind == "lognormal" else {}
    return {"kind": costs.kind, "mean_seconds": costs.mean_seconds} | spread


def _group(task: Task) -> dict[str, Any]:
    options, config = task.options, task.configs[0]
    return {
        "replicas": options.replicas,
        "replicas_min": config.min_replicas,
        "replicas_max": config.max_replicas or len(task.load.partitions),
        "speeds": options.machines.speeds,
        "concurrency": options.machines.concurrency,
        "startup_seconds": options.startup_seconds,
        "protocol": options.protocol.name,
        "heartbeat_seconds": options.protocol.heartbeat_seconds if options.protocol.rebalances else None,
        "slicing": options.slicing,
        "begins_at": options.begins_at,
        "baselines": len(options.baselines),
    }
