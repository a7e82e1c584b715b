"""The run cache keeps results of long runs that may be cut off, a line each: what was played is not played again.

Here are also the processes of such runs, the machine that they ran on, and what its host took from it meanwhile.
:mod:`benchmarks.behaviour` makes the keys.
"""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

__all__ = ["appending", "end_with_parent", "kept_results", "machine", "play_each", "read_results", "stolen_seconds"]


class Coded(Protocol):
    """A result that tells by what code it was made."""

    @property
    def code(self) -> str: ...


J = TypeVar("J")
T = TypeVar("T")
C = TypeVar("C", bound=Coded)


@contextmanager
def appending(path: Path) -> Iterator[Callable[[Any], None]]:
    """Give a function that appends a result, in a line of its own and at once; what was cut off ends before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if file.tell():
            file.write(b"\n")

        def append(result: Any) -> None:
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()

        yield append


def read_results(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the results of a file, without lines that were cut off; no file: none."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError:
            continue


def kept_results(
    path: Path, kind: type[C], jobs: Iterable[J], job_of: Callable[[C], J], code_of: Callable[[J], str]
) -> dict[J, C]:
    """Return the results of a file by job: of these jobs, and made as they would be made now; of several the last.

    Args:
        path: of the file.
        kind: of its results.
        jobs: those that count.
        job_of: returns the job of a result.
        code_of: returns the digest of the code that a job would be played by now.
    """
    wanted = set(jobs)
    return {
        job: result
        for result in read_results(path, kind)
        if (job := job_of(result)) in wanted and result.code == code_of(job)
    }


def play_each(
    play: Callable[[J], T], jobs: Iterable[J], path: Path, processes: int, seconds: float = math.inf
) -> Iterator[tuple[T, float]]:
    """Play jobs in other processes, and yield each result with the seconds since the start, as it is finished and kept.

    Args:
        play: a function of a module, for other processes import it.
        jobs: in the order in which they are begun.
        path: where results are appended, a line each.
        processes: so many at once.
        seconds: nothing new is begun after so long.
    """
    waiting, began = iter(jobs), time.monotonic()
    running: set[Future[T]] = set()
    with appending(path) as append, ProcessPoolExecutor(processes, initializer=end_with_parent) as pool:
        while True:
            # One more than there are processes: the next one is there when a process becomes free.
            while len(running) <= processes and time.monotonic() - began < seconds:
                if (job := next(waiting, None)) is None:
                    break
                running.add(pool.submit(play, job))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                append(result)
                yield result, time.monotonic() - began


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
