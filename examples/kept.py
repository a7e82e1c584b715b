"""What results of long runs are kept with: a digest of the code that made them, so that a run that was cut off goes on,
the machine that they were made on, and what its host took from it meanwhile."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Collection
from pathlib import Path

import loadtrim
import loadtrim_agent.core

__all__ = ["code_digest", "machine", "stolen_seconds"]


def code_digest(*further: Path, without: Collection[str] = (), beside: str = "") -> str:
    """Of everything that a simulated run depends on.

    Args:
        further: more files.
        without: names of files that it does not depend on.
        beside: what else it depends on.
    """
    core, sdk = Path(loadtrim_agent.core.__file__).parent, Path(loadtrim.__file__).parent
    told = hashlib.sha256(beside.encode())
    for path in sorted([*core.glob("plan/**/*.py"), core / "slicing.py", *sdk.glob("simulate/*.py"), *further]):
        if path.name not in without:
            told.update(path.read_bytes())
    return told.hexdigest()[:12]


def machine() -> str:
    """Processor, cores, system and Python in a line."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores, {model}, {system}, Python {platform.python_version()}"


def stolen_seconds() -> float:
    """CPU seconds since its start that this machine wanted and its host gave to others; 0 where that is not told."""
    try:
        # "cpu  user nice system idle iowait irq softirq steal ...", see proc_stat(5).
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
