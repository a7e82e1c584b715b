"""``loadtrim hold``, ``resume`` and ``scale``: the manual override, for times when people know better."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.observer.group import COMMAND_LINE_MEMBER, SILENT_SECONDS, GroupObserver
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.ranges import REPLICAS_MAX

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]

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
        parser.add_argument("--json", action="store_true", help="print what was written as JSON")
        add_arguments(parser)
        parser.set_defaults(run=run, action=action, replicas=None)


def run(args: argparse.Namespace) -> int:
    """Write the override and say what that does; returns the exit code."""
    connection = connection_from(args)
    manual_override = ManualOverrideRecord(
        group=args.group,
        member=COMMAND_LINE_MEMBER,
        at=time.time(),
        action=args.action,
        replicas=args.replicas,
    )
    alive = asyncio.run(_write(connection, manual_override))
    if args.json:
        print(msgspec.json.encode(manual_override).decode())
    else:
        print(_told(manual_override, connection, alive))
    return EXIT_DONE


async def _write(connection: Connection, manual_override: ManualOverrideRecord) -> bool:
    """Return whether there are members to heed it."""
    view = GroupObserver(manual_override.group)
    async with ControlTopic(connection, manual_override.group) as topic:
        await topic.write_manual_override(manual_override)
        recent = await topic.recent(SILENT_SECONDS, scan_seconds=0.0)
    for record, at in [*recent.coordination, *recent.telemetry]:
        view.apply(record, at)
    return view.heard_lately(time.time())


def _told(manual_override: ManualOverrideRecord, connection: Connection, alive: bool) -> str:
    undo = connection.command("resume", manual_override.group)
    if manual_override.action == "hold":
        told = (
            f"{manual_override.group} is held: its leader makes no plans, so nothing scales and nothing moves by plan. "
            f"Consuming goes on.\n  Undo it with: {undo}"
        )
    elif manual_override.action == "scale":
        wanted = f"{manual_override.group} is to have {manual_override.replicas} replicas"
        told = (
            f"{wanted}, whatever its load, within LOADTRIM_MIN_REPLICAS and LOADTRIM_MAX_REPLICAS of its members.\n"
            f"  Undo it with: {undo}"
        )
    else:
        hold = connection.command("hold", manual_override.group)
        told = f"{manual_override.group} is resumed: its leader plans by the load again.\n  Stop that with: {hold}"
    if alive:
        return told
    return f"{told}\n  Nobody is in the group now: it counts as soon as a member starts."


def _replicas(text: str) -> int:
    if not (text.isdecimal() and len(text) <= len(str(REPLICAS_MAX)) and 1 <= int(text) <= REPLICAS_MAX):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a number of replicas: 1 (a group without members has no leader) to {REPLICAS_MAX}"
        )
    return int(text)
