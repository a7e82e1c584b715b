"""What benchmarks found is kept beside the others' figures, and gathered for a release with what is missing named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks import results
from benchmarks.suite.results import BenchmarkResult, Figure, load_results, merge, render_text

FOUND = BenchmarkResult(
    name="move",
    title="A move",
    command="make bench",
    at="2026-01-01",
    seconds=1.0,
    machine="2 cores",
    load_average=0.0,
    quick=False,
    figures=(Figure(name="gap", value=0.03, unit="ms", at_most=0.02), Figure(name="moves", value=3)),
)


def test_a_benchmark_keeps_the_figures_of_the_others(tmp_path: Path) -> None:
    merge(FOUND, tmp_path)
    merge(msgspec.structs.replace(FOUND, name="idle", title="Idle"), tmp_path)
    merge(msgspec.structs.replace(FOUND, seconds=2.0), tmp_path)
    assert {name: each.seconds for name, each in load_results(tmp_path).items()} == {"move": 2.0, "idle": 1.0}
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| gap | <= 20.0 ms | 30.0 ms |  | missed by 50% |" in page
    assert page.index("## Idle") < page.index("## A move")


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    gap, moves = render_text(FOUND).splitlines()[1:]
    assert "missed by 50%" in gap
    assert not any(word in moves for word in ("met", "missed"))


def test_a_share_that_is_missed_is_told_in_points() -> None:
    share = Figure(name="share in time", value=99.4, unit="%", at_least=99.9)
    assert "missed by 0.5 points" in render_text(msgspec.structs.replace(FOUND, figures=(share,)))


def test_each_result_says_which_code_and_which_processor_it_is_of(tmp_path: Path) -> None:
    merge(msgspec.structs.replace(FOUND, commit="1a2b3c4d5 dirty", machine="2 cores, AMD EPYC"), tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "commit 1a2b3c4d5 dirty; 2 cores, AMD EPYC." in page
    assert results.gather(tmp_path, tmp_path / "results") == ["benchmarks.md"]
    index = (tmp_path / "results" / "README.md").read_text()
    assert "| move | 1a2b3c4d5 dirty | not known (git's history does not reach there) | 2026-01-01 |" in index


def test_a_release_holds_the_pages_with_their_files_and_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merge(FOUND, tmp_path)
    papers = tmp_path / "papers"
    papers.mkdir()
    for name in ("papers.md", "x.json", "x.png", "runs.jsonl"):
        (papers / name).write_text("")
    folder = tmp_path / "results"
    told = ["--source", str(tmp_path), "--out", str(folder)]
    assert results.main(told) == 0
    gathered = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    page = {"papers/papers.md", "papers/x.json", "papers/x.png"}
    assert gathered == {"README.md", "benchmarks.md", "benchmarks.json", *page}
    assert "`make compare` makes it" in capsys.readouterr().err
    assert "Every policy on every load: not measured" in (folder / "README.md").read_text()


def test_without_measurements_there_is_no_release(tmp_path: Path) -> None:
    assert results.main(["--source", str(tmp_path), "--out", str(tmp_path / "results")]) == 1
