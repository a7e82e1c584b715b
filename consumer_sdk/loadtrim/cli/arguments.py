"""The types of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["seconds_of_at_least"]

SECONDS_MAX = 86_400.0
"""A day. Chosen: what is longer was meant in another unit."""


def seconds_of_at_least(least: float) -> Callable[[str], float]:
    """Return the type of an argument that is a time, for argparse."""

    def seconds(text: str) -> float:
        try:
            given = float(text)
        except ValueError:
            given = -1.0
        if not least <= given <= SECONDS_MAX:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds: {least:g} to {SECONDS_MAX:g}")
        return given

    return seconds
