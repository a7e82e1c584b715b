"""README's claims, each with what would fail if it were untrue: ``claims.toml``, held against the page."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from architecture.tree import ROOT

__all__ = ["LIST", "TESTS", "Claim", "complaints", "is_there", "load", "names_of_tests", "prose"]

LIST = Path(__file__).with_name("claims.toml")
TESTS = ROOT / "tests"
_MARKUP = re.compile(r"^(#.*|```\w*)$", re.MULTILINE)
"""Headings claim nothing, and fences are no words."""
_BULLET = re.compile(r"^\* ", re.MULTILINE)
_GONE = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One or more sentences of README."""

    says: str
    """Their words, as they stand there; how lines are broken does not count."""
    tests: Sequence[str] = ()
    """Tests that fail where this is untrue, ``file::name`` below ``tests``."""
    row: str = ""
    """How the row of docs/results.md begins that has the figure."""
    measured: str = ""
    """The figure, as that row has it."""
    because: str = ""
    """Why no test can tell."""


def load() -> list[Claim]:
    """Return the claims of the list."""
    return [Claim(**each) for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["claim"]]


def prose(page: str) -> str:
    """Return the words of a page in one line, without headings, fences and bullets."""
    return _one_line(_BULLET.sub("", _MARKUP.sub("", page)))


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """Return the names of the tests of a file, those of classes too."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_"))


def is_there(test: str) -> bool:
    """Return whether there is a test of this name, ``file::name`` below ``tests``."""
    file, _, name = test.partition("::")
    return (TESTS / file).is_file() and name in names_of_tests(TESTS / file)


def complaints(claims: Sequence[Claim], page: str, results: str) -> Iterator[str]:
    """Yield what is wrong between the claims, the page and the results, with what to do."""
    left = prose(page)
    for claim in claims:
        says = _one_line(claim.says)
        if says not in left:
            yield f"README does not say {says!r}: change this entry of {LIST.name}; do its tests show the new words?"
        left = left.replace(says, _GONE, 1)
        yield from _without_evidence(claim, results)
    for part in left.split(_GONE):
        if re.search(r"\w", part):
            yield f"no entry of {LIST.name} has {part.strip()!r}: add one with the test that fails where this is untrue"


def _without_evidence(claim: Claim, results: str) -> Iterator[str]:
    if bool(claim.tests or claim.row) == bool(claim.because):
        yield f"{claim.says!r} wants tests or a row of results, or else the reason why no test can tell"
    for test in claim.tests:
        if not is_there(test):
            yield f"{claim.says!r} names {test}, which is not there: name the test that shows it now"
    if claim.row:
        rows = [line for line in results.splitlines() if line.startswith(f"| {claim.row}")]
        if len(rows) != 1 or not claim.measured or claim.measured not in rows[0]:
            yield (
                f"{claim.says!r} rests on {claim.measured!r} in the row {claim.row!r} of docs/results.md, where it is "
                "not: see whether the sentence is still true"
            )


def _one_line(text: str) -> str:
    return " ".join(text.split())
