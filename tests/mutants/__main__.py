"""``python -m mutants [--only NAME ...] [--jobs N] [--json]``: plants each mutant and looks whether its killer notices.

Killers run once without any mutant first: what fails then says nothing. A mutant is killed when its own killer fails
by what its own code raises; an import that breaks, or a run that does not end, kills nothing. Exit codes: 0 all were
killed, 1 one survived, 2 wrong use, or a killer that fails without a mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from .catalogue import Mutant, complaints, load
from .overlay import Overlay
from .probe import NOT_IMPORTED

STUCK_SECONDS = 180.0
"""Chosen: some thirty times what the slowest killer takes."""
SAID_MAX = 90


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    outcome: str
    """killed, survived, equivalent, not imported, not run, or stuck."""
    said: str = ""
    """The first line of what the killer raised."""
    seconds: float = 0.0

    @property
    def well(self) -> bool:
        return self.outcome in ("killed", "equivalent")


def _ask(
    overlay: Overlay, module: str, killers: Sequence[str], seconds: float
) -> tuple[int, list[dict[str, str]], str]:
    """Run killers in the copy. Returns the exit code, their outcomes, and what was said besides."""
    done = subprocess.run(
        overlay.command(module, *killers),
        cwd=overlay.root,
        env=overlay.environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"killer"')]
    return done.returncode, lines, done.stderr


def red_without_mutants(mutants: Sequence[Mutant]) -> list[str]:
    """Return the killers that do not pass in a tree without mutants."""
    killers = sorted({mutant.killer for mutant in mutants if mutant.killer})
    if not killers:
        return []
    overlay = Overlay()
    try:
        _, lines, said = _ask(overlay, "loadtrim_agent", killers, STUCK_SECONDS * 10)
    finally:
        overlay.close()
    passed = {line["killer"] for line in lines if line["outcome"] == "passed"}
    return [killer for killer in killers if killer not in passed] + ([said] if not passed else [])


def judge(mutant: Mutant, overlay: Overlay) -> Verdict:
    """Plant one mutant and run its killer."""
    if mutant.equivalent:
        return Verdict(mutant, "equivalent", mutant.equivalent)
    began = time.monotonic()
    try:
        with overlay.planted(mutant):
            code, lines, said = _ask(overlay, mutant.module, [mutant.killer], STUCK_SECONDS)
    except subprocess.TimeoutExpired:
        return Verdict(mutant, "stuck", f"no end within {STUCK_SECONDS:.0f} s", time.monotonic() - began)
    seconds = time.monotonic() - began
    if code == NOT_IMPORTED:
        return Verdict(mutant, "not imported", said.strip(), seconds)
    if not lines or lines[0]["outcome"] == "missing":
        return Verdict(mutant, "not run", said.strip(), seconds)
    said = lines[0]["said"].partition("\n")[0]
    if "from pytest-timeout" in said:
        return Verdict(mutant, "stuck", said, seconds)
    return Verdict(mutant, "killed" if lines[0]["outcome"] == "failed" else "survived", said, seconds)


def judge_all(mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """Judge all mutants, ``jobs`` at a time, each job in a copy of its own; in the order in which they end."""
    free: queue.SimpleQueue[Overlay] = queue.SimpleQueue()
    overlays = [Overlay() for _ in range(jobs)]
    for overlay in overlays:
        free.put(overlay)

    def one(mutant: Mutant) -> Verdict:
        overlay = free.get()
        try:
            return judge(mutant, overlay)
        finally:
            free.put(overlay)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            for done in as_completed([pool.submit(one, mutant) for mutant in mutants]):
                yield done.result()
    finally:
        for overlay in overlays:
            overlay.close()


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the outcome by area."""
    areas = sorted({verdict.mutant.area for verdict in verdicts})
    lines = [f"{'area':<14}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'alive':>7}"]
    for area in [*areas, "all"]:
        of_area = [verdict for verdict in verdicts if area in ("all", verdict.mutant.area)]
        killed = sum(verdict.outcome == "killed" for verdict in of_area)
        equivalent = sum(verdict.outcome == "equivalent" for verdict in of_area)
        alive = len(of_area) - killed - equivalent
        lines.append(f"{area:<14}{len(of_area):>8}{killed:>8}{equivalent:>12}{alive:>7}")
    return "\n".join(lines)


def _chosen(names: Sequence[str]) -> list[Mutant]:
    mutants = load()
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        raise SystemExit(f"No mutant is named {', '.join(sorted(unknown))}; the names stand in tests/mutants/lists.")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at a time (default: cores)")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each mutant")
    options = parser.parse_args(arguments)
    mutants = _chosen(options.only)
    misfits = list(complaints(mutants))
    red = misfits or red_without_mutants(mutants)
    if red:
        print("\n".join(["These say nothing, for they are wrong or fail without a mutant:", *red]), file=sys.stderr)
        return 2
    verdicts: list[Verdict] = []
    for verdict in judge_all(mutants, options.jobs):
        verdicts.append(verdict)
        told = {"name": verdict.mutant.name, "outcome": verdict.outcome, "said": verdict.said}
        line = (
            f"{len(verdicts):>3}/{len(mutants)} {verdict.outcome:<11} {verdict.mutant.name}: {verdict.said[:SAID_MAX]}"
        )
        print(json.dumps(told) if options.json else line, flush=True)
    if not options.json:
        print("", table(verdicts), sep="\n")
        for verdict in verdicts:
            if not verdict.well:
                print(
                    f"\n{verdict.mutant.name} ({verdict.outcome}): {verdict.mutant.breaks}\n  {verdict.mutant.killer}"
                )
    return 0 if all(verdict.well for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
