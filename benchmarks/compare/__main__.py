"""Plays every policy on every load and writes its page below out/comparison: ``make compare``.

A run that was cut off goes on where it ended, and ``--loads``, ``--policies``, ``--startups`` and ``--seconds`` divide
it; ``--seconds 0`` plays nothing and tells how many runs are kept and missing. The page tells of all that is kept.
``--quick`` plays the first minute of everything and writes below ``out/comparison/quick``.

Exit codes: 0 everything was played (targets may be missed: the page says so), 1 something was not played, 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.compare.page import draw, page
from benchmarks.compare.runs import CHOICES, STARTUPS, ComparisonJob, ComparisonResult, grouped, load_kept, play_all
from benchmarks.compare.scenarios import SCENARIOS
from benchmarks.compare.targets import extra_jobs, verdicts

OUT = Path(__file__).resolve().parents[2] / "out" / "comparison"
STARTUPS_FIRST = (1.0, 10.0, 0.0, 60.0)
"""What matters most is played first."""


def jobs_of(
    scenes: Sequence[str],
    choices: Sequence[str],
    quick: bool,
    extra: bool,
    startups: Sequence[float] = STARTUPS_FIRST,
) -> list[ComparisonJob]:
    """Everything that is to be played; ``startups`` are those of the tables."""
    jobs = [
        ComparisonJob(scene=scene, choice=choice.name, startup_seconds=startup, quick=quick)
        for startup in STARTUPS_FIRST
        if startup in startups
        for scene in scenes
        for choice in CHOICES
        if not choices or choice.name in choices
    ]
    return [*jobs, *(extra_jobs(quick) if extra else [])]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="Every policy on every load.")
    parser.add_argument("--quick", action="store_true", help="the first minute of each load; written below out/")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="write there (out/comparison)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON, one array")
    parser.add_argument("--loads", default=",".join(SCENARIOS), metavar="A,B", help="only these (all)")
    parser.add_argument("--policies", default="", metavar="A;B", help="only these rows (all)")
    parser.add_argument("--startups", default="", metavar="A,B", help="only these start-up times of the tables (all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (all cores)")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="S", help="begin nothing new after this")
    parser.add_argument(
        "--no-targets", action="store_true", help="leave out the runs beside the tables: targets', further seeds'"
    )
    parser.add_argument("--only-targets", action="store_true", help="nothing but those")
    given = parser.parse_args(arguments)
    given.loads = [name for name in given.loads.split(",") if name]
    given.policies = [name for name in given.policies.split(";") if name]
    startups = [name for name in given.startups.split(",") if name]
    for kind, names, known in (
        ("load", given.loads, list(SCENARIOS)),
        ("policy", given.policies, [choice.name for choice in CHOICES]),
        ("start-up time", startups, [f"{startup:g}" for startup in STARTUPS]),
    ):
        for name in names:
            if name not in known:
                parser.error(f"there is no {kind} {name!r}, so nothing was played; choose from: {'; '.join(known)}")
    given.startups = [float(name) for name in startups] or list(STARTUPS_FIRST)
    if given.processes < 1:
        parser.error(f"--processes is {given.processes}; at least one is needed")
    return given


def write(results: Mapping[str, ComparisonResult], missing: int, directory: Path, quick: bool) -> None:
    """The page and its pictures."""
    scenes, groups = list(SCENARIOS), grouped(results)
    for scene in scenes:
        if any((scene, startup) in groups for startup in STARTUPS):
            draw(directory / f"{scene}.png", groups, scene)
    command = "make compare" if not quick else "python -m benchmarks.compare --quick"
    text = page(results, scenes, verdicts(results, scenes, quick), command, missing, quick)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "comparison.md").write_text(text)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, write, tell."""
    given = _parsed(arguments)
    scenes = [] if given.only_targets else given.loads
    jobs = jobs_of(scenes, given.policies, given.quick, not given.no_targets, given.startups)
    out: Path = given.out
    path = out / ("quick.jsonl" if given.quick else "runs.jsonl")
    results = play_all(jobs, path, given.processes, given.seconds, _say)
    # The page tells of everything that is kept, whatever was asked for this time.
    everything = jobs_of(list(SCENARIOS), [], given.quick, extra=True)
    known = load_kept(path, everything)
    write(known, len(everything) - len(known), out / "quick" if given.quick else out, given.quick)
    if given.json:
        print(msgspec.json.encode([results[job.key] for job in jobs if job.key in results]).decode())
    cpu = sum(each.cpu_seconds for each in results.values())
    _say(f"{len(results)} of {len(jobs)} runs, {cpu:.0f} s of CPU")
    return 0 if len(results) == len(jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
