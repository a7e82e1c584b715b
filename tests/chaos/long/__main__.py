"""``python -m chaos.long [--minutes M] [--seed N] [--only KIND] [--json] [--directory DIR] [--judge]``

Three brokers, five members as processes with the public SDK, two producers; a schedule of faults drawn ahead from the
seed. Progress goes to stderr, the outcome to stdout. Exit codes: 0 nothing was violated, 1 something was, 2 wrong use.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from demo.journal import clock_ns, read_run
from integration.offsets_topic import read_group

from .cluster import chaos_cluster
from .evidence import Evidence, Notes, Window
from .faults import ALONE, FAULTS
from .judge import Judgement, judge
from .report import as_json, table
from .schedule import Step, drawn
from .world import RECOVERY_SECONDS, SESSION_SECONDS, Limits, World, world

OWNED_AGAIN_SECONDS = SESSION_SECONDS + 1.0
OWNED_AGAIN_MIXED_SECONDS = 2 * SESSION_SECONDS + 1.0
"""I5: the rebalance timeout, twice the session's, and a second."""
PRINTED_STEPS_PER_MINUTE = 6
DEBUG_MINUTES_MAX = 15.0
NOTES = "notes.json"
STUCK_SECONDS = 180.0
"""A step that takes longer is given up: whatever it waits for does not come."""


def judged(directory: Path) -> Judgement:
    """Judge a run from what it left in a directory."""
    notes = msgspec.json.decode(directory.joinpath(NOTES).read_bytes(), type=Notes)
    return judge(Evidence(read_run(directory / "run"), notes))


class Run:
    """One run: the schedule played against a group."""

    def __init__(self, seed: int, minutes: float, kinds: list[str], slack_seconds: float = 0.0) -> None:
        self.seed = seed
        self.slack_seconds = slack_seconds
        self.minutes = minutes
        self._kinds = kinds
        self._began = time.monotonic()

    def steps(self) -> Iterator[Step]:
        return drawn(self.seed, self._kinds, ALONE)

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)

    async def play(self, directory: Path) -> Judgement:
        with chaos_cluster(directory) as cluster:
            self.tell(f"three brokers at {cluster.kafka.bootstrap}; everything is written to {directory}")
            limits = Limits(debug=self.minutes <= DEBUG_MINUTES_MAX)
            async with world(cluster, directory, self.seed, limits) as group:
                self.tell(f"{limits.members} members consume, faults for {self.minutes:g} minutes")
                await self._faults(group)
                self.tell("no more faults: all that was acknowledged is to be done, then everybody leaves")
                if not await group.finish():
                    self.tell("not everything was done in time")
                late = group.late_seconds
            self.tell(f"this process was late by {late:.2f} s at most; load average {os.getloadavg()[0]:.1f}")
            log = await read_group(cluster.kafka.bootstrap, group.group.group)
        notes = Notes(
            log=log,
            windows=group.windows,
            endings=group.endings.found,
            bound_seconds=OWNED_AGAIN_SECONDS + self.slack_seconds,
            bound_mixed_seconds=OWNED_AGAIN_MIXED_SECONDS + self.slack_seconds,
            epoch_offset_ns=time.time_ns() - clock_ns(),
            outputs=group.outputs,
        )
        directory.joinpath(NOTES).write_bytes(msgspec.json.encode(notes))
        return judged(directory)

    async def _faults(self, group: World) -> None:
        until = time.monotonic() + 60 * self.minutes
        for step in self.steps():
            if time.monotonic() >= until:
                return
            await self._step(group, step)
            await asyncio.sleep(step.pause_seconds)

    async def _step(self, group: World, step: Step) -> None:
        windows = [
            Window(kind=kind, begun_ns=clock_ns(), evicts=fault.evicts, fences=fault.fences, mixed=fault.mixed)
            for kind, fault in ((kind, FAULTS[kind]) for kind in step.kinds)
        ]
        group.windows += windows
        harms = [FAULTS[w.kind].harm(group, step.rng(self.seed, w.kind), w) for w in windows]
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                errors = await asyncio.gather(*harms, return_exceptions=True)
        except TimeoutError:
            errors = [TimeoutError(f"not over after {STUCK_SECONDS:.0f} s")] * len(windows)
        for window, error in zip(windows, errors, strict=True):
            window.failed = "" if error is None else repr(error)
        # Where the fault was not played to its end: beyond its window the group is to be ours.
        await group.end_foreign()
        over_ns = clock_ns()
        recovered = await group.until_consumed(over_ns) and await group.until_stable()
        for window in windows:
            window.recovered_ns, window.well = clock_ns(), recovered
        seconds = (clock_ns() - over_ns) / 1e9
        what = " + ".join(f"{w.kind} ({w.detail})" if w.detail else w.kind for w in windows)
        how = f"all well {seconds:.1f} s after" if recovered else f"NOT WELL after {RECOVERY_SECONDS:.0f} s"
        self.tell(f"{step.number:>4}  {what}: {how}{''.join(f'; {w.failed}' for w in windows if w.failed)}")


async def _interruptible(run: Run, directory: Path) -> Judgement:
    """Play a run; SIGTERM ends it as Ctrl-C does, and everything that it has started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run.play(directory)


def _played(seed: int, directory: Path, options: argparse.Namespace) -> Judgement:
    """Print the schedule and play it."""
    # Its own clients meet every fault as well, and say so.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    run = Run(seed, options.minutes, options.only or sorted(FAULTS), options.slack)
    print(f"seed {seed}; the schedule begins:", file=sys.stderr)
    for step in itertools.islice(run.steps(), max(1, round(options.minutes * PRINTED_STEPS_PER_MINUTE))):
        print(step, file=sys.stderr)
    directory.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_interruptible(run, directory))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.long", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule (default: a new one)")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), metavar="KIND", help="these kinds only")
    parser.add_argument("--slack", type=float, default=0.0, help="seconds more for a standstill, on a shared machine")
    parser.add_argument("--directory", type=Path, help="keep journals and logs there (default: kept when violated)")
    parser.add_argument("--judge", action="store_true", help="play nothing, judge the run in the directory again")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args(arguments)
    if options.judge and options.directory is None:
        parser.error("--judge needs --directory: where the run is that is to be judged")
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="loadtrim-chaos-"))
    try:
        found = judged(directory) if options.judge else _played(seed, directory, options)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"interrupted; journals and logs are in {directory}", file=sys.stderr)
        return 130
    only = "".join(f" ONLY={kind!r}" for kind in options.only or ())
    replay = f"make chaos MINUTES={options.minutes:g} SEED={seed}{only}"
    if options.json:
        print(json.dumps(as_json(found, seed=seed, minutes=options.minutes), indent=1))
    else:
        print(table(found, replay))
    if found.ok and options.directory is None:
        shutil.rmtree(directory)
    else:
        print(f"journals and logs: {directory}", file=sys.stderr)
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
