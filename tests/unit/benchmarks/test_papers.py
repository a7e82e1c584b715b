"""The arithmetic of the papers' experiments: scores, the latency model, loads, and how figures are shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.papers import __main__ as papers
from benchmarks.papers import closer24, iccbdc22, koper22, landau24, li_ku, traces
from benchmarks.papers.bench import Experiment, ExperimentContext, measured
from benchmarks.papers.closer24_optimal import optimal
from benchmarks.papers.digest import markdown
from benchmarks.papers.landau24 import StreamSpec, cardinal_bin_scores, measurements, pareto_front, play
from benchmarks.papers.landau24_latency import Iteration, latencies, percentile_of_bytes
from benchmarks.papers.runner import SimulatedResult, _played, looks, needed, scaled_alike
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables, Spread, text
from benchmarks.run_cache import appending, read_results

from loadtrim.simulate import Simulation
from loadtrim_agent.common.partition import Partition

A, B = Partition("t", 0), Partition("t", 1)
PROJECT = Path(__file__).resolve().parents[3]


# -- Landau'24


def test_bins_are_scored_against_the_fewest_of_each_measurement() -> None:
    scores = cardinal_bin_scores({"a": [10, 12], "b": [12, 10]})
    assert scores == pytest.approx({"a": 0.1, "b": 0.1})


def test_who_is_beaten_in_one_and_equal_in_the_other_is_not_on_the_front() -> None:
    assert pareto_front({"a": (0, 5), "b": (5, 0), "c": (5, 1), "d": (2, 2), "twin": (2, 2)}) == {"a", "b", "d", "twin"}


@pytest.mark.parametrize("form", [AS_RUN, AS_PUBLISHED])
def test_a_stream_keeps_to_its_steps_and_bounds(form: str) -> None:
    made = measurements(StreamSpec("uniform", 10, form, 20, 40))
    assert made == measurements(StreamSpec("uniform", 10, form, 20, 40))
    for before, now in pairwise(made):
        assert max(abs(now[p] - before[p]) for p in now) <= 10
    loads = [load for one in made for load in one.values()]
    assert min(loads) >= 0
    if form == AS_RUN:
        assert max(loads) <= 100
        assert all(load == int(load) for load in loads)


def test_the_first_assignment_costs_nothing_and_a_constant_load_moves_nothing() -> None:
    made = measurements(StreamSpec("uniform", 0, AS_RUN, 12, 5))
    assert play("bfd_sticky", made).rscore == 0.0
    assert len(set(play("bfd_sticky", made).opened)) == 1


def test_what_moved_begins_late_and_catches_up() -> None:
    """Capacity 10, 8 of it moved: 5 s at first; a byte comes each 1/8 s and is read in 1/10 s, so 0 after 200 bytes."""
    moved = Iteration({A: 8.0}, {A: "x"}, {A: "y"})
    samples = latencies([moved], 10.0)
    assert sum(size for _, size in samples) == pytest.approx(240.0)
    assert samples[0][0] == pytest.approx(5.0 - 4 * 0.025)
    assert [latency > 0 for latency, _ in samples] == [True] * 25 + [False] * 5


def test_too_much_for_a_consumer_waits_longer_and_longer_over_iterations() -> None:
    """The paper's example: 16 arrive, 10 are read: the i-th byte waits (1/10 - 1/16) i."""
    same = {A: "x", B: "x"}
    each = Iteration({A: 8.0, B: 8.0}, same, same)
    samples = latencies([each, each], 10.0)
    assert max(latency for latency, _ in samples[:30]) == pytest.approx(0.0375 * 480, rel=0.02)
    assert max(latency for latency, _ in samples) == pytest.approx(2 * 0.0375 * 480, rel=0.02)


def test_what_stays_is_read_first() -> None:
    each = Iteration({A: 6.0, B: 2.0}, {A: "x", B: "y"}, {A: "x", B: "x"})
    samples = latencies([each], 10.0)
    assert [latency for latency, _ in samples[:30]] == [0.0] * 30
    assert samples[30][0] > 4.5


def test_percentiles_count_bytes_not_samples() -> None:
    assert percentile_of_bytes([(1.0, 90.0), (5.0, 10.0)], 0.9) == 1.0
    assert percentile_of_bytes([(1.0, 89.0), (5.0, 11.0)], 0.9) == 5.0
    assert percentile_of_bytes([], 0.9) == 0.0


# -- loads


def test_the_first_workload_of_iccbdc22_rises_as_its_text_says() -> None:
    rows = iccbdc22.first_workload()
    assert len(rows) == 600
    assert rows[0] == [15.0] * 5
    assert rows[165] == [60.0, 60.0, 15.0, 15.0, 15.0]
    assert rows[285][2] == 60.0
    assert rows[405] == [60.0, 60.0, 60.0, 60.0, 15.0]
    assert rows[480] == [15.0] * 5


def test_stand_ins_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    for rates, origin in (traces.three_humps(), traces.taxi()):
        assert origin.startswith("STAND-IN")
        assert "LOADTRIM_DATA" in origin, "where the recorded one is looked for"
        assert min(rates) >= 0
    assert len(traces.three_humps()[0]) == 600
    assert sum(traces.taxi()[0]) == pytest.approx(traces.TAXI_RECORDS, rel=0.01)


def test_the_optimal_scaler_packs_whole_partitions() -> None:
    """5 equal partitions of 40 do not fit 2 replicas of 100 (3 and 2), although their sum does."""
    found = optimal(traces.loaded([200.0, 100.0]), 100.0)
    assert found.replicas == (3, 1)
    assert found.scaled == (0, 2)
    assert found.share_in_time == 1.0


def test_what_is_above_a_replicas_limit_is_late_whoever_scales() -> None:
    """One partition of 200: half of it is in time, alone on its replica."""
    found = optimal(traces.loaded([200.0], partitions=1), 100.0)
    assert (found.replicas, found.share_in_time) == ((1,), 0.5)


# -- figures


def row(paper: float | None, *values: float) -> FigureRow:
    return FigureRow(what="a|b", form=AS_RUN, unit="%", paper=paper, ours=Spread.of(values))


def test_a_figure_that_varies_is_a_range_and_the_paper_may_lie_within() -> None:
    assert row(97.4, 96.0, 98.0).cells()[2:5] == ("97.4 %", "97.0 % (96.0 to 98.0)", "-0.4, within")
    assert row(90.0, 96.0, 98.0).cells()[4] == "+7.0"
    assert row(97.0, 97.0).cells()[3:5] == ("97.0 %", "0.0")
    assert row(None, 1.0).cells()[2] == "-"


def test_heartbeats_are_compared_at_the_same_looks() -> None:
    """Found by a reader: W2 had one look with the short ones and two with the long."""
    jobs = closer24._jobs(ExperimentContext(False, None, None), [100.0], [50.0])
    for name in ("W1/as published", "W1/as run", "W2/as published", "W2/as run"):
        short, plain = (
            [job.options.phase_seconds for job in jobs[title]] for title in (f"heartbeat/{name}", f"{name}/Alg. 2")
        )
        assert short == plain
    assert "0.02 and 0.3 s after the burst" in closer24._w2_looks(ExperimentContext(False, None, None))


def test_optimal_is_played_without_a_wait() -> None:
    """80/s on each of two partitions, then 40: 2 replicas of 100, then 1, as soon as 3 s are measured."""
    load = traces.loaded([160.0] * 10 + [80.0] * 5, partitions=2, arrivals="even")
    (job,) = looks(closer24._optimal_job(closer24.PUBLISHED, load), (closer24.OPTIMAL_LOOK_SECONDS,))
    outcome = Simulation(job.load, job.config, job.options).run()
    assert outcome.share_in_time > 0.99
    assert outcome.curves.replicas[4:15] == (2,) * 6 + (1,) * 5


def test_kafka_deals_out_partitions_in_several_orders() -> None:
    orders = iccbdc22._orders(12)
    assert orders == iccbdc22._orders(12)
    assert orders[0] == [0, 1, 2, 3, 4]
    assert all(sorted(order) == orders[0] for order in orders)
    load = iccbdc22._reordered(traces.by_partition([[1.0, 2.0, 5.0]]), (2, 0, 1))
    assert load.shares == ((0.625, 0.125, 0.25),)


def test_labels_that_would_lie_on_each_other_are_one() -> None:
    points = {"ffd": (0.0, 22.1), "wfd": (0.002, 22.2), "mwf": (0.1, 22.1), "bf": (0.0, 30.0)}
    assert landau24._together(points) == [(["ffd", "wfd"], (0.0, 22.1)), (["mwf"], (0.1, 22.1)), (["bf"], (0.0, 30.0))]


def test_every_packer_has_a_colour_of_its_own() -> None:
    assert len({landau24.COLORS[name] for name in landau24.PACKERS}) == len(landau24.PACKERS)


# -- quick runs


def short(given: ExperimentContext) -> PaperTables:
    """As an experiment that plays much less than its paper when it is to be quick."""
    table = FigureTable(title="T", rows=(row(18.0, 2.7),), note="A note.")
    given.draw("x.png", "A picture.", lambda figure: figure.subplots())
    return PaperTables(
        name="x", title="X", source="", setting=("As ever.",), tables=(table.apart() if given.quick else table,)
    )


SHORT = Experiment("x", short, "100 s of its 10 minutes.")


def test_a_quick_run_says_so_and_is_not_compared_with_the_paper() -> None:
    """Found by a reader: 100 s beside 10 minutes as a difference of replica-minutes, given as a finding."""
    whole, quick = (text(measured(SHORT, quick, 1, None)) for quick in (False, True))
    assert "a|b   as run  18.0 %  2.7 %  -15.3\nA note." in whole
    assert "a|b   as run  18.0 %  2.7 %  -\nA note." in quick
    assert quick.startswith("X\nQUICK: 100 s of its 10 minutes.\nAs ever.")
    assert "- QUICK: 100 s of its 10 minutes." in markdown(measured(SHORT, True, 1, None), ())


@pytest.mark.parametrize("experiment", papers.EXPERIMENTS.values(), ids=lambda experiment: str(experiment.name))
def test_every_experiment_says_what_its_quick_run_leaves_out(experiment: Experiment) -> None:
    assert " of " in experiment.quick
    assert experiment.quick.endswith(".")


@pytest.mark.slow
def test_a_head_tells_of_the_looks_that_were_played(monkeypatch: pytest.MonkeyPatch, played: SimulatedResult) -> None:
    for module in (closer24, iccbdc22):
        monkeypatch.setattr(module, "play", lambda given, jobs: {name: [played] * len(js) for name, js in jobs.items()})
    for run, told in ((iccbdc22.run, "0.02 s after the burst (seed 1)"), (closer24.run, "0.02, 0.2 s after the")):
        sheet = run(ExperimentContext(True, None, None))
        assert told in "".join(sheet.setting)
        assert all(each.difference is None for table in sheet.tables for each in table.rows)
        assert any(each.paper is not None for table in sheet.tables for each in table.rows)
    whole = iccbdc22.run(ExperimentContext(False, None, None))
    assert "0.02, 0.3, 0.6 s after the burst (seeds 1, 2, 3)" in "".join(whole.setting)


@pytest.mark.slow
def test_sheets_of_other_code_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(papers, "EXPERIMENTS", {"x": SHORT})
    monkeypatch.setattr(papers, "CLAIMS", {"x": ()})
    monkeypatch.setattr(papers, "OUT", tmp_path)
    assert papers.main(["x", "--processes", "1"]) == 0
    assert papers.main(["--page"]) == 0
    assert "other code" not in capsys.readouterr().err
    path = tmp_path / "x.json"
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    assert papers.main(["--page"]) == 0
    assert f"{path}: made by other code" in capsys.readouterr().err
    assert "other code" not in (tmp_path / "papers.md").read_text()


@pytest.mark.parametrize("abbreviated", ["--rea", "--quic"])
def test_options_are_not_guessed(
    abbreviated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by a reader: ``--rea`` played everything but what it asked for, and wrote over the page."""
    monkeypatch.setattr(papers, "EXPERIMENTS", {"x": SHORT})
    monkeypatch.setattr(papers, "CLAIMS", {"x": ()})
    with pytest.raises(SystemExit):
        papers.main([abbreviated])
    assert abbreviated in capsys.readouterr().err


@pytest.mark.slow
def test_a_quick_run_leaves_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a reader: it wrote its figures and pictures over those of the whole runs."""
    monkeypatch.setattr(papers, "EXPERIMENTS", {"x": SHORT})
    monkeypatch.setattr(papers, "CLAIMS", {"x": ()})
    told = ["x", "--out", str(tmp_path), "--processes", "1"]
    assert papers.main([*told, "--quick"]) == 0
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == {
        "quick/papers.md",
        "quick/x.json",
        "quick/x.png",
    }
    assert "QUICK: 100 s of its 10 minutes." in (tmp_path / "quick" / "papers.md").read_text()
    assert papers.main(told) == 0
    page = (tmp_path / "papers.md").read_text()
    assert "QUICK" not in page
    assert "All of these are simulations" in page, "no real run is told of"


def test_help_says_where_a_quick_run_writes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        papers.main(["--help"])
    assert "out/papers/quick" in capsys.readouterr().out


@pytest.mark.slow
def test_an_experiment_prints_json() -> None:
    table = "Experiment 1: partitions that rise one after the other"
    command = [sys.executable, "-m", "benchmarks.papers.iccbdc22", "--quick", "--json", "--processes", "1"]
    command += ["--table", f"={table}"]
    done = subprocess.run(
        command, cwd=PROJECT, env={"PYTHONPATH": ".:examples", "PATH": ""}, capture_output=True, text=True, check=True
    )
    assert '"name": "iccbdc22"' in done.stdout
    assert table in done.stdout


# -- Koper'22, Li & Ku


@pytest.mark.slow
def test_every_row_of_the_thesis_has_a_policy_that_can_be_made() -> None:
    for reported in koper22.REPORTED.values():
        assert set(reported) == set(koper22.POLICIES)
    load, _ = koper22.query_load(koper22.LOADS[0])
    assert load.seconds == 60 * koper22.MINUTES
    for choice in koper22.POLICIES.values():
        job = koper22.job(koper22.LOADS[0], choice, load.part(0, 1))
        Simulation(job.load, job.config, job.options)


def test_results_are_kept_line_by_line_and_what_was_cut_off_takes_nothing_with_it(tmp_path: Path) -> None:
    path = tmp_path / "out" / "runs.jsonl"
    with appending(path) as append:
        append(("one", 1))
    with path.open("a") as file:
        file.write('["tw')
    with appending(path) as append:
        append(("three", 3))
    assert list(read_results(path, tuple[str, int])) == [("one", 1), ("three", 3)]
    assert list(read_results(tmp_path / "none", tuple[str, int])) == []


def test_by_its_text_the_thesis_has_no_parameters_of_its_code() -> None:
    assert set(koper22.PUBLISHED) == {name for name in koper22.POLICIES if not name.startswith("HPA")}
    assert not any(part in choice for choice in koper22.PUBLISHED.values() for part in koper22.CODE_ONLY)


@pytest.mark.slow
@pytest.mark.weekly
def test_every_picture_of_played_runs_is_drawn(tmp_path: Path, played: SimulatedResult) -> None:
    """From results of any kind: what is drawn is looked at by people, that it is drawn is looked at here."""
    given = ExperimentContext(False, None, tmp_path)
    humps, taxis = [100.0] * 210, [50.0] * 210
    closer24._draw(given, humps, taxis, {name: [played] for name in closer24._jobs(given, humps, taxis)})
    aware, kafka = iccbdc22._aware(given, (0.02,))
    iccbdc22._draw(given, aware, {name: [played] for name in (*aware, *kafka)})
    for name in ("smooth", "clumped"):
        case = li_ku.LoadCase(name, "", li_ku.StandIn(name, "", (taxis,)))
        li_ku._draw(given, case, {policy: [played, played] for policy in li_ku.POLICIES})
    results = {f"{query.name}/{name}": played for query in koper22.LOADS for name in koper22.POLICIES}
    koper22._draw(given, results)
    koper22._draw_courses(given, results)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(plot.file for plot in given.plots)
    assert len(given.plots) == 11


def test_tables_that_nobody_asked_for_take_no_runs() -> None:
    given = ExperimentContext(False, None, None, only="skewed")
    parts = closer24._parts(given, [100.0], [50.0])
    jobs = needed(given, parts, closer24._jobs(given, [100.0], [50.0]))
    assert {name.partition("/")[0] for name in jobs} == {"W1 skewed", "W2 skewed"}


def test_another_run_is_scaled_as_the_first_one_asked_for(played: SimulatedResult) -> None:
    jobs, _ = iccbdc22._aware(ExperimentContext(True, None, None), (0.02,))
    job = jobs["1/as run/aware"][0]
    wanted = ((0.5, 1), (20.5, 3))
    assert scaled_alike(job, replace(played, wanted=wanted)).options.replicas_at == wanted


def test_scaling_operations_are_changes_between_samples(played: SimulatedResult) -> None:
    result = replace(played, replicas=(1,) * 15 + (2,) * 15 + (3, 2) * 7)
    assert result.scalings == 2


@pytest.mark.slow
@pytest.mark.parametrize("make", [li_ku.smooth, li_ku.clumped])
@pytest.mark.parametrize("recorded", [True, False])
def test_slices_have_the_papers_maximum_and_mean(
    make: Callable[[int], li_ku.StandIn], recorded: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not recorded:
        monkeypatch.setenv("LOADTRIM_DATA", str(tmp_path))
    made = make(3)
    assert [len(rates) for rates in made.slices] == [210] * 3
    assert [max(rates) for rates in made.slices] == pytest.approx([500.0] * 3)
    assert [sum(rates) / 210 for rates in made.slices] == pytest.approx([99.45] * 3, rel=0.05)
    assert made == make(3)


def test_a_table_of_li_and_ku_says_what_each_scaling_cost(played: SimulatedResult) -> None:
    """Of the paper: 14.53 % of 210 s over 7.4 scalings. Here: 10 % over 2."""
    table = li_ku._table("smooth", {f"smooth/{name}": [played, played] for name in li_ku.POLICIES})
    assert len(table.rows) == 27
    assert "4.1 s for each of the 7.4 scalings" in table.note
    assert "Here it is 10.5 s for each of 2.0" in table.note


@pytest.mark.slow
def test_scaling_intervals_are_measured(played: SimulatedResult) -> None:
    """From 1 to 2 replicas, which come 2 s after they were asked for and get partitions at the next assignment; and
    back."""
    job = li_ku.job([10.0] * 40, "fixed:replicas=1", "eager", seed=1)
    job = replace(job, options=replace(job.options, startup_seconds=2.0, replicas_at=((5.0, 2), (25.0, 1))))
    result = _played(job)
    (up,), (down,) = result.up_seconds, result.down_seconds
    assert 2.0 + li_ku.SYNC_SECONDS["eager"] <= up <= 2.0 + 3.0 + li_ku.SYNC_SECONDS["eager"] + 0.5
    assert li_ku.SYNC_SECONDS["eager"] <= down <= 3.0 + li_ku.SYNC_SECONDS["eager"] + 0.5
    unwatched = _played(replace(job, timed=False))
    assert replace(unwatched, cpu_seconds=0.0) == replace(result, cpu_seconds=0.0, up_seconds=(), down_seconds=())
    rows = li_ku._intervals("proposed, eager", (10.25, 10.8), [result, replace(played, up_seconds=())])
    assert [row.ours.mean for row in rows] == [up, down]
    assert li_ku._intervals("proposed, eager", (10.25, 10.8), [played]) == []


@pytest.mark.slow
@pytest.mark.parametrize(("make", "smooth"), [(li_ku.smooth, True), (li_ku.clumped, False)])
def test_one_stand_in_is_smooth_and_the_other_clumps(make: Callable[[int], li_ku.StandIn], smooth: bool) -> None:
    """From one second to the next: a small part of the maximum, or much of it."""
    assert {li_ku.largest_step(rates) <= li_ku.STEP_MAX for rates in make(3).slices} == {smooth}


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False])
def test_policies_of_li_and_ku_can_be_played(stopped: bool) -> None:
    """A few seconds of each: names, parameters and protocols go together."""
    for policy, protocol in li_ku.POLICIES.values():
        job = li_ku.job([100.0] * 3, policy, protocol, seed=1, stopped=stopped)
        assert Simulation(job.load, job.config, job.options).run().left == 0
