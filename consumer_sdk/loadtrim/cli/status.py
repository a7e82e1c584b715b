"""``loadtrim status GROUP``: the group as it is, with its true owners."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE, UsageError
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic
from loadtrim.observer.follow import following, read_group
from loadtrim.observer.group import ObservedGroup

from .arguments import seconds_of_at_least
from .text import status_lines

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["Screen", "add_parser", "read_state", "run", "watch"]

EVERY_SECONDS = 2.0
EVERY_SECONDS_MIN = 0.1
CLEAR = "\x1b[H\x1b[2J"
"""Control characters: go to the top of a terminal, and wipe it."""


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``status`` to the command line."""
    parser = subparsers.add_parser(
        "status",
        help="show a group: members, true owners, load, lag, brake",
        description="Shows a group as its control topic tells it: members, true owners (Kafka's own tools show the "
        "base assignment, before handoffs), load against capacity, records in time, brake and last decision.",
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
    parser.add_argument("--partitions", action="store_true", help="a line for every partition too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument(
        "--every", type=seconds_of_at_least(EVERY_SECONDS_MIN), metavar="S",
        help=f"with --watch: every S seconds (default: {EVERY_SECONDS:g})",
    )  # fmt: skip
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the group's state; returns the exit code."""
    if args.every is not None and not args.watch:
        raise UsageError("--every was given without --watch.", "Nothing was done.", "Add --watch, or leave it out.")
    connection, screen = connection_from(args), Screen(as_json=args.json, partitions=args.partitions)
    if not args.watch:
        screen.show(asyncio.run(read_state(connection, args.group)))
        return EXIT_DONE
    try:
        asyncio.run(watch(connection, args.group, EVERY_SECONDS if args.every is None else args.every, screen))
    except KeyboardInterrupt:
        print(file=sys.stderr)  # The prompt of a shell begins a line.
    return EXIT_DONE


class Screen:
    """The place where a group's state is printed: a terminal is wiped before it is shown again.

    Args:
        as_json: one line of JSON for each state.
        partitions: a line for every partition too.
    """

    def __init__(self, *, as_json: bool, partitions: bool) -> None:
        self._as_json = as_json
        self._partitions = partitions
        self._shown = False
        self._trouble = ""

    def show(self, state: ObservedGroup, trouble: str = "") -> None:
        """Print a state.

        Args:
            state: as it was seen last.
            trouble: the reason for which it may be old.
        """
        if self._as_json:
            if trouble != self._trouble and trouble:
                print(f"loadtrim: {trouble}", file=sys.stderr, flush=True)
            self._trouble = trouble
            if not trouble:
                print(msgspec.json.encode(state).decode(), flush=True)
            return
        lines = status_lines(state, partitions=self._partitions)
        if trouble:
            lines.append(f"What is shown may be old, and it is tried again: {trouble}")
        again = (CLEAR if sys.stdout.isatty() else "\n") if self._shown else ""
        self._shown = True
        print(again + "\n".join(lines), flush=True)


async def watch(connection: Connection, group: str, every_seconds: float, screen: Screen) -> None:
    """Show a group's state again and again, until cancelled. Trouble with the cluster is waited out.

    Raises:
        CommandError: the cluster cannot be reached at the start, or the group has no control topic.
    """
    state = await read_state(connection, group)
    screen.show(state)
    async with following(connection, group) as follower:
        while True:
            await asyncio.sleep(every_seconds)
            if not follower.trouble:
                state = follower.state()
            screen.show(state, follower.trouble)


async def read_state(connection: Connection, group: str) -> ObservedGroup:
    """The group's state now, from its control topic.

    Raises:
        CommandError: the cluster cannot be reached, or the group has no control topic.
    """
    async with ControlTopic(connection, group) as topic:
        view, now = await read_group(topic)
    return view.state(now)
