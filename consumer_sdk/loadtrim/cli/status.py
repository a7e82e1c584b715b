"""``loadtrim status GROUP``: the group as it is, with its true owners."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.observer.group import GroupObserver, ObservedGroup

from .text import status_lines

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "read_state", "run"]


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``status`` to the command line."""
    parser = subparsers.add_parser(
        "status",
        help="show a group: members, true owners, load, lag, brake",
        description="Shows a group as its control topic tells it: members, true owners (Kafka's own tools show the "
        "base assignment, before handovers), load against capacity, records in time, brake and last decision.",
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
    parser.add_argument("--partitions", action="store_true", help="a line for every partition too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the group's state; returns the exit code."""
    state = asyncio.run(read_state(connection_from(args), args.group))
    if args.json:
        print(msgspec.json.encode(state).decode())
    else:
        print("\n".join(status_lines(state, partitions=args.partitions)))
    return EXIT_DONE


async def read_state(connection: Connection, group: str) -> ObservedGroup:
    """The group's state now, from its control topic.

    Raises:
        CommandError: the cluster cannot be reached, or the group has no control topic.
    """
    view = GroupObserver(group)
    async with ControlTopic(connection, group) as topic:
        recent = await topic.recent()
    for record, at in [*recent.coordination, *recent.telemetry]:
        view.apply(record, at)
    return view.state(time.time())
