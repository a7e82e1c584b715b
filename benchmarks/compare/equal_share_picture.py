"""Draws what policies cost at the same share: ``python -m benchmarks.compare.equal_share_picture verdict FILE``.

From the runs that :mod:`.equal_share` has kept. A panel for each family: a dot is one load, at what the policy costs
there over the cheapest of all. Loads on which a policy keeps the share with no parameter stand at the right edge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.equal_share import KNOBS, EqualShareRun, judged
from benchmarks.compare.held_out import FIXED, OUT, SETS
from benchmarks.run_cache import read_results

__all__ = ["costs_by_family", "draw"]

COST_MAX = 4.0
"""The right edge: dearer than this is drawn there, too."""
PANEL_INCHES = (3.2, 1.9)
ROWS = (FIXED, *(knob.name for knob in KNOBS))


def costs_by_family(runs: Sequence[EqualShareRun]) -> dict[str, dict[str, list[float]]]:
    """Return each policy's cost over the zero line on each load of a family; :data:`COST_MAX` where none keeps."""
    found: dict[str, dict[str, list[float]]] = {}
    for played, zero in judged(runs):
        family = found.setdefault(zero.name.split("/")[1], {row: [] for row in ROWS})
        for row in ROWS:
            search = played.get(row)
            if search is not None:
                cost = search.best.replica_minutes / zero.best.replica_minutes if search.factor else COST_MAX
                family[row].append(min(cost, COST_MAX))
    return found


def draw(path: Path, families: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw a panel for each family."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(families))
    lines = -(-len(families) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, dpi=110, layout="constrained", squeeze=False)
    for panel in axes.flat:
        panel.set_visible(False)
    for panel, (family, policies) in zip(axes.flat, families.items(), strict=False):
        _panel(panel, family, policies)
    figure.supxlabel("replica-minutes over those of the cheapest run that was found, at the share asked", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _panel(panel: Any, family: str, policies: Mapping[str, Sequence[float]]) -> None:
    panel.set_visible(True)
    panel.set_xscale("log")
    panel.set_xlim(0.85, COST_MAX * 1.1)
    panel.set_xticks([1.0, 1.5, 2.0, 3.0, COST_MAX], ["1", "1.5", "2", "3", "not kept"], minor=False)
    panel.minorticks_off()
    panel.axvline(1.0, color="0.8", linewidth=0.8, zorder=0)
    names = list(policies)
    for place, name in enumerate(names):
        color = "tab:red" if name == "objective" else "0.35"
        panel.plot(policies[name], [place] * len(policies[name]), "o", color=color, markersize=3.5, alpha=0.8)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.tick_params(labelsize=6)
    panel.set_title(family, fontsize=8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw. Exit code 1: nothing is kept to be drawn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare.equal_share_picture", description=__doc__)
    parser.add_argument("set", choices=sorted(SETS), help="the loads to choose by, or those that judge")
    parser.add_argument("file", type=Path, metavar="FILE", help="the picture, as PNG or SVG by its name")
    given = parser.parse_args(arguments)
    families = costs_by_family(list(read_results(OUT / f"equal-{given.set}.jsonl", EqualShareRun)))
    if not families:
        print(
            f"No searches are kept of {given.set}, so nothing was drawn; play them first: python -m "
            f"benchmarks.compare.equal_share {given.set}",
            file=sys.stderr,
        )
        return 1
    draw(given.file, families)
    print(given.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
