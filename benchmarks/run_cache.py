"""Long runs that may be cut off: results a line each, with a digest of the code that made them, so that what was played
is not played again; their processes; the machine that they were made on, and what its host took from it meanwhile."""

from __future__ import annotations

import hashlib
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import loadtrim
import loadtrim_agent

__all__ = ["code_digest", "end_with_parent", "keeping", "machine", "read_kept", "stolen_seconds"]

T = TypeVar("T")
PLAYED = ("common", "wire", "metering", "planning")
"""Rooms of the agent that a simulated run executes."""
NOT_PLAYED = ("baselines.py", "picture.py", "readers.py", "show.py", "tables.py")
"""Files of the simulator that read inputs and show results. A load that was read is told second by second."""


@cache  # what was imported is what runs, whatever becomes of the files meanwhile
def code_digest(*further: Path, without: tuple[str, ...] = (), beside: str = "") -> str:
    """Of everything that a simulated run depends on, as it was when this process first asked.

    Args:
        further: more files.
        without: names of files that it does not depend on.
        beside: what else it depends on.
    """
    agent, sdk = Path(loadtrim_agent.__file__).parent, Path(loadtrim.__file__).parent
    files = [path for room in PLAYED for path in (agent / room).glob("**/*.py")]
    files += sdk.glob("simulate/**/*.py")
    told = hashlib.sha256(beside.encode())
    for path in sorted([*files, *further]):
        if path.name not in (*without, *NOT_PLAYED):
            told.update(path.read_bytes())
    return told.hexdigest()[:12]


@contextmanager
def keeping(path: Path) -> Iterator[Callable[[Any], None]]:
    """Keep results, each in a line of its own as soon as it is there; what was cut off ends before them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if file.tell():
            file.write(b"\n")

        def keep(result: Any) -> None:
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()

        yield keep


def read_kept(path: Path, kind: type[T]) -> Iterator[T]:
    """What is kept there, without lines that were cut off."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError:
            continue


def end_with_parent() -> None:
    """A pool's processes wait for work for ever when the one that began them is killed; these end."""
    parent = parent_process()
    if parent is None:
        return  # this is no process of a pool

    def wait_for_end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_end, daemon=True).start()


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
