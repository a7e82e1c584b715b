"""The page: targets, a table for each load, its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from compare.runs import CHOICES, FIRST_SEED, STARTUPS, Result, choice_of, grouped
from compare.scenes import scene_of
from compare.targets import RANGE_SEEDS, RANGED, Verdict, on_front, rivals

__all__ = ["draw", "origins", "page", "table"]

PICTURE_INCHES, PICTURE_DPI = (13.0, 4.2), 80
HEAD = """# Comparison

Every policy on every load, in the simulator ([what it models](simulator.md)): made by `{command}`, not by hand.

A cell is **share in time / replica-minutes / moves / scalings**. W = 0.5 s and 5.9 ms a record where nothing else is
said; {share} of the records in time is what `objective` is asked for (the others take no such number). Replicas cost
from the request on; a slice that is passed on counts as a move. A load begins with as many replicas as its first second
takes, for everybody. Members join and leave by loadtrim's own protocol for everybody, which flatters policies whose
papers ran on Kafka's rebalances. Some policies wait 300 to 480 s before they give back (HPA, KEDA, Varga), so on most
loads they hardly do; on `long` they have the time. One seed ({seed}), and ranges over seeds {seeds} for `objective` on
{ranged}.

{origins}

**Bold** is what nobody beats in both share and replica-minutes (the Pareto front), among those who neither know what
will come nor slice. Rows in *italics* are apart: clairvoyant ones are told the load, those with slicing need members
that pass work on by themselves, which real members do not yet.
"""
CAPTION = (
    "Late records over replica-minutes, lower left is better. Red: objective; green: told what will come; grey: the "
    "others, named where nobody beats them. Triangles slice; the line is the Pareto front"
)
MARKS = {True: "met", False: "**missed**", None: "open"}


def cell(results: Sequence[Result], bold: bool) -> str:
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
    made = [scene_of(name, quick) for name in scenes]
    recorded, stand_ins = (
        ", ".join(f"`{scene.name}`" for scene in made if scene.recorded is kind) or "none" for kind in (True, False)
    )
    return (
        f"Recorded loads: {recorded}. Stand-ins for recordings that were not there: {stand_ins}. The others are made."
    )


def table(results: Mapping[str, Result], scene: str) -> list[str]:
    """A load's table: a row for every policy, a column for every start-up time."""
    groups = grouped(results)
    lines = [f"| start-up | {' | '.join(f'{startup:g} s' for startup in STARTUPS)} |", "|---" * 5 + "|"]
    for choice in CHOICES:
        cells, any_bold = [], False
        for startup in STARTUPS:
            entries = groups.get((scene, startup), [])
            mine = next((each for each in entries if each.job.choice == choice.name), None)
            competes = not choice.knows and not choice.slicing
            bold = mine is not None and competes and on_front(mine, rivals(entries))
            any_bold |= bold
            cells.append(cell(_of_all_seeds(results, mine) if mine else [], bold))
        if all(text == "not played" for text in cells):
            continue
        name = f"`{choice.name}`" if not (choice.knows or choice.slicing) else f"*{choice.name}*"
        lines.append(f"| {f'**{name}**' if any_bold else name} | {' | '.join(cells)} |")
    return lines


def _of_all_seeds(results: Mapping[str, Result], first: Result) -> list[Result]:
    same = (msgspec.structs.replace(first.job, seed=seed).key for seed in RANGE_SEEDS)
    return [results[key] for key in same if key in results]


def page(
    results: Mapping[str, Result],
    scenes: Sequence[str],
    told: Sequence[Verdict],
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
    if missing:
        lines.append(f"**{missing} runs of it were not played yet**; the same command goes on where it ended.\n")
    lines += ["## Targets", "", "| target | measured | |", "|---|---|---|"]
    lines += [f"| {each.target} | {each.measured} | {MARKS[each.met]} |" for each in told]
    lines += ["", "Two hours of 9 partitions in 5 s: see `simulator-speed` in [benchmarks](benchmarks.md).", ""]
    for name in scenes:
        played = [each for startup in STARTUPS for each in groups.get((name, startup), [])]
        if not played:
            continue
        scene = scene_of(name, quick)
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
            f"![{CAPTION}](comparison/{name}.png)",
            "",
            *table(results, name),
            "",
        ]
    return "\n".join(lines)


def draw(path: Path, groups: Mapping[tuple[str, float], Sequence[Result]], scene: str) -> None:
    """Share in time over replica-minutes, a picture for each start-up time, the front as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(STARTUPS), figsize=PICTURE_INCHES, dpi=PICTURE_DPI, layout="constrained")
    for place, (startup, panel) in enumerate(zip(STARTUPS, axes, strict=True)):
        _panel(panel, groups.get((scene, startup), []))
        panel.set_title(f"start-up {startup:g} s", fontsize=8)
        if place == 0:
            panel.set_ylabel("late, %", fontsize=8)
    figure.supxlabel("replica-minutes", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _panel(panel: Any, results: Sequence[Result]) -> None:
    late_min = 0.005
    entries = rivals(results)
    front = sorted((each for each in entries if on_front(each, entries)), key=lambda each: each.replica_minutes)
    named = {each.job.choice for each in front}
    for each in results:
        choice = choice_of(each.job.choice)
        ours = choice.policy == "objective"
        color = "tab:red" if ours else "tab:green" if choice.knows else "0.45"
        late = max(late_min, (1.0 - each.share) * 100.0)
        panel.plot(each.replica_minutes, late, "^" if choice.slicing else "o", color=color, markersize=4)
        if ours or choice.knows or choice.name in named:
            panel.annotate(
                choice.name,
                (each.replica_minutes, late),
                fontsize=6,
                color=color,
                xytext=(3, 3),
                textcoords="offset points",
            )
    points = [(each.replica_minutes, max(late_min, (1.0 - each.share) * 100.0)) for each in front]
    panel.plot(
        [x for x, _ in points], [y for _, y in points], color="0.7", linewidth=0.8, drawstyle="steps-post", zorder=0
    )
    panel.set_yscale("log")
    panel.set_ylim(late_min * 0.8, 110.0)
    panel.tick_params(labelsize=6)
