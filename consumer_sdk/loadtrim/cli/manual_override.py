"""``loadtrim hold``, ``resume`` and ``scale``: the manual override, for times when people know better."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE, UsageError
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.observer.follow import read_group
from loadtrim.observer.group import COMMAND_LINE_MEMBER, ObservedGroup
from loadtrim_agent.observability.text import counted
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.ranges import REPLICAS_MAX
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .text import MIXED_LINE

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]

DECISION_SECONDS_MAX = 60.0
"""A decision is not looked for further back. Chosen: leaders decide every second unless told otherwise."""

NOBODY = "Nobody is in the group now: it counts as soon as a member starts."

_WORDS = {
    "hold": "no plans are made for a group until it is resumed",
    "resume": "plans are made again",
    "scale": "a group has this many replicas, whatever its load, until it is resumed",
}


def add_parser(subparsers: SubParsers) -> None:
    """Add the commands ``hold``, ``resume`` and ``scale`` to the command line."""
    for action, words in _WORDS.items():
        parser = subparsers.add_parser(action, help=words, description=f"After this command {words}.")
        parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
        if action == "scale":
            parser.add_argument("replicas", metavar="N", type=_replicas, help="how many replicas, at least 1")
            parser.add_argument(
                "--force", action="store_true",
                help="also more than LOADTRIM_MAX_REPLICAS or the partitions, or fewer than LOADTRIM_MIN_REPLICAS",
            )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print what was written as JSON")
        add_arguments(parser)
        parser.set_defaults(run=run, action=action, replicas=None, force=False)


def run(args: argparse.Namespace) -> int:
    """Write the override and say what that does; returns the exit code."""
    connection = connection_from(args)
    manual_override = ManualOverrideRecord(
        group=args.group,
        member=COMMAND_LINE_MEMBER,
        at=time.time(),
        action=args.action,
        replicas=args.replicas,
        forced=args.force,
    )
    alive, state = asyncio.run(_write(connection, manual_override))
    if args.json:
        print(msgspec.json.encode(manual_override).decode())
        if not alive:  # on standard error, because standard output is the record as it was written
            print(f"loadtrim {args.action}: {NOBODY}", file=sys.stderr)
    else:
        print(_told(manual_override, connection, alive))
    for warning in (too_many(manual_override, state.decision), without_effect(manual_override, state) if alive else ""):
        if warning:
            print(f"loadtrim {args.action}: {warning}", file=sys.stderr)
    return EXIT_DONE


async def _write(connection: Connection, manual_override: ManualOverrideRecord) -> tuple[bool, ObservedGroup]:
    """Write the override; return whether there are members to heed it, and the group as it was before.

    Raises:
        UsageError: it is above the maximum that its leader has told, and is not forced.
    """
    async with ControlTopic(connection, manual_override.group) as topic:
        view, now = await read_group(topic, DECISION_SECONDS_MAX, scan_seconds=0.0)
        state = view.state(now)
        refuse_above_maximum(manual_override, state.decision)
        await topic.write_manual_override(manual_override)
    return view.heard_lately(now), state


def refuse_above_maximum(manual_override: ManualOverrideRecord, decision: DecisionRecord | None) -> None:
    """Refuse more replicas than the settings of the group's leader allow.

    Raises:
        UsageError: that is so, and the override is not forced.
    """
    most = decision.replicas_max if decision is not None else None
    replicas = manual_override.replicas
    if most is not None and replicas is not None and replicas > most and not manual_override.forced:
        raise UsageError(
            f"{replicas} replicas are more than {manual_override.group} may have (LOADTRIM_MAX_REPLICAS={most}).",
            "Nothing was written, and the group goes on as before.",
            f"Ask for {most} at most, or say --force.",
        )


def too_many(manual_override: ManualOverrideRecord, decision: DecisionRecord | None) -> str:
    """Return a warning of more replicas than partitions; empty where there is none."""
    partitions = decision.partition_count if decision is not None else 0
    replicas = manual_override.replicas or 0
    if not partitions or replicas <= partitions:
        return ""
    warning = f"{replicas} replicas are more than the group's {counted(partitions, 'partition')}"
    if manual_override.forced or (decision is not None and decision.replicas_max is not None):
        return f"{warning}: {replicas - partitions} or more will own nothing."
    return f"{warning}, and some would own nothing: {partitions} are asked for at most, all of them with --force."


def without_effect(manual_override: ManualOverrideRecord, state: ObservedGroup) -> str:
    """Return why nothing comes of an override now, with what changes that; empty where something does.

    Args:
        manual_override: what was written.
        state: the group as it was before. There are members to heed the override.
    """
    if manual_override.action == "resume":
        return ""
    if state.mixed:
        return f"it takes effect once the group is loadtrim's alone. {MIXED_LINE}"
    decision = state.decision
    if manual_override.action != "scale" or decision is None or decision.scales:
        return ""
    if decision.mode == "shadow":
        return (
            "the group is in shadow mode, so nobody is asked for replicas: its leader says what it would want. "
            "Set LOADTRIM_MODE=active and LOADTRIM_SCALER to have it done."
        )
    return (
        "the group's leader has no scaler (LOADTRIM_SCALER), so nobody is asked for replicas: its decision is advice. "
        "Start or end members by hand, or set a scaler."
    )


def _told(manual_override: ManualOverrideRecord, connection: Connection, alive: bool) -> str:
    undo = connection.command("resume", manual_override.group)
    if manual_override.action == "hold":
        told = (
            f"{manual_override.group} is held: its leader makes no plans, so nothing scales and nothing moves by plan. "
            f"Consuming goes on.\n  Undo it with: {undo}"
        )
    elif manual_override.action == "scale":
        wanted = f"{manual_override.group} is to have {counted(manual_override.replicas or 0, 'replica')}"
        bounds = (
            "" if manual_override.forced else ", within LOADTRIM_MIN_REPLICAS and LOADTRIM_MAX_REPLICAS of its members"
        )
        told = f"{wanted}, whatever its load{bounds}.\n  Undo it with: {undo}"
    else:
        hold = connection.command("hold", manual_override.group)
        told = f"{manual_override.group} is resumed: its leader plans by the load again.\n  Stop that with: {hold}"
    if alive:
        return told
    return f"{told}\n  {NOBODY}"


def _replicas(text: str) -> int:
    if not (text.isdecimal() and len(text) <= len(str(REPLICAS_MAX)) and 1 <= int(text) <= REPLICAS_MAX):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a number of replicas: 1 (a group without members has no leader) to {REPLICAS_MAX}"
        )
    return int(text)
