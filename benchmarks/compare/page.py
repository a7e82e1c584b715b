"""The page: targets, a table for each load, its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

import msgspec

from benchmarks.compare.runs import CHOICES, FIRST_SEED, STARTUPS, Choice, ComparisonResult, choice_of, grouped
from benchmarks.compare.scenarios import scenario_of
from benchmarks.compare.targets import OURS, RANGE_SEEDS, RANGED, TargetVerdict, on_front, rivals

__all__ = ["draw", "origins", "packers", "page", "summary", "table"]

PICTURE_INCHES, PICTURE_DPI = (13.0, 8.0), 80
HEAD = """# Comparison

Every policy on every load, in the simulator (what it models: docs/simulator.md): made by `{command}`, not by hand.

A cell is **share in time / replica-minutes / moves / scalings**. W = 0.5 s and 5.9 ms a record where nothing else is
said; {share} of the records in time is what `objective` is asked for (the others take no such number). Replicas cost
from the request on; all but the share is counted to the load's end, and nobody is asked for after it. A slice that is
passed on counts as a move. A load begins with as many replicas as its first second takes, for everybody. Members join
and leave by loadtrim's own protocol for everybody. One seed ({seed}), and ranges over seeds {seeds} for
`objective`, with and without slicing, on {ranged}.

{origins}

**Bold** is what nobody beats in both share and replica-minutes (the Pareto front), among those who neither know what
will come nor slice. Rows in *italics* are apart: clairvoyant ones are told the load, those with slicing need members
that pass work on by themselves, which real members do not yet. *clairvoyant* looks a start-up time ahead and asks in
time; with *no start-up* it looks at the present second alone, as CLOSER'24's "Optimal" does, and asks as if replicas
were there at once, though they take the start-up time all the same. The fixed ones and `overprovisioned` are told the
load's mean or its peak beforehand, which is more than anybody knows; they compete all the same.
"""
CAPTION = (
    "Late records over replica-minutes, lower left is better. Red: objective; green: told what will come; grey: the "
    "others, named where nobody beats them. Triangles slice; the line is the Pareto front"
)
SUMMARY = """## All loads

A cell is **share in time, mean over the loads (least of them) / replica-minutes beside `objective`'s, geometric mean /
loads on whose front it is**. Loads that were played by all: {counts}.
"""
PACKERS = """Who owns what is the packer's (docs/packers.md), in these runs:

{rows}

`sticky` is what policies got that know nothing of partitions, so that they differ by their scaling alone. The
[papers' experiments](../papers/papers.md) are played with what the papers ran, which is `roundrobin`
for Li & Ku's and Koper's.
"""


def cell(results: Sequence[ComparisonResult], bold: bool) -> str:
    """One run's, or the range of several seeds'."""
    if not results:
        return "not played"
    measures = (
        [f"{each.share * 100:.2f}" for each in results],
        [f"{each.replica_minutes:.2f}" for each in results],
        [str(each.moves) for each in results],
        [str(each.scalings) for each in results],
    )
    share, *others = [_span(texts) for texts in measures]
    text = " / ".join((f"{share} %", *others))
    return f"**{text}**" if bold else text


def _span(texts: Sequence[str]) -> str:
    least, most = min(texts, key=float), max(texts, key=float)
    return least if least == most else f"{least} to {most}"


def origins(scenes: Sequence[str], quick: bool = False) -> str:
    """Which loads were recorded, and which only stand in for a recording."""
    made = [scenario_of(name, quick) for name in scenes]
    recorded, stand_ins = (
        ", ".join(f"`{scene.name}`" for scene in made if scene.recorded is kind) or "none" for kind in (True, False)
    )
    return (
        f"Recorded loads: {recorded}. Stand-ins for recordings that were not there: {stand_ins}. The others are made."
    )


def packers(results: Mapping[str, ComparisonResult]) -> str:
    """Which rows were played with which packer."""
    played = {each.job.choice for each in results.values()}
    rows: dict[str, list[str]] = {}
    for choice in CHOICES:
        if choice.name in played:
            rows.setdefault(choice.packer, []).append(_row_name(choice))
    return PACKERS.format(rows="\n".join(f"- `{packer}`: {', '.join(rows[packer])}" for packer in sorted(rows)))


def _head() -> list[str]:
    names = ("start-up", *(f"{startup:g} s" for startup in STARTUPS))
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def table(results: Mapping[str, ComparisonResult], scene: str) -> list[str]:
    """A load's table: a row for every policy, a column for every start-up time."""
    groups = grouped(results)
    lines = _head()
    for choice in CHOICES:
        cells, any_bold = [], False
        for startup in STARTUPS:
            entries = groups.get((scene, startup), [])
            mine = next((each for each in entries if each.job.choice == choice.name), None)
            bold = mine is not None and not choice.apart and on_front(mine, rivals(entries))
            any_bold |= bold
            cells.append(cell(_of_all_seeds(results, mine) if mine else [], bold))
        if all(text == "not played" for text in cells):
            continue
        name = _row_name(choice)
        lines.append(f"| {f'**{name}**' if any_bold else name} | {' | '.join(cells)} |")
    return lines


def _mark(verdict: TargetVerdict) -> str:
    if verdict.met is None:
        return "open"
    return "met" if verdict.met else f"**missed** {verdict.miss}"


def _row_name(choice: Choice) -> str:
    return f"*{choice.name}*" if choice.apart else f"`{choice.name}`"


def summary(results: Mapping[str, ComparisonResult], scenes: Sequence[str]) -> list[str]:
    """All loads in one table: a row for every policy, a column for every start-up time; no load whole: nothing.

    Only loads count that every policy has played at that start-up time, so that all rows tell of the same ones.
    """
    groups = grouped(results)
    whole = {
        startup: [entries for name in scenes if len(entries := groups.get((name, startup), [])) == len(CHOICES)]
        for startup in STARTUPS
    }
    if not any(whole.values()):
        return []
    counts = ", ".join(f"{len(whole[startup])} at {startup:g} s" for startup in STARTUPS)
    lines = [
        SUMMARY.format(counts=counts),
        *_head(),
    ]
    for choice in CHOICES:
        cells = [_summed(choice, whole[startup]) if whole[startup] else "not played" for startup in STARTUPS]
        lines.append(f"| {_row_name(choice)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _summed(choice: Choice, loads: Sequence[Sequence[ComparisonResult]]) -> str:
    shares, costs, fronts = [], [], 0
    for entries in loads:
        by_name = {each.job.choice: each for each in entries}
        mine = by_name[choice.name]
        shares.append(100.0 * mine.share)
        costs.append(mine.replica_minutes / by_name[OURS].replica_minutes)
        fronts += not choice.apart and on_front(mine, rivals(entries))
    front = "-" if choice.apart else str(fronts)
    return f"{mean(shares):.2f} % ({min(shares):.2f}) / {geometric_mean(costs):.2f} / {front}"


def _of_all_seeds(results: Mapping[str, ComparisonResult], first: ComparisonResult) -> list[ComparisonResult]:
    same = (msgspec.structs.replace(first.job, seed=seed).key for seed in RANGE_SEEDS)
    return [results[key] for key in same if key in results]


def page(
    results: Mapping[str, ComparisonResult],
    scenes: Sequence[str],
    told: Sequence[TargetVerdict],
    command: str,
    missing: int,
    quick: bool,
) -> str:
    """The whole page in Markdown."""
    groups = grouped(results)
    head = HEAD.format(
        command=command,
        share="99.9 %",
        seed=FIRST_SEED,
        seeds=f"{RANGE_SEEDS[0]} to {RANGE_SEEDS[-1]}",
        ranged=" and ".join(f"`{name}`" for name in RANGED),
        origins=origins(scenes, quick),
    )
    lines = [head]
    if quick:
        lines.append("**A quick run: the first minute of each load only.**\n")
    if results:
        lines.append(packers(results))
    if missing:
        lines.append(f"**Not played yet: {missing} of the runs**; the same command goes on where it ended.\n")
    lines += ["## Targets", "", "| target | measured | |", "|---|---|---|"]
    lines += [f"| {each.target} | {each.measured} | {_mark(each)} |" for each in told]
    lines += ["", "Two hours of 9 partitions in 5 s: see `simulator-speed` in [benchmarks](../benchmarks.md).", ""]
    lines += summary(results, scenes)
    for name in scenes:
        played = [each for startup in STARTUPS for each in groups.get((name, startup), [])]
        if not played:
            continue
        scene = scenario_of(name, quick)
        alone = played[0].alone
        lines += [
            f"## {name}",
            "",
            (
                f"{scene.title}. {played[0].records:,} records in {scene.load.seconds} s, {scene.load.source}; "
                "on average "
                f"{scene.load.records / scene.load.seconds / scene.worth:.2f} replicas' worth, at most "
                f"{max(scene.load.per_second) / scene.worth:.2f}. No policy could have saved {alone:,} of them "
                "(late even with a replica to each partition all the time)."
            ),
            "",
            f"![{CAPTION}]({name}.png)",
            "",
            *table(results, name),
            "",
        ]
    return "\n".join(lines)


def draw(path: Path, groups: Mapping[tuple[str, float], Sequence[ComparisonResult]], scene: str) -> None:
    """Share in time over replica-minutes, a picture for each start-up time, the front as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=PICTURE_INCHES, dpi=PICTURE_DPI, layout="constrained")
    for startup, panel in zip(STARTUPS, axes.flat, strict=True):
        _panel(panel, groups.get((scene, startup), []))
        panel.set_title(f"start-up {startup:g} s", fontsize=9)
    figure.supylabel("late, %", fontsize=9)
    figure.supxlabel("replica-minutes", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


LATE_MIN = 0.005
"""Percent; nothing late at all is drawn here."""
LATE_MAX = 400.0
"""Leaves room for the names of those who are late always."""


def _panel(panel: Any, results: Sequence[ComparisonResult]) -> None:
    entries = rivals(results)
    front = sorted((each for each in entries if on_front(each, entries)), key=lambda each: each.replica_minutes)
    named = {each.job.choice for each in front}
    panel.set_yscale("log")
    panel.set_ylim(LATE_MIN * 0.8, LATE_MAX)
    panel.tick_params(labelsize=7)
    panel.plot(
        [each.replica_minutes for each in front], [_late(each) for each in front], color="0.7", linewidth=0.8,
        drawstyle="steps-post", zorder=0,
    )  # fmt: skip
    labels = []
    for each in results:
        choice = choice_of(each.job.choice)
        ours = choice.policy == OURS
        color = "tab:red" if ours else "tab:green" if choice.knows else "0.45"
        panel.plot(each.replica_minutes, _late(each), "^" if choice.slicing else "o", color=color, markersize=4)
        if ours or choice.knows or choice.name in named:
            labels.append((each.replica_minutes, _late(each), choice.name, color))
    _label(panel, labels)


def _late(result: ComparisonResult) -> float:
    return max(LATE_MIN, (1.0 - result.share) * 100.0)


def _label(panel: Any, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside their points, inside the panel, and pushed upwards from those that are there already."""
    taken: list[Any] = []
    left, right = panel.get_xlim()
    renderer = panel.figure.canvas.get_renderer()
    panel.figure.draw_without_rendering()
    for x, y, name, color in sorted(labels, key=lambda label: label[1]):
        side = -1 if x > (left + right) / 2 else 1
        text = panel.annotate(
            name, (x, y), fontsize=7, color=color, xytext=(4 * side, 2), textcoords="offset points",
            ha="right" if side < 0 else "left",
        )  # fmt: skip
        for lift in range(2, 100, 4):
            text.set_position((4 * side, lift))
            box = text.get_window_extent(renderer)
            if not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
