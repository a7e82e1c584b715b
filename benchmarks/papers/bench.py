"""What every experiment is given: how much to play, processes, a place for pictures; and its command line."""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmarks.behaviour import shape, source_digest
from benchmarks.papers.table import PaperTables, Plot, text
from benchmarks.run_cache import end_with_parent

__all__ = ["Experiment", "ExperimentContext", "code_of", "context", "main", "measured"]

T = TypeVar("T")
R = TypeVar("R")
PROJECT = Path(__file__).resolve().parents[2]
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#eceef2",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


@dataclass(frozen=True, slots=True)
class ExperimentContext:
    """Of one run."""

    quick: bool
    """A few minutes' worth becomes seconds: shorter loads, fewer seeds; the figures then mean less."""
    pool: ProcessPoolExecutor | None
    folder: Path | None
    """Where pictures go; None: none are drawn."""
    plots: list[Plot] = field(default_factory=list)
    only: str = ""
    """Tables whose titles do not contain it (``=TITLE``: are not it) are left out, with the runs that only they need;
    and all pictures."""

    spent: list[float] = field(default_factory=list)
    """CPU seconds that runs took which are not played again."""

    def wants(self, title: str) -> bool:
        """Is this table to be made?"""
        return title == self.only[1:] if self.only.startswith("=") else self.only in title

    def map(self, function: Callable[[T], R], jobs: Iterable[T]) -> list[R]:
        """Results in the order of the jobs; the function and the jobs must be picklable."""
        return list(self.each(function, jobs))

    def each(self, function: Callable[[T], R], jobs: Iterable[T]) -> Iterator[R]:
        """The same, one by one as they are there."""
        listed = list(jobs)
        results = map(function, listed) if self.pool is None else self.pool.map(function, listed)
        for done, result in enumerate(results, 1):
            yield _told(result, done, len(listed))

    def draw(self, file: str, caption: str, paint: Callable[[Any], None], size: tuple[float, float] = (8, 4)) -> None:
        """Draw a picture: ``paint`` is given the figure."""
        if self.folder is None or self.only:
            return
        import matplotlib as mpl
        from matplotlib.figure import Figure

        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=size, dpi=90, layout="constrained")
            paint(figure)
            self.folder.mkdir(parents=True, exist_ok=True)
            # No software version and no date in the file: the same run makes the same bytes.
            figure.savefig(self.folder / file, metadata={"Software": None})
        self.plots.append(Plot(file=file, caption=f"QUICK. {caption}" if self.quick else caption))


def _told(result: R, done: int, jobs: int) -> R:
    if sys.stderr.isatty():
        print(f"\r{done} of {jobs} \x1b[K", end="\n" if done == jobs else "", file=sys.stderr, flush=True)
    return result


@dataclass(frozen=True, slots=True)
class Experiment:
    """One paper."""

    name: str
    run: Callable[[ExperimentContext], PaperTables]
    quick: str
    """What a quick run plays of it, in sentences, and whether that can be compared: said above its figures."""


@contextmanager
def context(quick: bool, processes: int, folder: Path | None, only: str = "") -> Iterator[ExperimentContext]:
    """A context with its processes, which are ended with it."""
    if processes <= 1:
        yield ExperimentContext(quick, None, folder, only=only)
        return
    with ProcessPoolExecutor(processes, initializer=end_with_parent) as pool:
        yield ExperimentContext(quick, pool, folder, only=only)


def measured(experiment: Experiment, quick: bool, processes: int, folder: Path | None, only: str = "") -> PaperTables:
    """Run it; the sheet with its pictures, the command that makes it again, and the CPU seconds it took."""
    before, code = _cpu_seconds(), code_of(experiment.name)
    with context(quick, processes, folder, only) as given:
        sheet = experiment.run(given)
        plots, kept = tuple(given.plots), sum(given.spent)
    command = f"python -m benchmarks.papers {experiment.name}{' --quick' if quick else ''}"
    return msgspec.structs.replace(
        sheet,
        setting=(f"QUICK: {experiment.quick}", *sheet.setting) if quick else sheet.setting,
        plots=plots,
        command=command,
        quick=quick,
        code=code,
        seconds=round(_cpu_seconds() - before + kept, 1),
    )


def code_of(name: str) -> str:
    """Return the digest of what an experiment's figures depend on: its modules, and all that a simulated run executes.

    Our own policy is among what is played, so each change of a source counts.
    """
    here = Path(__file__).parent
    common = ("own_policy.py", "runner.py", "traces.py")
    modules = shape(*sorted(here.glob(f"{name}*.py")), *(here / file for file in common))
    return f"{modules[:8]}{source_digest()[:8]}"


def _cpu_seconds() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main(experiment: Experiment) -> int:
    """The command line of one experiment: a table, or JSON; pictures only where ``--plots`` says."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.papers.{experiment.name}")
    add_arguments(parser, "it says how much less it plays, and compares only what can be compared")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw the pictures into it")
    parser.add_argument(
        "--table", default="", metavar="TEXT", help="only tables whose titles contain it (=TITLE: are it); no pictures"
    )
    args = parser.parse_args()
    sheet = measured(experiment, args.quick, args.processes, args.plots, args.table)
    if not sheet.tables:
        parser.error(f"no table's title contains {args.table!r}, so there is nothing to tell")
    print(msgspec.json.format(msgspec.json.encode(sheet), indent=1).decode() if args.json else text(sheet))
    return 0


def add_arguments(parser: argparse.ArgumentParser, quick: str) -> None:
    """What every run can be told; ``quick``: what is to be known about quick ones."""
    parser.add_argument("--quick", action="store_true", help=f"shorter and with fewer seeds; {quick}")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (as many as processors)"
    )
