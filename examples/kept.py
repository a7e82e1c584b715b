"""Results of long runs, kept line by line with a digest of the code that made them: a run that was cut off goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import loadtrim
import loadtrim_agent.core

__all__ = ["code_digest"]


def code_digest(*further: Path, without: Collection[str] = ()) -> str:
    """Of everything that a simulated run depends on.

    Args:
        further: more files.
        without: names of files that it does not depend on.
    """
    core, sdk = Path(loadtrim_agent.core.__file__).parent, Path(loadtrim.__file__).parent
    told = hashlib.sha256()
    for path in sorted([*core.glob("plan/**/*.py"), core / "slicing.py", *sdk.glob("simulate/*.py"), *further]):
        if path.name not in without:
            told.update(path.read_bytes())
    return told.hexdigest()[:12]
