"""``loadtrim groups``: the groups of a cluster that use loadtrim."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE
from loadtrim.observer.connection import add_arguments, connection_from
from loadtrim.observer.control_topic import groups_of
from loadtrim_agent.observability.text import printable

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``groups`` to the command line."""
    parser = subparsers.add_parser(
        "groups",
        help="list the groups that use loadtrim",
        description="Lists the groups of a cluster that have a control topic of the default name, one a line. One "
        "without members is listed until its control topic is deleted.",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the groups, sorted; returns the exit code."""
    connection = connection_from(args)
    groups = asyncio.run(groups_of(connection))
    if args.json:
        print(msgspec.json.encode(groups).decode())
    elif groups:
        print("\n".join(map(printable, groups)))
    else:
        print(f"No group on {connection.bootstrap} uses loadtrim.")
    return EXIT_DONE
