"""Real runs on the page: what was played stays there when something is played again, in the plans' order."""

from __future__ import annotations

from pathlib import Path

import msgspec

from papers import real
from papers.bench import Context
from papers.real_page import PICTURE, RealRun, load_runs, merge_runs, paint, section

ORDER = [("W1", "Alg. 2"), ("W1", "aiokafka"), ("W2", "objective")]


def run(load: str, consumers: str, **changes: object) -> RealRun:
    plain = RealRun(
        load=load, consumers=consumers, share=97.125, replica_minutes=30.5, p99=0.61, rebalances=7, lost=0, repeated=2,
        at=1_800_000_000.0, machine="2 cores",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def test_runs_take_the_place_of_their_like(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    assert merge_runs(folder, [], ORDER) == []
    assert not folder.exists()
    merge_runs(folder, [run("W2", "objective"), run("W1", "aiokafka", scaled_as="Alg. 2")], ORDER)
    runs = merge_runs(folder, [run("W1", "Alg. 2"), run("W2", "objective", share=99.0)], ORDER)
    assert [(each.load, each.consumers, each.share) for each in runs] == [
        ("W1", "Alg. 2", 97.125),
        ("W1", "aiokafka", 97.125),
        ("W2", "objective", 99.0),
    ]
    assert load_runs(folder) == runs


def test_the_page_tells_the_paper_beside_ours() -> None:
    assert section([], "papers") == []
    runs = [run("W1", "Alg. 2", paper_share=97.4, paper_minutes=30.21), run("W1", "aiokafka", scaled_as="Alg. 2")]
    text = "\n".join(section(runs, "papers"))
    assert "| Alg. 2 | 97.12 | 97.4 | 30.50 | 30.21 | 0.61 | 7 | 0 | 2 |" in text
    assert "| aiokafka, scaled as Alg. 2 | 97.12 | - | 30.50 | - |" in text
    assert "2 cores" in text
    assert f"papers/{PICTURE}" in text


def test_the_picture_has_a_panel_for_each_load(tmp_path: Path) -> None:
    runs = [run("W1", "Alg. 2", paper_share=97.4, paper_minutes=30.21), run("W2", "objective")]
    titles: list[str] = []

    def painted(figure: object) -> None:
        paint(figure, runs)
        titles.extend(axes.get_title() for axes in figure.axes)  # type: ignore[attr-defined]

    Context(quick=False, pool=None, folder=tmp_path).draw(PICTURE, "", painted)
    assert titles == ["W1", "W2"]
    assert (tmp_path / PICTURE).exists()


def test_every_plan_has_a_name_of_its_own_and_stands_behind_what_it_is_scaled_as() -> None:
    plans = real.plans()
    names = [plan.name for plan in plans]
    assert len(set(names)) == len(names) == 26
    assert all(names.index(plan.scaled_as) < names.index(plan.name) for plan in plans if plan.scaled_as)
    assert all(plan.scaled_as.startswith(plan.load) for plan in plans if plan.scaled_as)
