"""Runs the papers' experiments and writes their page below out/papers.

``python -m benchmarks.papers [NAME...]`` runs those named, or all. Each writes NAME.json and its pictures. The page
papers.md is put together from these files and nothing else. So one paper can be run again alone. Files that other code
made than there is now are named. ``--quick`` plays much less of everything and writes below ``out/papers/quick``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.papers import closer24, iccbdc22, koper22, landau24, li_ku, real
from benchmarks.papers.bench import PROJECT, add_arguments, code_of, measured
from benchmarks.papers.claims import CLAIMS
from benchmarks.papers.digest import markdown
from benchmarks.papers.real_page import load_runs, section
from benchmarks.papers.table import PaperTables

EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in (iccbdc22, closer24, landau24, li_ku, koper22)}
OUT = PROJECT / "out" / "papers"
INTRODUCTION = """# The papers again

What the papers report, and what came out here. This page is made by `make papers` from the runs' own results
(`*.json` beside it); no figure of ours was typed. `make papers PAPER=NAME` runs one; `python -m
benchmarks.papers.NAME` prints one without touching the page. With `--quick` much less is played, and all of it is
written below `quick`.

Each paper has one table. **As published**: by the text of the paper. **As run**: as its authors' published code and
data have it, where that differs. Both are means of our runs, with the least and the most of them in brackets: over
seeds, and with them over the moment inside the second at which the scaler looks (its phase).

**The same?** *yes*: the mean of one of the two forms differs by no more than 2 points (of a figure in percent) or a
tenth of the paper's (of any other). *within our spread*: the paper's figure lies between the least and the most of our
runs. *in part*: some of a row's figures. *cannot be told*: the paper's load is not public, and what was played stands
in for it. The last rows of a table are our own policy on the same load.

No paper says how far its own runs lie apart. Li & Ku's figures are means of twenty runs; of the others none is said to
be a mean. The data that Koper's author published have a second run of some, and these differ widely: on query 11
Dhalion 1 s has a latency of 64.7 and 92.8 s, Varga v2 70 % one of 18.0 and 37.8 s.

{simulated} with the real planner, policies and packers (docs/simulator.md). `make papers REAL=1` plays CLOSER'24's W1
and its skewed form and ICCBDC'22's experiments 1 and 2 on a real Kafka, with the reference assignors as real consumers
beside the policies: {real} runs of ten minutes, which may be cut off and resumed. Koper'22's queries can be run as real
consumers one by one: `python examples/nexmark --query q1`, `q3` or `q11` with any `--policy`, rates divided by 100.
"""
QUICK_INTRODUCTION = """# The papers again, quickly

Made by `python -m benchmarks.papers --quick` to see that everything runs: what was played is much less than the
papers played, and is said first under each.
"""


def write_page(folder: Path, quick: bool = False) -> Path:
    """Put papers.md together from the results in the folder, name those that other code made, and return its path."""
    runs = load_runs(folder)
    simulated = "But for the last section these are simulations" if runs else "All of these are simulations"
    lines = [QUICK_INTRODUCTION if quick else INTRODUCTION.format(simulated=simulated, real=len(real.plans()))]
    for name in EXPERIMENTS:
        path = folder / f"{name}.json"
        if path.exists():
            sheet = msgspec.json.decode(path.read_bytes(), type=PaperTables)
            if sheet.code != code_of(name):
                print(f"{path}: made by other code than there is now; play {name} again", file=sys.stderr)
            lines += markdown(sheet, CLAIMS[name])
    lines += section(runs)
    page = folder / "papers.md"
    page.write_text("\n".join(lines).rstrip() + "\n")
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is named and write the page."""
    words = sys.argv[1:] if arguments is None else arguments
    # No "--rea": what is meant by it would be looked for literally, and everything else played instead.
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", choices=[*EXPERIMENTS, []], metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--page", action="store_true", help="run nothing, put the page together anew")
    parser.add_argument("--real", action="store_true", help="real runs, and nothing else: see --real --help")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="write there (out/papers)")
    add_arguments(parser, "written below out/papers/quick")
    if "--real" in words:
        code = real.main([word for word in words if word != "--real"])
        write_page(OUT)
        return code
    args = parser.parse_args(words)
    folder: Path = args.out / "quick" if args.quick else args.out
    folder.mkdir(parents=True, exist_ok=True)
    for name in EXPERIMENTS:
        code_of(name)  # all of them are imported already: what their files are when their turn comes does not count
    for name in () if args.page else args.names or EXPERIMENTS:
        sheet = measured(EXPERIMENTS[name], args.quick, args.processes, folder)
        written = msgspec.json.format(msgspec.json.encode(sheet), indent=1) + b"\n"
        (folder / f"{name}.json").write_bytes(written)
        print(f"{name}: {sheet.seconds:.0f} CPU seconds", flush=True)
    print(f"the page: {write_page(folder, args.quick)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
