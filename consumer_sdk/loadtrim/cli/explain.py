"""``loadtrim explain GROUP``: the leader's last decisions in words."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.observer.group import GroupObserver
from loadtrim_agent.observability.text import decision_lines, time_of_day
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .text import MIXED_LINE

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["RepeatedDecision", "add_parser", "explain_lines", "gather", "run", "told_lines"]

LAST_DEFAULT = 10
LAST_MAX = 10_000
DECISIONS_PER_RUN = 60
"""Decisions read per one that is shown: a quiet group decides the same thing every second."""


@dataclass(frozen=True, slots=True)
class RepeatedDecision:
    """Decisions in a row that came to the same; shown as one, the last of them."""

    first: DecisionRecord
    last: DecisionRecord
    count: int


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``explain`` to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="tell the leader's last decisions in words",
        description="Tells the last decisions of a group's leader: what it saw, what it decided and why, and which "
        "alternatives it did not take. Decisions in a row that came to the same are told once.",
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
    parser.add_argument(
        "--last", type=_count, default=LAST_DEFAULT, metavar="N", help=f"how many (default: {LAST_DEFAULT})"
    )
    parser.add_argument(
        "--all", action="store_true", help="every single decision, also those that repeat the one before"
    )
    parser.add_argument("--json", action="store_true", help="print the decisions as JSON, one per line, oldest first")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the decisions, oldest first; returns the exit code."""
    decisions, names, mixed = asyncio.run(_read(connection_from(args), args.group, args.last, args.all))
    runs = gather(decisions, every=args.all)[-args.last :]
    if args.json:
        for each in runs:
            print(msgspec.json.encode(each.last).decode())
        if mixed:
            print(f"loadtrim explain: {MIXED_LINE}", file=sys.stderr)
    else:
        print("\n".join(told_lines(args.group, runs, names, mixed, datetime.now().astimezone().tzinfo)))
    return EXIT_DONE


def told_lines(
    group: str, runs: Sequence[RepeatedDecision], names: Mapping[str, str], mixed: bool, zone: tzinfo | None
) -> list[str]:
    """Decisions in words, with what keeps new ones from being made.

    Args:
        group: the group's id.
        runs: oldest first.
        names: member id -> instance.
        mixed: the group is a mixed one now.
        zone: whose clock; None: UTC.
    """
    lines = explain_lines(runs, names, zone)
    if mixed:
        ends = ["", f"These are its last decisions, and old. {MIXED_LINE}"]
        return [*lines, *ends] if runs else [f"{group}: no decisions. {MIXED_LINE}"]
    return lines or [f"{group}: no decisions yet; its leader decides once it has its members' reports"]


def gather(decisions: Sequence[DecisionRecord], every: bool = False) -> list[RepeatedDecision]:
    """Put decisions in a row together that came to the same (outcome, replicas, moves, victims and manual override).

    Args:
        decisions: oldest first.
        every: leave each by itself.
    """
    runs: list[RepeatedDecision] = []
    for decision in decisions:
        if runs and not every and _same(runs[-1].last, decision):
            runs[-1] = RepeatedDecision(runs[-1].first, decision, runs[-1].count + 1)
        else:
            runs.append(RepeatedDecision(decision, decision, 1))
    return runs


def explain_lines(runs: Sequence[RepeatedDecision], names: Mapping[str, str], zone: tzinfo | None) -> list[str]:
    """Decisions in words, with those that repeat each other as one.

    Args:
        runs: oldest first.
        names: member id -> instance.
        zone: whose clock; None: UTC.
    """
    lines: list[str] = []
    for each in runs:
        shown = decision_lines(each.last, names, zone) if zone else decision_lines(each.last, names)
        if each.count > 1:
            since = time_of_day(each.first.at, zone) if zone else time_of_day(each.first.at)
            shown.append(f"  the same {each.count} times since {since}")
        lines += [*([""] if lines else []), *shown]
    return lines


async def _read(
    connection: Connection, group: str, last: int, every: bool
) -> tuple[list[DecisionRecord], dict[str, str], bool]:
    view = GroupObserver(group)
    async with ControlTopic(connection, group) as topic:
        decisions = await topic.decisions(last if every else last * DECISIONS_PER_RUN)
        recent = await topic.recent()
    for record, at in [*recent.coordination, *recent.telemetry]:
        view.apply(record, at)
    state = view.state(time.time())
    return decisions, state.names, state.mixed


def _same(one: DecisionRecord, other: DecisionRecord) -> bool:
    return _substance(one) == _substance(other)


def _substance(decision: DecisionRecord) -> tuple[object, ...]:
    manual_override = decision.manual_override
    return (
        decision.outcome,
        decision.member,
        decision.mode,
        decision.replicas_actual,
        decision.replicas_wanted,
        [(move.topic, move.partition, move.source, move.target) for move in decision.moves],
        decision.victims,
        manual_override and (manual_override.action, manual_override.replicas),
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LAST_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LAST_MAX}")
    return int(text)
