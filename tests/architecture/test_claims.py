"""What README, guarantees and protocol say of tests is so: the tests are there, as many and as often as is said."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from architecture.tree import ROOT
from chaos.long.faults import FAULTS
from whole.programs import PROGRAMS

TESTS = ROOT / "tests"
PAGES = ("README.md", "docs/guarantees.md", "docs/protocol.md", "docs/compatibility.md", "docs/security.md")
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def read(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of the tests of a file, those of classes too."""
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_"))


@cache
def everything() -> frozenset[str]:
    return frozenset(name for path in TESTS.rglob("test_*.py") for name in functions(path))


@pytest.mark.parametrize("page", ["docs/guarantees.md", "docs/protocol.md", "docs/security.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", read(page)))
    assert sorted(named - everything()) == []


@pytest.mark.parametrize("page", ["docs/guarantees.md", "docs/protocol.md"])
def test_a_test_that_is_named_behind_its_file_stands_in_it(page: str) -> None:
    wrong = [
        (path, name)
        for path, names in re.findall(r"`(tests/[\w/]+\.py)` \(((?:`test_\w+`(?:, )?)+)\)", read(page))
        for name in re.findall(r"test_\w+", names)
        if name not in functions(ROOT / path)
    ]
    assert wrong == []


def test_every_guarantee_has_a_test() -> None:
    """The last cell of a row of both tables names a test, a file of tests, or a command that plays it."""
    tables = read("docs/guarantees.md").partition("## What Kafka's own tools show")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("|---")]
    without = [row for row in rows if not re.search(r"`test_|`tests/|`make ", row.rpartition(" | ")[2])]
    assert [row for row in without if not row.endswith("| shown by |")] == []
    assert len(rows) > 30


def test_every_rule_has_a_schedule_that_goes_wrong_without_it() -> None:
    rules = re.findall(r"^(\d+)\. ", read("docs/protocol.md").partition("## The rules")[2], re.MULTILINE)
    assert rules == [str(number) for number in range(1, 14)]
    schedules = functions(TESTS / "property" / "test_group_regressions.py")
    assert [rule for rule in rules if not any(name.startswith(f"test_{rule}_") for name in schedules)] == []


def test_as_many_seeds_are_played_as_is_said() -> None:
    makefile, runs = read("Makefile"), read(".ci/run")
    protocol, whole = (re.search(rf"^{name} \?= (\d+)$", makefile, re.MULTILINE) for name in ("SEEDS", "WHOLE"))
    assert protocol is not None
    assert whole is not None
    said = " ".join(read("docs/protocol.md").split())
    assert f"CI plays {int(protocol[1]):,} and {whole[1]} seeds that the commit names" in said
    assert re.search(r"make sim FIRST=", runs)


def test_ci_plays_chaos_if_that_is_said() -> None:
    """As long as it does not, no page may say so."""
    said = any(re.search(r"CI plays [\w ]*minutes", " ".join(read(page).split())) for page in PAGES)
    assert said == ("make chaos" in read(".ci/run"))


def test_kinds_of_faults_and_of_user_code_are_as_many_as_is_said() -> None:
    guarantees, protocol = (" ".join(read(f"docs/{page}.md").split()) for page in ("guarantees", "protocol"))
    for page in (guarantees, protocol):
        assert re.findall(r"(\d+) kinds of faults", page) == [str(len(FAULTS))]
    by_hand_and_in_transactions = 2
    assert f"for {NUMBERS[len(PROGRAMS) + by_hand_and_in_transactions]} shapes of user code" in guarantees
