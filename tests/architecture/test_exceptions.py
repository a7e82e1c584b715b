"""What is over a ceiling is listed with today's number, and no number is larger than it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from architecture.checks import CHECKS
from architecture.ratchet import EXCEPTIONS, grown, problems, read

CEILINGS = [ceiling for ceiling, _ in CHECKS]


def test_the_list_has_a_table_per_check() -> None:
    assert list(read(EXCEPTIONS.read_text(encoding="utf-8"))) == [ceiling.title for ceiling, _ in CHECKS]


@pytest.mark.parametrize("title", [ceiling.title for ceiling, _ in CHECKS])
def test_nothing_grows(title: str) -> None:
    [(ceiling, count)] = [each for each in CHECKS if each[0].title == title]
    found = problems(ceiling, count(), read(EXCEPTIONS.read_text(encoding="utf-8"))[title])
    assert not found, "\n".join(["", *found])


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints; empty where it fails (no such commit, no repository)."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def earlier_lists(file: Path) -> dict[str, str]:
    """Return the list as committed last, before that, and where this branch began, as far as these are there."""
    began = git(file.parent, "merge-base", "HEAD", "origin/main").strip()
    found = {name: git(file.parent, "show", f"{name}:./{file.name}") for name in ("HEAD", "HEAD^", began) if name}
    return {name: text for name, text in found.items() if text}


def test_no_number_was_typed_that_is_larger_than_before() -> None:
    now = read(EXCEPTIONS.read_text(encoding="utf-8"))
    more = {name: grown(CEILINGS, now, read(text)) for name, text in earlier_lists(EXCEPTIONS).items()}
    found = [f"{name} had less.\n{text}" for name, text in more.items() if text]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("committed", [False, True])
def test_a_number_that_is_typed_larger_is_found_committed_or_not(tmp_path: Path, committed: bool) -> None:
    file, identity = tmp_path / "exceptions.toml", ("-c", "user.name=a", "-c", "user.email=a@b")
    git(tmp_path, "init", "-q")
    assert earlier_lists(file) == {}
    file.write_text('[methods with inherited]\n"a.C" = 30\n"a.D" = 27\n')
    git(tmp_path, "add", ".")
    git(tmp_path, *identity, "commit", "-q", "-m", "list")
    file.write_text('[methods with inherited]\n"a.C" = 31\n')
    if committed:
        git(tmp_path, *identity, "commit", "-q", "-a", "-m", "more")
    assert any(grown(CEILINGS, read(file.read_text()), read(text)) for text in earlier_lists(file).values())


def test_a_list_that_shrinks_or_follows_a_rename_has_not_grown() -> None:
    before = {"methods with inherited": {"a.C": 30, "a.D": 27}}
    assert grown(CEILINGS, {"methods with inherited": {"a.C": 29, "b.D": 27}}, before) == ""
    assert "b.E: 28 is new" in grown(CEILINGS, {"methods with inherited": {"a.C": 30, "a.D": 27, "b.E": 28}}, before)
    assert grown(CEILINGS, {"methods with inherited": {}, "files": {"a": 700}}, before) == "", "the check is new"
