"""The lists of mutants fit the source of now, so that they cannot rot between two runs of ``make mutants``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mutants.catalogue import Mutant, complaints, load

MUTANTS = load()
LEAST = 80
"""Wanted: so many that can be noticed, over the protocol and what carries it out."""


def test_every_mutant_fits_the_source_and_has_a_killer_that_exists() -> None:
    """A source that has changed wants its mutants changed with it: see CONTRIBUTING."""
    assert list(complaints(MUTANTS)) == []


def test_there_are_as_many_as_were_wanted() -> None:
    assert sum(not mutant.equivalent for mutant in MUTANTS) >= LEAST
    assert any(mutant.simulation for mutant in MUTANTS), "the simulation is to notice one, which any schedule shows"


GOOD = Mutant(
    name="made_up",
    area="none",
    breaks="Nothing.",
    file="agent/room/limits.py",
    before="LIMIT = 80",
    after="LIMIT = 81",
    killer="tests/test_limits.py::test_the_limit[80]",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("agent/room", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / GOOD.file).write_text("LIMIT = 80\nLEAST = 1\nMOST = 1\n")
    (tmp_path / "tests/test_limits.py").write_text("def test_the_limit(limit): assert limit\n")
    return tmp_path


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (replace(GOOD, before="LIMIT = 79"), "stands in agent/room/limits.py 0 times, not once"),
        (replace(GOOD, before=" = 1"), "stands in agent/room/limits.py 2 times, not once"),
        (replace(GOOD, file="agent/room/gone.py"), "agent/room/gone.py is gone"),
        (replace(GOOD, after="LIMIT =  80"), "changes nothing but the layout"),
        (replace(GOOD, after="LIMIT = ="), "does not compile"),
        (replace(GOOD, killer=""), "has either a killer or a reason"),
        (replace(GOOD, equivalent="It says so."), "has either a killer or a reason"),
        (replace(GOOD, killer="tests/test_limits.py::test_nothing"), "does not exist"),
        (replace(GOOD, killer="tests/nowhere.py::test_nothing"), "does not exist"),
    ],
)
def test_each_misfit_is_told(mutant: Mutant, says: str, tree: Path) -> None:
    [told] = complaints([mutant], tree)
    assert says in told


def test_two_of_one_name_are_told(tree: Path) -> None:
    assert list(complaints([GOOD, replace(GOOD, name="other", killer="sim 7")], tree)) == []
    assert list(complaints([GOOD, GOOD], tree)) == ["made_up: 2 mutants have this name"]
