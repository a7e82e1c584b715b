"""Gathers what was measured into out/results, the folder that is published with a release: ``make results``.

Papers, comparison and benchmarks are taken as they were written below ``out/``; nothing is run. What is missing is
named, with the command that makes it. Exit codes: 0 something was gathered, 1 there is nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.code_state import changes_since, told
from benchmarks.run_cache import machine
from benchmarks.suite.results import OUT, load_results, stamp

__all__ = ["gather", "main"]

PARTS = (
    ("papers/papers.md", "The papers' experiments", "make papers", ("*.md", "*.json", "*.png")),
    ("comparison/comparison.md", "Every policy on every load", "make compare", ("*.md", "*.png")),
    ("benchmarks.md", "Benchmarks", "make bench", ("benchmarks.md", "benchmarks.json")),
)
"""Page, title, the command that makes it, and the files beside it that belong to it."""


def gather(source: Path, target: Path) -> list[str]:
    """Copy every page with its files, and write an index of them.

    Args:
        source: the folder below which the commands write.
        target: made anew; what was there is removed.

    Returns:
        The pages that were there.
    """
    shutil.rmtree(target, ignore_errors=True)
    found, lines = [], ["# Results", "", f"Gathered {stamp()} by `make results` on {machine()}.", ""]
    for page, title, command, patterns in PARTS:
        if not (source / page).exists():
            lines.append(f"- {title}: not measured (`{command}`)")
            continue
        found.append(page)
        lines.append(f"- [{title}]({page}), by `{command}`")
        folder = (target / page).parent
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted({path for pattern in patterns for path in (source / page).parent.glob(pattern)}):
            shutil.copy2(path, folder)
    lines += _runs(source)
    if found:
        (target / "README.md").write_text("\n".join(lines) + "\n")
    return found


def _runs(source: Path) -> list[str]:
    """Tell for each benchmark which code it is of, and whether that has changed since."""
    rows = [
        f"| {name} | {each.commit or 'not known'} | {told(changes_since(each.commit, each.code))} | {each.at} "
        f"| {each.machine} |"
        for name, each in load_results(source).items()
    ]
    head = ["", "## Code of the benchmarks", "", "| benchmark | commit | its code since | at | machine |"]
    return [*head, "|---|---|---|---|---|", *rows] if rows else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Gather and name what is missing. Returns the exit code (see the module)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=OUT, metavar="FOLDER", help="where the commands wrote (out)")
    parser.add_argument("--out", type=Path, default=OUT / "results", metavar="FOLDER", help="made anew (out/results)")
    given = parser.parse_args(arguments)
    found = gather(given.source, given.out)
    for page, _, command, _ in PARTS:
        if page not in found:
            print(f"{given.source / page} is missing, so it is left out; `{command}` makes it", file=sys.stderr)
    print(f"{len(found)} of {len(PARTS)} pages in {given.out}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
