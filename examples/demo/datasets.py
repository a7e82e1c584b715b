"""Recorded loads, which are not part of the project: their names, where they are looked for, and the one that
demo, papers and comparison all play."""

from __future__ import annotations

import csv
import math
import os
from itertools import pairwise
from pathlib import Path

__all__ = [
    "DATA_VARIABLE",
    "LANDAU_NAME",
    "TAXI_NAME",
    "TRACE_NAME",
    "WORLD_CUP_NAME",
    "data_file",
    "not_here",
    "trace_rates",
]

DATA_VARIABLE = "LOADTRIM_DATA"
LANDAU_NAME = "landau_stream_delta5.json"
TAXI_NAME = "nab_nyc_taxi_30min.csv"
TRACE_NAME = "chindanonda_10min_per_second.csv"
WORLD_CUP_NAME = "worldcup98_per_minute.csv.gz"
TRACE_KNOTS = ((0, 0), (125, 200), (212, 152), (300, 275), (387, 155), (475, 350), (600, 0))
"""Where the recorded trace turns: (time in s, records/s). In between it runs like a cosine."""
_PROJECT = Path(__file__).resolve().parents[2]


def data_file(name: str) -> Path | None:
    """A recorded load: in ``LOADTRIM_DATA``, else in ``../shared/data`` beside the project; None: not there."""
    path = Path(os.environ.get(DATA_VARIABLE) or _PROJECT.parent / "shared" / "data") / name
    return path if path.exists() else None


def not_here(name: str) -> str:
    """Why a stand-in is played, and how to have the recording instead."""
    return f"{name} is not here ({DATA_VARIABLE} names the directory of recorded loads)"


def trace_rates(path: Path | None) -> list[float]:
    """Records/s of each second of the 10-minute trace, not rounded.

    Args:
        path: the recording; None: three humps that rise and fall as the recorded ones do are made instead.
    """
    if path is None:
        return [_between_knots(second + 0.5) for second in range(TRACE_KNOTS[-1][0])]
    with path.open(newline="") as file:
        return [float(row[1]) for row in csv.reader(file)]


def _between_knots(second: float) -> float:
    """Half a cosine from knot to knot."""
    for (begin, low), (end, high) in pairwise(TRACE_KNOTS):
        if begin <= second <= end:
            way = (1.0 - math.cos(math.pi * (second - begin) / (end - begin))) / 2.0
            return low + (high - low) * way
    raise ValueError(f"second {second} lies beyond the last knot, {TRACE_KNOTS[-1][0]}")
