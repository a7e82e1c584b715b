"""Each row of the page of results has a run with its commit, and one that is of older code is found."""

from __future__ import annotations

import re

from benchmarks import __main__ as command
from benchmarks.suite.page import PAGE, PublishedRun, compared, runs_of
from benchmarks.suite.suite import WITHOUT

from architecture.tree import ROOT

KNOWN = {**command.BENCHMARKS, **{benchmark.name: benchmark for benchmark in command.SPARK}}
BY = re.compile(r"^\|.*\| (?P<by>[^|]*?),? [A-Z] \|$", re.MULTILINE)
"""A row's last cell: the benchmark, and the kind of CPU."""


def test_a_run_of_older_code_is_found_unless_the_page_says_so() -> None:
    runs = runs_of(
        "| `move` | 4b2a9b88 | 2026-11-22 00:22 | E | changed |\n"
        "| `idle` | 9e39a9f6 | 2026-11-22 02:06 | E | unchanged |\n"
        "| `wide` | 9e739957 dirty | 2026-11-22 03:16 | E | unchanged |\n"
        "| `step` | 6ac24135 | 2026-11-22 02:37 | E | unchanged |\n"
    )
    assert runs[0] == PublishedRun("move", "4b2a9b88", marked=True)
    found = {"4b2a9b88": 5, "9e39a9f6": 2, "9e739957 dirty": None, "6ac24135": 0}
    lines, unmarked = compared(runs, KNOWN, lambda commit, _: found[commit])
    assert unmarked == ["idle"]
    ends = [re.sub(r"\s+", " ", line).split(" ", 2)[2] for line in lines]
    assert ends[0] == "changed (5)"
    assert "not known" in ends[2]
    assert ends[3] == "unchanged"


def test_each_row_of_the_table_of_runs_is_read() -> None:
    """Rows that said `unchanged` were none, so that no change of their code was ever found."""
    table = PAGE.read_text().partition("## Runs")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(runs_of(table)) == len(rows) > 20


def test_every_figure_of_the_page_has_a_run_with_its_commit() -> None:
    text = PAGE.read_text()
    named = {name for cell in BY.findall(text) for name in re.findall(r"`([a-z0-9-]+)`", cell)}
    runs = {run.name for run in runs_of(text)}
    assert named
    assert sorted(named - runs) == []
    assert sorted(runs - set(KNOWN)) == []


def test_what_benchmarks_measure_is_there() -> None:
    """A path that was renamed would never have changed."""
    missing = {
        (name, path)
        for name, each in KNOWN.items()
        for path in each.code
        if not (ROOT / path.removeprefix(WITHOUT)).exists()
    }
    assert missing == set()
