"""Flags that several commands have, and how their values are read."""

from __future__ import annotations

import argparse
import datetime
import math
import os
import zoneinfo

from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.wire.ranges import STARTUP_SECONDS_MAX

__all__ = [
    "add_calendar",
    "count",
    "day",
    "days_kept",
    "directory",
    "group_id",
    "pair",
    "period",
    "positive",
    "share",
    "startup",
]

BUCKET_MINUTES = (5, 10, 15, 20, 30, 60)
WEEKS_MAX = 52
DAYS_MAX = 36_500
"""A century. There are not many more days that have a date."""
SHARE_MIN = 0.5
"""As the setting's own (``Share`` in :mod:`loadtrim_agent.common.settings`)."""
PERIOD_SECONDS_MIN = 0.001
"""Spark counts the time between two batches in milliseconds."""


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
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: a number above 0")
    return value


def period(text: str) -> float:
    """Seconds from one batch to the next."""
    value = positive(text)
    if value < PERIOD_SECONDS_MIN:
        raise argparse.ArgumentTypeError(f"{text}: {PERIOD_SECONDS_MIN} s or more")
    return value


def share(text: str) -> float:
    """A share of records that an objective can ask for."""
    value = _number(text)
    if not SHARE_MIN <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: a share of at least {SHARE_MIN} and below 1, such as 0.999")
    return value


def startup(text: str) -> float:
    """Seconds that a replica takes to start."""
    value = _number(text)
    if not 0 <= value <= STARTUP_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 0 to {STARTUP_SECONDS_MAX:.0f} seconds")
    return value


def group_id(text: str) -> str:
    """The id of a consumer group."""
    if not text:
        raise argparse.ArgumentTypeError("no group has an empty id")
    return text


def directory(text: str) -> str:
    """A directory or the URL of one."""
    if not text.strip("/"):
        raise argparse.ArgumentTypeError(f"{text!r}: a directory below the root, or the URL of one")
    return text


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on")
    return int(text)


def days_kept(text: str) -> int:
    """Read how many days back a history reaches."""
    days = count(text)
    if days > DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 1 to {DAYS_MAX} days")
    return days


def day(text: str) -> datetime.date:
    """An ISO date."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a date like 2026-11-23") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _weeks(text: str) -> int:
    weeks = count(text)
    if weeks > WEEKS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 1 to {WEEKS_MAX} weeks")
    return weeks


def _zone(text: str) -> str:
    try:
        return zoneinfo.ZoneInfo(text).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time zone of this machine's; such as Europe/Berlin"
        ) from error
