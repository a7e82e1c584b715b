"""A paper in one short table: which figures are the same, and that every claim has its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.papers import closer24, iccbdc22, koper22, landau24, li_ku
from benchmarks.papers.bench import Experiment, ExperimentContext
from benchmarks.papers.claims import CLAIMS
from benchmarks.papers.digest import ROWS_MAX, Claim, MissingFigureError, digest, markdown, sameness
from benchmarks.papers.own_policy import OWN, own_part, own_runs
from benchmarks.papers.runner import SimulatedResult
from benchmarks.papers.table import AS_PUBLISHED, AS_RUN, FigureRow, FigureTable, PaperTables, Spread

EXPERIMENTS = (iccbdc22, closer24, landau24, li_ku, koper22)


def row(paper: float | None, *values: float, form: str = AS_RUN, unit: str = "%", what: str = "a|b") -> FigureRow:
    return FigureRow(what=what, form=form, unit=unit, paper=paper, ours=Spread.of(values))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (row(97.4, 95.5), "yes"),
        (row(97.4, 95.3), "no"),
        (row(50.0, 45.0, unit=""), "yes"),
        (row(50.0, 44.9, unit=""), "no"),
        (row(97.4, 88.7, 99.0), "within our spread"),
        (row(None, 88.7), "-"),
    ],
)
def test_a_figure_is_the_same_within_two_points_or_a_tenth(found: FigureRow, told: str) -> None:
    assert sameness([[found]]) == told


def test_one_of_the_forms_is_enough() -> None:
    assert sameness([[row(97.4, 60.0, form=AS_PUBLISHED), row(97.4, 97.0)]]) == "yes"


def test_a_row_of_several_figures_is_the_same_where_all_are() -> None:
    same, within, other, unsaid = row(10.0, 10.0), row(10.0, 0.0, 30.0), row(10.0, 50.0), row(None, 1.0)
    assert sameness([[same], [unsaid]]) == "yes"
    assert sameness([[same], [within]]) == "within our spread"
    assert sameness([[same], [other]]) == "in part"
    assert sameness([[other], [other]]) == "no"


def test_the_figures_of_a_row_are_of_one_form() -> None:
    """A share as run and a cost as published are of no run that there was."""
    text, code = ({"form": form} for form in (AS_PUBLISHED, AS_RUN))
    share, cost = [row(97.0, 60.0, **text), row(97.0, 97.0, **code)], [row(30.0, 30.0, **text), row(30.0, 60.0, **code)]
    assert sameness([share, cost]) == "in part"


def test_a_quick_run_is_not_compared() -> None:
    table = FigureTable(title="T", rows=(row(10.0, 10.0),)).apart()
    assert sameness([[table.rows[0]]]) == "-"


def sheet(*rows: FigureRow) -> PaperTables:
    table = FigureTable(title="T, the long name", rows=rows)
    return PaperTables(name="x", title="X", source="", setting=("As ever.",), tables=(table,), command="make it")


def test_a_row_shows_the_figures_of_a_claim_side_by_side() -> None:
    made = sheet(row(10.0, 11.0), row(10.0, 12.0, form=AS_PUBLISHED), row(30.0, 30.0, unit="", what="c"))
    claim = Claim(what="both", table="T", figures=("a|b", "c"), why="because")
    assert digest(made, [claim]) == [("both", "10.0 % / 30.0", "12.0 % / -", "11.0 % / 30.0", "yes", "because")]
    (hidden,) = digest(made, [replace(claim, data_public=False)])
    assert hidden[4] == "cannot be told"


def test_the_page_keeps_its_columns() -> None:
    lines = markdown(sheet(row(1.0, 2.0)), [Claim(what="a|b", table="T", figures=("a|b",))])
    assert "| a\\|b | 1.0 % | - | 2.0 % | yes | - |" in lines
    assert any("`make it`" in line and "All 1 tables are in `x.json`" in line for line in lines)


def test_a_claim_without_its_figure_is_an_error_in_words() -> None:
    with pytest.raises(MissingFigureError, match=r"x: no table 'T' with the figure 'gone'.* Play x again"):
        digest(sheet(row(1.0, 2.0)), [Claim(what="w", table="T", figures=("gone",))])


def test_a_paper_has_at_most_twelve_rows_and_ours_is_the_last() -> None:
    assert set(CLAIMS) == {module.EXPERIMENT.name for module in EXPERIMENTS}
    for claims in CLAIMS.values():
        assert len(claims) <= ROWS_MAX
        assert claims[-1].what.startswith("**")
        assert len({claim.what for claim in claims}) == len(claims)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [pytest.param(each, marks=pytest.mark.weekly) if each is landau24 else each for each in EXPERIMENTS],
    ids=lambda module: str(module.EXPERIMENT.name),
)
def test_every_claim_finds_its_figures(
    module: object, monkeypatch: pytest.MonkeyPatch, played: SimulatedResult
) -> None:
    """A title or a figure that is renamed would leave the page without it."""
    if hasattr(module, "play") and module is not landau24:
        monkeypatch.setattr(module, "play", lambda given, jobs: {name: [played] * len(js) for name, js in jobs.items()})
    experiment = module.EXPERIMENT  # type: ignore[attr-defined]
    assert isinstance(experiment, Experiment)
    made = experiment.run(ExperimentContext(True, None, None))
    rows = digest(made, CLAIMS[experiment.name])
    assert len(rows) == len(CLAIMS[experiment.name])
    assert all(cells[3] != "-" or cells[2] != "-" for cells in rows)


def test_our_own_policy_has_the_papers_load_and_the_group_of_its_own() -> None:
    (theirs,) = iccbdc22._aware(ExperimentContext(True, None, None), (0.02,))[0]["1/as run/aware"]
    runs = own_runs("experiment 1", [theirs], seeds=(1, 2))["own/experiment 1"]
    assert [job.options.seed for job in runs] == [1, 2]
    for job in runs:
        assert (job.load, job.options.costs) == (theirs.load, theirs.options.costs)
        assert (job.config.sla_seconds, job.options.startup_seconds) == (5.0, 2.0)
        assert (job.config.policy, job.config.packer, job.options.protocol.name) == ("objective", "trim", "loadtrim")


def test_our_own_table_tells_each_load(played: SimulatedResult) -> None:
    part = own_part()
    assert (part.title, part.needs) == (OWN, ("own/",))
    table = part.make({"own/W1": [played, played], "own/W2": [played]})
    told = {each.what: each.ours.mean for each in table.rows}
    assert told["W1, in time"] == pytest.approx(90.0)
    assert told["W2, consumer-seconds"] == pytest.approx(120.0)
