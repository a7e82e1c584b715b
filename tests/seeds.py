"""``python -m seeds sim|whole [--seeds N] [--first SEED] [--minutes M] [--jobs N] [--json]``: plays many seeds.

``sim`` is the simulation of the pure machine, ``whole`` that of the whole product. Each seed that violates something is
named with the command that replays it. Exit codes: 0 nothing was violated, 1 something was, 2 wrong use.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import itertools
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

WORKER_BATCHES = {"sim": 10, "whole": 40}
"""Batches after which a worker is replaced: what a killed program leaves behind stays in memory."""
BATCH_SECONDS = 600.0
"""A batch that takes more processor time is stuck: its worker prints where, and ends the run. Beside other work a batch
may well wait for as long without any."""
PROGRESS_SECONDS = 10.0
HASH_SEED = "PYTHONHASHSEED"
COLLECT_AFTER = 50_000, 20, 50
"""Allocations of the youngest generation, and collections of the others: with Python's own a quarter of the time goes
into looking through a world that is still in use."""
AT_ONCE = {"sim": 50, "whole": 1}
"""Seeds that a worker takes at a time: a second or so of work. Before it is replaced it waits for the others' last."""


@dataclass(slots=True)
class Tally:
    """What some seeds came to."""

    runs: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    records: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """sim: what the world counts; whole: "fault, phase that it met"."""

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.virtual_seconds += other.virtual_seconds
        self.cpu_seconds += other.cpu_seconds
        self.records += other.records
        self.failures.update(other.failures)
        self.counts.update(other.counts)


Play = Callable[[int, Tally], None]
"""Plays a seed and adds what it came to."""


def play(kind: str, first: int, count: int) -> Tally:
    """Play seeds in this process."""
    logging.disable(logging.CRITICAL)
    faulthandler.register(signal.SIGPROF, chain=True)  # Prints, and ends the process as the signal does by itself.
    signal.setitimer(signal.ITIMER_PROF, BATCH_SECONDS)
    tally = Tally()
    began = time.process_time()
    play_one = _PLAY[kind]()
    gc.freeze()  # What is imported stays.
    gc.set_threshold(*COLLECT_AFTER)
    for seed in range(first, first + count):
        tally.runs += 1
        try:
            play_one(seed, tally)
        except Exception as error:
            tally.failures[seed] = f"{type(error).__name__}: {error}"
    tally.cpu_seconds = time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return tally


def _sim() -> Play:
    from sim.chaos import simulate

    def play_one(seed: int, tally: Tally) -> None:
        report = simulate(seed)
        tally.records += report.records
        tally.virtual_seconds += report.virtual_seconds
        tally.counts.update(report.counts)

    return play_one


def _whole() -> Play:
    from whole.chaos import simulate

    warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # Processes that are killed leave some.

    def play_one(seed: int, tally: Tally) -> None:
        report = simulate(seed)
        tally.records += report.delivered
        tally.virtual_seconds += report.virtual_seconds
        tally.counts.update({f"{fault}, {phase}": n for (fault, phase), n in report.counts.items()})

    return play_one


_PLAY = {"sim": _sim, "whole": _whole}


def _batches(kind: str, first: int, count: int) -> Iterator[tuple[int, int]]:
    step = AT_ONCE[kind]
    for at in range(first, first + count, step):
        yield at, min(step, first + count - at)


def play_all(kind: str, first: int, count: int, jobs: int, *, minutes: float = float("inf")) -> Tally:
    """Play seeds in ``jobs`` processes, and begin no round of them after ``minutes``; progress goes to stderr."""
    total = Tally()
    told_at = time.monotonic()
    for tally in _tallies(kind, first, count, jobs, told_at + 60 * minutes):
        total.add(tally)
        for seed, error in sorted(tally.failures.items()):
            print(f"seed {seed}: {error}", file=sys.stderr, flush=True)
        if time.monotonic() - told_at > PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(f"{total.runs} of {count} seeds, {len(total.failures)} violated", file=sys.stderr, flush=True)
    return total


def _tallies(kind: str, first: int, count: int, jobs: int, until: float) -> Iterator[Tally]:
    """Play the batches in order, with new workers for every ``jobs * WORKER_BATCHES`` of them.

    ``ProcessPoolExecutor(max_tasks_per_child=...)`` would do the same and stands still for ever where its last worker
    retires while tasks are queued (CPython issue 115634).
    """
    spawn = multiprocessing.get_context("spawn")
    batches = _batches(kind, first, count)
    while time.monotonic() < until and (some := list(itertools.islice(batches, jobs * WORKER_BATCHES[kind]))):
        with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
            for done in as_completed([pool.submit(play, kind, at, size) for at, size in some]):
                yield done.result()


def table(kind: str, first: int, total: Tally, seconds: float) -> str:
    """Return the outcome for people."""
    per_minute = 60 * total.runs / max(total.cpu_seconds, 1e-9)
    lines = [
        f"{kind}: {total.runs:,} seeds from {first} on, {len(total.failures)} violated",
        f"{total.virtual_seconds / 3600:,.1f} h of virtual time, {total.records:,} records delivered",
        f"{seconds:,.0f} s by the clock, {per_minute:,.0f} runs a minute of a core",
        "",
    ]
    if kind == "whole":
        lines += _coverage(total.counts)
    else:
        lines += [f"{name:<40} {n:>12,}" for name, n in sorted(total.counts.items())]
    command = f"{HASH_SEED}={os.environ.get(HASH_SEED, '0')} PYTHONPATH=agent:consumer_sdk:tests python -m {kind}"
    for seed, error in sorted(total.failures.items()):
        lines += ["", f"seed {seed}: {error}", f"  replay: {command} {seed}"]
    return "\n".join(lines)


def _coverage(counts: Counter[str]) -> list[str]:
    """How often each fault met a member in each phase."""
    met = {tuple(name.split(", ")): n for name, n in counts.items()}
    phases = sorted({phase for _, phase in met})
    lines = [f"{'fault':<14}" + "".join(f"{phase:>11}" for phase in phases)]
    lines += [
        f"{fault:<14}" + "".join(f"{met.get((fault, phase), 0):>11,}" for phase in phases)
        for fault in sorted({fault for fault, _ in met})
    ]
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m seeds", description=__doc__)
    parser.add_argument("kind", choices=sorted(AT_ONCE))
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one (default: %(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        metavar="M",
        help="begin no more rounds (of some hundred) after so long",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args(arguments)
    os.environ.setdefault(HASH_SEED, "0")  # For the workers: aiokafka's own consumer looks through sets of partitions.
    began = time.monotonic()
    total = play_all(options.kind, options.first, options.seeds, options.jobs, minutes=options.minutes)
    if options.json:
        rows = {"first": options.first, "runs": total.runs, "violated": total.failures, "counts": dict(total.counts)}
        print(json.dumps(rows, sort_keys=True))
    else:
        print(table(options.kind, options.first, total, time.monotonic() - began))
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
