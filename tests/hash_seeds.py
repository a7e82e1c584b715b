"""Runs a script twice, with two seeds of Python's hashing: no set's or dict's order may reach an answer."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["same_under_two_hash_seeds"]


def same_under_two_hash_seeds(script: str) -> str:
    """What the script prints, which is the same under both seeds."""
    first, second = (_printed(script, seed) for seed in ("1", "2"))
    assert first == second
    return first


def _printed(script: str, seed: str) -> str:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
