"""Recorded loads, which are not part of the project: where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DATA_VARIABLE", "data_file", "not_here"]

DATA_VARIABLE = "LOADTRIM_DATA"
_PROJECT = Path(__file__).resolve().parents[1]


def data_file(name: str) -> Path | None:
    """A recorded load: in ``LOADTRIM_DATA``, else in ``../shared/data`` beside the project; None: not there."""
    path = Path(os.environ.get(DATA_VARIABLE) or _PROJECT.parent / "shared" / "data") / name
    return path if path.exists() else None


def not_here(name: str) -> str:
    """Why a stand-in is played, and how to have the recording instead."""
    return f"{name} is not here ({DATA_VARIABLE} names the directory of recorded loads)"
