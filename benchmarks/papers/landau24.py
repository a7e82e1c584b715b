"""Landau'24: how many consumers against how much is moved, on generated streams; and the latency model.

``python -m benchmarks.papers.landau24``. Packers alone, no group: every measurement
of a stream is
packed anew, starting from who owned what before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.papers.bench import Experiment, ExperimentContext, main
from benchmarks.papers.landau24_latency import REBALANCE_SECONDS, Iteration, latencies, percentile_of_bytes
from benchmarks.papers.landau24_published import PUBLISHED
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables, Spread
from demo.datasets import LANDAU_NAME, data_file, not_here
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.registry import make_packer

__all__ = [
    "EXPERIMENT",
    "SCORES",
    "StreamScores",
    "StreamSpec",
    "cardinal_bin_scores",
    "measurements",
    "pareto_front",
    "play",
    "published_stream",
    "run",
]

CAPACITY = 100.0
PARTITIONS, MEASUREMENTS = 200, 500
PARTITIONS_QUICK, MEASUREMENTS_QUICK = 60, 60
DELTAS = (0, 5, 10, 15, 20, 25)
BEGINNINGS = ("0", "50", "100", "uniform")
PLAIN = ("nf", "ff", "wf", "bf", "nfd", "ffd", "wfd", "bfd")
MODIFIED = ("mwf", "mbf", "mwfp", "mbfp")
PACKERS = {**{name: f"{name}_sticky" for name in PLAIN}, **{name: name for name in MODIFIED}}
"""The paper's name -> ours; its baselines are the sticky forms."""
SEED = "landau24"
CONSUMER_BYTES_PER_S, BATCH_BYTES = 2.3e6, 5e6
"""A consumer's peak rate, and what it gathers in a cycle."""
LATENCY_P90_SECONDS = {"mwf": 4.52, "kd_15": 217.0, "kd_24": 2.70, "kd_30": 1.11, "kd_31": 0.0, "kd_32": 0.0}
CONSUMERS_REPORTED = 15.0
"""Of MWF, on average."""
JOURNAL_P99_SECONDS = {"mwf": 2.24, "kd_15": 364.66}
"""Of the paper's successor (JPDC 201, 2025, 105071), by its abstract, which does not say of which bytes."""

OURS = "trim"
CLAIMS = "What the paper says"
SCORES = "CBS and E(Rscore), every packer and delta (figures 9 to 11)"
STREAM = "The published stream, 32 partitions"
RESPONSES = "Response times (figures 13 to 17)"
LATENCY = "Latency model, 32 partitions, 100 iterations of 30 s"

Loads = Mapping[Partition, float]


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream by its parameters, so that any process can make it."""

    beginning: str
    """Load of every partition at first, percent of a bin: a number, or ``uniform``."""
    delta: int
    """Largest step of a load, percent of a bin."""
    form: str = AS_RUN
    partitions: int = PARTITIONS
    count: int = MEASUREMENTS


@dataclass(frozen=True, slots=True)
class StreamScores:
    """What a packer did with a stream."""

    opened: tuple[int, ...]
    rscore: float
    """Mean over the measurements of the load that changed owner, in bins; the first assignment costs nothing."""


def measurements(stream: StreamSpec) -> list[Loads]:
    """Make a stream. As run: whole steps, kept within 0 and 100. As published: real steps, kept above 0 only."""
    rng = Random(f"{SEED}/{stream}")
    whole = stream.form == AS_RUN
    named = [
        Partition(f"t{at * 2 // stream.partitions}", at % (stream.partitions // 2)) for at in range(stream.partitions)
    ]
    if stream.beginning == "uniform":
        loads = {p: float(rng.randint(0, 100)) if whole else rng.uniform(0.0, 100.0) for p in named}
    else:
        loads = dict.fromkeys(named, float(stream.beginning))
    made: list[Loads] = [loads]
    while len(made) < stream.count:
        if whole:
            loads = {p: min(100.0, max(0.0, x + rng.randint(-stream.delta, stream.delta))) for p, x in loads.items()}
        else:
            loads = {p: max(0.0, x + rng.uniform(-stream.delta, stream.delta)) for p, x in loads.items()}
        made.append(loads)
    return [_shuffled(loads, rng) for loads in made]


def _shuffled(loads: Loads, rng: Random) -> Loads:
    """In a new order: what packers that do not sort depend on."""
    order = sorted(loads)
    rng.shuffle(order)
    return {p: loads[p] for p in order}


def play(choice: str, stream: Sequence[Loads], *, fewest: bool = False) -> StreamScores:
    """Pack every measurement; ``fewest``: let ours open as few bins as it can."""
    opened, moved = [], 0.0
    for loads, before, owners in assignments(choice, stream, fewest=fewest):
        opened.append(len(set(owners.values())))
        moved += sum(load for p, load in loads.items() if p in before and before[p] != owners[p])
    return StreamScores(tuple(opened), moved / CAPACITY / len(stream))


def assignments(
    choice: str, stream: Sequence[Loads], *, fewest: bool = False
) -> list[tuple[Loads, Mapping[Partition, str], Mapping[Partition, str]]]:
    """Per measurement: loads, owners before, owners after."""
    packer = make_packer(choice)
    owners: Mapping[Partition, str] = {}
    made = []
    for loads in stream:
        placed = packer.pack(_problem(loads, owners, fewest=fewest))
        made.append((loads, owners, placed.owners))
        owners = placed.owners
    return made


def _problem(loads: Loads, owners: Mapping[Partition, str], *, fewest: bool = False) -> Problem:
    items = tuple(Item(partition=p, owner=owners.get(p), work=load) for p, load in loads.items())
    limits = Limits(objective_seconds=1.0, handoff_seconds=0.0)
    return Problem(items=items, bins=_bins(len(loads)), limits=limits, fewest=fewest)


@lru_cache(maxsize=4)
def _bins(count: int) -> tuple[Bin, ...]:
    """As many as there are partitions, each of :data:`CAPACITY`."""
    return tuple(Bin(member=f"c{at:03}", unit=f"c{at:03}", capacity=CAPACITY) for at in range(count))


def cardinal_bin_scores(opened: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """CBS: mean share of bins above the fewest that any of the packers opened in that measurement."""
    fewest = _fewest(opened)
    return {name: _above(row, fewest) for name, row in opened.items()}


def _fewest(opened: Mapping[str, Sequence[int]]) -> list[int]:
    return [min(column) for column in zip(*opened.values(), strict=True)]


def _above(opened: Sequence[int], fewest: Sequence[int]) -> float:
    return fmean((z - least) / least for z, least in zip(opened, fewest, strict=True))


def pareto_front(points: Mapping[str, tuple[float, float]]) -> set[str]:
    """Who is not beaten: nobody else is as good in both and better in one (less is better)."""
    return {
        name
        for name, (x, y) in points.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for other, (a, b) in points.items() if other != name)
    }


def _grid_cell(stream: StreamSpec) -> dict[str, tuple[float, float]]:
    """Name -> (CBS, mean Rscore) on one stream; ``trim`` too, but the fewest bins are those of the paper's packers."""
    made = measurements(stream)
    played = {name: play(choice, made) for name, choice in PACKERS.items()}
    opened = {name: each.opened for name, each in played.items()}
    scores = cardinal_bin_scores(opened)
    cells = {name: (scores[name], each.rscore) for name, each in played.items()}
    if stream.beginning == "uniform":
        ours = play("trim", made, fewest=True)
        cells["trim"] = (_above(ours.opened, _fewest(opened)), ours.rscore)
    return cells


# -- the published stream of 32 partitions, and the latency model


def published_stream() -> tuple[list[Loads], str]:
    """The one stream that was published, or one made by the paper's generator; and where it comes from."""
    path = data_file(LANDAU_NAME)
    if path is None:
        made = measurements(StreamSpec("uniform", 5, AS_RUN, 32, 100))
        return made, f"STAND-IN: generated by the paper's rule (seed {SEED}), for {not_here(LANDAU_NAME)}"
    listed = json.loads(path.read_text())
    return [
        {Partition(topic, int(number)): float(load) for topic, loads in one.items() for number, load in loads.items()}
        for one in listed
    ], f"the published stream ({LANDAU_NAME})"


def _latency_samples(job: tuple[str, float]) -> tuple[list[tuple[float, float]], float]:
    """(latency, bytes) of everything, and consumers on average; ``job``: a packer and C over what a consumer can do."""
    choice, share = job
    stream, _ = published_stream()
    played = assignments(choice, stream, fewest=choice == OURS)
    iterations = [Iteration(loads, before, owners) for loads, before, owners in played]
    consumers = fmean(len(set(each.owners.values())) for each in iterations)
    return latencies(iterations, CAPACITY / share), consumers


def _latency_table(given: ExperimentContext) -> FigureTable:
    rows: list[FigureRow] = []
    names = {"mwf": "mwf", **{f"kd_{n}": f"kd_n:n={n}" for n in (15, 24, 27, 30, 31, 32)}, OURS: OURS}
    for form, share in ((AS_PUBLISHED, 5.0 / 6.0), (AS_RUN, 100.0 / 133.0)):
        results = given.map(_latency_samples, [(choice, share) for choice in names.values()])
        for name, (samples, consumers) in zip(names, results, strict=True):
            rows += _latency_rows(name, form, samples, consumers)
    _, origin = published_stream()
    return FigureTable(
        title=LATENCY,
        rows=tuple(rows),
        note=f"On {origin}. p90 of the bytes that are late at all, as figure 8 of the paper; `kd_n`: dealt out over n "
        "consumers once. p99: of all bytes, beside the paper's successor (JPDC 201, 2025, 105071). As run: C is 75 % "
        "of what a consumer really does (100 of 133), as in the authors' code. `trim` opens as few bins as it can.",
    )


def _latency_rows(name: str, form: str, samples: Sequence[tuple[float, float]], consumers: float) -> list[FigureRow]:
    """Return the rows of one packer in one form."""
    late = [sample for sample in samples if sample[0] > 0.0]
    share_late = sum(size for _, size in late) / sum(size for _, size in samples)
    consumers_paper = CONSUMERS_REPORTED if name == "mwf" else None
    p90_paper, p99_paper = LATENCY_P90_SECONDS.get(name), JOURNAL_P99_SECONDS.get(name)
    return [
        FigureRow(what=f"{name}, {what}", form=form, unit=unit, digits=digits, paper=paper, ours=Spread.one(ours))
        for what, unit, digits, paper, ours in (
            ("consumers on average", "", 1, consumers_paper, consumers),
            ("p90 latency", "s", 2, p90_paper, percentile_of_bytes(late, 0.9)),
            ("p99 latency of all bytes", "s", 2, p99_paper, percentile_of_bytes(samples, 0.99)),
            ("share of the bytes that is late at all", "%", 1, None, 100 * share_late),
        )
    ]


def _published_stream_table(given: ExperimentContext) -> FigureTable:
    stream, origin = published_stream()
    opened, scores = {}, {}
    for name, choice in PACKERS.items():
        played = play(choice, stream)
        opened[name], scores[name] = played.opened, played.rscore
    cbs = cardinal_bin_scores(opened)
    trim = play("trim", stream, fewest=True)
    rows = []
    for name in PACKERS:
        rows.append(FigureRow(what=f"{name}, CBS", form=AS_RUN, unit="%", ours=Spread.one(100 * cbs[name])))
        rows.append(FigureRow(what=f"{name}, E(Rscore)", form=AS_RUN, digits=2, ours=Spread.one(scores[name])))
    rows.append(
        FigureRow(what="trim (ours), bins on average", form=AS_RUN, digits=2, ours=Spread.one(fmean(trim.opened)))
    )
    rows.append(FigureRow(what="mwf, bins on average", form=AS_RUN, digits=2, ours=Spread.one(fmean(opened["mwf"]))))
    rows.append(FigureRow(what="trim (ours), E(Rscore)", form=AS_RUN, digits=2, ours=Spread.one(trim.rscore)))
    return FigureTable(title=STREAM, rows=tuple(rows), note=f"On {origin}.")


def _responses(_: ExperimentContext) -> FigureTable:
    """What the paper measured on a cluster, as far as it can be shown without one."""
    stream, origin = published_stream()
    return FigureTable(
        title=RESPONSES,
        rows=(
            FigureRow(
                what="mwf, longest time for a decision (the paper: under 1 s, figure 15)",
                form=AS_RUN,
                unit="s",
                digits=4,
                paper=1.0,
                ours=Spread.one(_decision_seconds(stream)),
            ),
            FigureRow(
                what="change of state, computed: two cycles of 5 MB at 2.3 MB/s (the paper: around 5 s, figure 17)",
                form=AS_PUBLISHED,
                unit="s",
                paper=REBALANCE_SECONDS,
                ours=Spread.one(2.0 * BATCH_BYTES / CONSUMER_BYTES_PER_S),
            ),
        ),
        note=f"On {origin}. Only reported here, for they are those of its cluster: a consumer's peak rate, 2.3 MB/s "
        "under three very different conditions (figure 13); a pod that is ready 10 to 50 s after it was asked for in "
        "88 % of the cases, and after up to 500 s where a node has to be added (figures 14 and 16). What such waits do "
        "to a group can be played: `loadtrim simulate --startup 50`. The 30 s over which its monitor averages are "
        "`LOADTRIM_MONITOR=landau24`.",
    )


def _decision_seconds(stream: Sequence[Loads]) -> float:
    """The longest of all measurements, packed one by one."""
    longest = 0.0
    owners: dict[Partition, str] = {}
    packer = make_packer("mwf")
    for loads in stream:
        problem = _problem(loads, owners)
        began = time.perf_counter()
        owners = dict(packer.pack(problem).owners)
        longest = max(longest, time.perf_counter() - began)
    return longest


# -- the grid


def run(given: ExperimentContext) -> PaperTables:
    """Everything."""
    partitions = PARTITIONS_QUICK if given.quick else PARTITIONS
    count = MEASUREMENTS_QUICK if given.quick else MEASUREMENTS
    streams = [StreamSpec(b, delta, AS_RUN, partitions, count) for b in BEGINNINGS for delta in DELTAS]
    streams += [StreamSpec("uniform", delta, AS_PUBLISHED, partitions, count) for delta in (5, 25)]
    grid: list[FigureTable] = []
    if given.wants(CLAIMS) or given.wants(SCORES):
        cells = dict(zip(streams, given.map(_grid_cell, streams), strict=True))
        by_delta = {delta: [cells[s] for s in streams if s.form == AS_RUN and s.delta == delta] for delta in DELTAS}
        uniform = {(s.form, s.delta): cells[s] for s in streams if s.beginning == "uniform"}
        _draw(given, by_delta)
        grid = [_claims(uniform, by_delta), _scores(by_delta)]
        grid = [table.apart() for table in grid] if given.quick else grid
    others = [
        make(given)
        for title, make in ((STREAM, _published_stream_table), (LATENCY, _latency_table), (RESPONSES, _responses))
        if given.wants(title)
    ]
    _draw_latencies(given)
    return PaperTables(
        name="landau24",
        title="Landau'24: consumers against migrations",
        source="Landau, Saurabh, Andrade, Barbosa: *Multi-Objective Optimization of Consumer Group Autoscaling in "
        "Message Broker Systems*. Figures 9 to 12 as numbers: worked out from the data that its authors published "
        "(landaudiogo/thesis_data).",
        setting=(
            (
                f"{partitions} partitions, {count} measurements, every packer on the same streams, partitions in a "
                f"new order in every measurement; seed {SEED}. As run: whole steps from -delta to +delta, kept within "
                "0 and 100. As published: real steps, kept above 0 only."
            ),
            "Beginnings: all partitions at 0, 50 or 100 % of a bin, or uniform in 0..100 %.",
            (
                "Both forms where the text has numbers: MWF against NFD at delta 5 and 25, and the latency model. "
                "Scores and fronts are as run only: the paper shows them as pictures, and their numbers are those of "
                "its authors' data."
            ),
        ),
        tables=tuple(table for table in (*grid, *others) if given.wants(table.title)),
    )


def _claims(uniform: Mapping[tuple[str, int], Any], by_delta: Mapping[int, Sequence[Any]]) -> FigureTable:
    rows = []
    for delta, saved, more in ((5, 55.0, 11.8), (25, 23.0, 8.8)):
        for form in (AS_PUBLISHED, AS_RUN):
            cell = uniform[form, delta]
            rows += [
                FigureRow(
                    what=f"delta {delta}: MWF moves less than NFD, the best baseline",
                    form=form,
                    unit="%",
                    paper=saved,
                    ours=Spread.one(100.0 * (1.0 - cell["mwf"][1] / cell["nfd"][1])),
                ),
                FigureRow(
                    what=f"delta {delta}: MWF opens more than the fewest (CBS)",
                    form=form,
                    unit="%",
                    paper=more,
                    ours=Spread.one(100.0 * cell["mwf"][0]),
                ),
            ]
    for name, paper in (("mwf", 1.0), ("mbf", 1.0), ("mbfp", 1.0), ("mwfp", 0.0)):
        fronts = [name in pareto_front(_means(by_delta[delta])) for delta in DELTAS[1:]]
        rows.append(
            FigureRow(
                what=f"{name.upper()} on the Pareto front, share of the deltas 5 to 25",
                form=AS_RUN,
                unit="%",
                digits=0,
                paper=100.0 * paper,
                ours=Spread.one(100.0 * fmean(fronts)),
            )
        )
    return FigureTable(
        title=CLAIMS,
        rows=tuple(rows),
        # By the authors' uniform_start.csv, see landau24_published.
        note="By its authors' data MWF moves 55.2 % (delta 5) and 24.0 % (delta 25) less. "
        "MWF against NFD on streams that begin uniform, which is where the paper's figures are found in its "
        "authors' data. The front is that of means over the four beginnings.",
    )


def _means(cells: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    return {name: (fmean(c[name][0] for c in cells), fmean(c[name][1] for c in cells)) for name in PACKERS}


def _scores(by_delta: Mapping[int, Sequence[Mapping[str, tuple[float, float]]]]) -> FigureTable:
    rows = []
    for delta in DELTAS:
        for name in PACKERS:
            cbs, rscore = (Spread.one(value) for value in _means(by_delta[delta])[name])
            paper = PUBLISHED[delta][name]
            rows.append(
                FigureRow(
                    what=f"delta {delta}, {name}, CBS",
                    form=AS_RUN,
                    unit="%",
                    digits=2,
                    paper=100 * paper[0],
                    ours=cbs.scaled(100.0),
                )
            )
            rows.append(
                FigureRow(
                    what=f"delta {delta}, {name}, E(Rscore)",
                    form=AS_RUN,
                    digits=2,
                    paper=paper[1],
                    ours=rscore,
                )
            )
        ours = [cell["trim"] for cell in by_delta[delta] if "trim" in cell]
        rows.append(
            FigureRow(
                what=f"delta {delta}, trim with the fewest bins (ours; uniform beginning), CBS",
                form=AS_RUN,
                unit="%",
                digits=2,
                ours=Spread.of(100 * cbs for cbs, _ in ours),
            )
        )
        rows.append(
            FigureRow(
                what=f"delta {delta}, trim (ours), E(Rscore)",
                form=AS_RUN,
                digits=2,
                ours=Spread.of(score for _, score in ours),
            )
        )
    return FigureTable(
        title=SCORES,
        rows=tuple(rows),
        note="Means over the four beginnings, of the paper's and of ours. Below 0: fewer bins than any of the paper's "
        "packers.",
    )


def _draw(given: ExperimentContext, by_delta: Mapping[int, Sequence[Mapping[str, tuple[float, float]]]]) -> None:
    def fronts(figure: Any) -> None:
        for axes, delta in zip(figure.subplots(1, 2), (5, 25), strict=True):
            points = _means(by_delta[delta])
            front = pareto_front(points)
            for name, (x, y) in points.items():
                on_front = name in front
                axes.plot(100 * x, y, "o" if on_front else "x", color="#2a6f97" if on_front else "#6b7280")
            for names, (x, y) in _together(points):
                text = ", ".join(name.upper() for name in names)
                axes.annotate(text, (100 * x, y), textcoords="offset points", xytext=(5, 4), fontsize=7)
            step = sorted((100 * points[name][0], points[name][1]) for name in front)
            axes.step([x for x, _ in step], [y for _, y in step], where="post", color="#2a6f97", linewidth=0.8)
            for cell in (cell for cell in by_delta[delta] if "trim" in cell):
                x, y = cell["trim"]
                axes.plot(100 * x, y, "D", color="#b5179e", markersize=5)
                axes.annotate(
                    "trim", (100 * x, y), textcoords="offset points", xytext=(6, -9), fontsize=7, color="#b5179e"
                )
            theirs = [PUBLISHED[delta][name] for name in points]
            axes.plot([100 * x for x, _ in theirs], [y for _, y in theirs], ".", color="#ee8866", markersize=4)
            axes.set(xlabel="CBS, %", ylabel="E(Rscore)", title=f"delta {delta}")

    def curves(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for name in PACKERS:
            means = [_means(by_delta[delta])[name] for delta in DELTAS]
            style = "s-" if name in MODIFIED else ".:"
            left.plot(DELTAS, [100 * x for x, _ in means], style, color=COLORS[name], markersize=4, label=name)
            right.plot(DELTAS, [y for _, y in means], style, color=COLORS[name], markersize=4, label=name)
        left.set(xlabel="delta, %", ylabel="CBS, %")
        right.set(xlabel="delta, %", ylabel="E(Rscore)")
        right.legend(ncols=2, fontsize=6)

    given.draw(
        "landau24-pareto.png",
        "Figure 12 again: bins against migrations, means over four beginnings; filled: on the front. Small dots: the "
        "authors' data. Diamond: trim with the fewest bins, uniform beginning alone.",
        fronts,
    )
    given.draw(
        "landau24-scores.png", "Figures 9 and 11 again: CBS and E(Rscore) by delta, means over four beginnings.", curves
    )


def _together(points: Mapping[str, tuple[float, float]]) -> list[tuple[list[str], tuple[float, float]]]:
    """Names whose labels would lie on each other, as one, where the lowest of them is."""
    groups: list[tuple[list[str], tuple[float, float]]] = []
    for name, (x, y) in sorted(points.items(), key=lambda entry: entry[1][::-1]):
        near = next((names for names, (a, b) in groups if abs(a - x) < LABEL[0] and abs(b - y) < LABEL[1]), None)
        if near is None:
            groups.append(([name], (x, y)))
        else:
            near.append(name)
    return groups


COLORS = {
    "nf": "#a6cee3",
    "nfd": "#1f78b4",
    "ff": "#b2df8a",
    "ffd": "#33a02c",
    "wf": "#fdbf6f",
    "wfd": "#ff7f00",
    "bf": "#cab2d6",
    "bfd": "#6a3d9a",
    "mwf": "#e31a1c",
    "mbf": "#222222",
    "mwfp": "#fb9a99",
    "mbfp": "#b15928",
}
"""Each of them has one; a rule and its decreasing form are alike."""
LABEL = (0.02, 0.7)
"""Share of bins and of E(Rscore) that a label takes."""


def _draw_latencies(given: ExperimentContext) -> None:
    """Figures 5 to 8: what is late, how much of it there is, and what it costs, by the number of consumers."""
    if given.folder is None or given.only:
        return
    counts = range(1, 33)
    share = 100.0 / 133.0
    jobs = [("mwf", share), *((f"kd_n:n={n}", share) for n in counts)]
    (mwf, consumers), *dealt = given.map(_latency_samples, jobs)
    late = [[sample for sample in samples if sample[0] > 0.0] for samples, _ in dealt]
    late_mwf = [sample for sample in mwf if sample[0] > 0.0]

    def panels(figure: Any) -> None:
        (histogram, cost), (amount, latency) = figure.subplots(2, 2)
        for samples, label in ((late_mwf, "mwf"), (late[26], "kd_27")):
            histogram.hist(
                [s for s, _ in samples], weights=[size for _, size in samples], bins=40, alpha=0.6, label=label
            )
        histogram.set(xlabel="latency above 0, s", ylabel="bytes, % of a bin x s", title="figure 5")
        histogram.legend()
        cost.plot(counts, [count for _, count in dealt], ".-", label="kd_n")
        cost.axhline(consumers, color="C1", label="mwf")
        cost.set(xlabel="n", ylabel="consumers on average", title="figure 6")
        cost.legend()
        whole = sum(size for _, size in mwf)
        amount.plot(counts, [100 * sum(size for _, size in each) / whole for each in late], ".-")
        amount.axhline(100 * sum(size for _, size in late_mwf) / whole, color="C1")
        amount.set(xlabel="n", ylabel="bytes that are late at all, %", title="figure 7")
        for part, style in ((0.5, ":"), (0.9, "-")):
            latency.plot(counts, [max(0.1, percentile_of_bytes(each, part)) for each in late], style, color="C0")
            latency.axhline(percentile_of_bytes(late_mwf, part), linestyle=style, color="C1")
        latency.set(xlabel="n", ylabel="latency above 0, s", yscale="log", title="figure 8: median (dotted), p90")

    given.draw(
        "landau24-latency.png",
        "Figures 5 to 8 again, as run: Kafka's assignment to n consumers (blue) beside mwf (orange).",
        panels,
        (9, 6),
    )


EXPERIMENT = Experiment(
    "landau24",
    run,
    f"generated streams of {MEASUREMENTS_QUICK} measurements of {PARTITIONS_QUICK} partitions. The paper's figures are "
    f"of {MEASUREMENTS} measurements of {PARTITIONS}, so no difference from them is given. What is played on the "
    "published stream is played whole.",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
