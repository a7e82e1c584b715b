"""Flags that several commands have, and how their values are read."""

from __future__ import annotations

import argparse
import datetime
import os
import zoneinfo

from loadtrim_agent.common.settings import DEFAULTS

__all__ = ["add_calendar", "count", "day", "pair", "positive"]

BUCKET_MINUTES = (5, 10, 15, 20, 30, 60)
WEEKS_MAX = 52


def add_calendar(parser: argparse.ArgumentParser, bucket_minutes: int | None, bucket_default: str) -> None:
    """Whose weeks, how finely told, and how many.

    Args:
        parser: of a command.
        bucket_minutes: where the flag is not given.
        bucket_default: the same in words.
    """
    parser.add_argument("--bucket-minutes", type=int, choices=BUCKET_MINUTES, default=bucket_minutes,
                        help=f"how finely a week is told (default: {bucket_default})")  # fmt: skip
    parser.add_argument("--weeks", type=_weeks, default=6,
                        help=f"how far back to look, 1 to {WEEKS_MAX} (default: %(default)s)")  # fmt: skip
    zone = os.environ.get("LOADTRIM_TIME_ZONE", DEFAULTS.time_zone)
    parser.add_argument("--time-zone", type=_zone, default=zone, metavar="ZONE",
                        help="whose days and weeks the load follows, such as Europe/Berlin "
                        "(default: $LOADTRIM_TIME_ZONE, else UTC)")  # fmt: skip


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=VALUE, such as security.protocol=SSL")
    return name, value


def positive(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a number above 0")
    return value


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on")
    return int(text)


def day(text: str) -> datetime.date:
    """An ISO date."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a date like 2026-11-23") from None


def _weeks(text: str) -> int:
    weeks = int(text)
    if not 1 <= weeks <= WEEKS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 1 to {WEEKS_MAX} weeks")
    return weeks


def _zone(text: str) -> str:
    try:
        return zoneinfo.ZoneInfo(text).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time zone of this machine's; such as Europe/Berlin"
        ) from error
