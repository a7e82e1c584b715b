"""A figure is told to be of older code where what it measures has changed since, and where nobody can know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from benchmarks.code_state import changes_since, commit_now, told
from benchmarks.suite.suite import WITHOUT

MEASURED = ("agent", "bench.py")


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-m", text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "repository"
    home.mkdir()
    git(home, "init", "-q")
    commit(home, "agent/lease.py", "first")
    return home


def test_a_commit_is_told_and_a_work_tree_that_differs_too(root: Path) -> None:
    clean = commit_now(root)
    assert len(clean) == 9
    (root / "agent" / "new.py").write_text("untracked")
    assert commit_now(root) == f"{clean} dirty"


def test_only_what_is_measured_makes_a_figure_old(root: Path) -> None:
    measured_at = commit_now(root)
    assert told(changes_since(measured_at, MEASURED, root)) == "unchanged"
    commit(root, "pages/other.md", "another page")
    assert changes_since(measured_at, MEASURED, root) == 0
    commit(root, "agent/lease.py", "second")
    commit(root, "bench.py", "another target")
    (root / "agent" / "lease.py").write_text("third")
    assert told(changes_since(measured_at, MEASURED, root)) == "changed (3)"


def test_what_is_left_out_makes_no_figure_old(root: Path) -> None:
    measured_at = commit_now(root)
    commit(root, "agent/planning.py", "another plan")
    without = (*MEASURED, f"{WITHOUT}agent/planning.py")
    assert (changes_since(measured_at, MEASURED, root), changes_since(measured_at, without, root)) == (1, 0)
    (root / "agent" / "planning.py").write_text("and another")
    assert changes_since(measured_at, without, root) == 0


def test_a_figure_of_no_commit_is_old_at_once(root: Path) -> None:
    assert changes_since(f"{commit_now(root)} dirty", MEASURED, root) == 1


def test_what_history_does_not_reach_is_not_known(root: Path, tmp_path: Path) -> None:
    """Neither a shallow clone, nor a tree without history, nor a figure without a commit is taken for current."""
    measured_at = commit_now(root)
    commit(root, "agent/lease.py", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", root.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    assert changes_since(measured_at, MEASURED, shallow) is None
    assert changes_since(commit_now(shallow), MEASURED, shallow) == 0
    assert (commit_now(tmp_path), changes_since(measured_at, MEASURED, tmp_path)) == ("", None)
    assert changes_since("", MEASURED, root) is None
    assert "not known" in told(None)
