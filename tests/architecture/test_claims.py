"""What README, guarantees and protocol say of tests is so: the tests are there, as many and as often as is said."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from architecture.claims import Claim, complaints, load, names_of_tests, prose
from architecture.tree import ROOT
from chaos.long.faults import FAULTS
from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.delivery.record_buffer import BATCH_RECORDS
from loadtrim_agent.planning.values import TAUS_SECONDS
from walks.scenes import WALKS
from whole.programs import PROGRAMS

TESTS = ROOT / "tests"
PAGES = ("README.md", "docs/guarantees.md", "docs/protocol.md", "docs/compatibility.md", "docs/security.md")
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def read(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def everything() -> frozenset[str]:
    return frozenset(name for path in TESTS.rglob("test_*.py") for name in names_of_tests(path))


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
        if name not in names_of_tests(ROOT / path)
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
    assert rules == [str(number) for number in range(1, 15)]
    schedules = names_of_tests(TESTS / "property" / "test_group_regressions.py")
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
    tests = re.search(r"^test: .*\n(?:\t.*\n)+", read("Makefile"), re.MULTILINE)
    assert tests is not None
    assert said == (" chaos " in tests[0] and "make test" in read(".ci/run"))


def test_kinds_of_faults_and_of_user_code_are_as_many_as_is_said() -> None:
    guarantees, protocol = (" ".join(read(f"docs/{page}.md").split()) for page in ("guarantees", "protocol"))
    for page in (guarantees, protocol):
        assert re.findall(r"(\d+) kinds of faults", page) == [str(len(FAULTS))]
    by_hand_and_in_transactions = 2
    assert f"for {NUMBERS[len(PROGRAMS) + by_hand_and_in_transactions]} shapes of user code" in guarantees


# -- README, by tests/architecture/claims.toml -------------------------------------------------------------------------


def test_every_sentence_of_readme_has_what_would_fail_without_it() -> None:
    found = list(complaints(load(), read("README.md"), read("docs/results.md")))
    assert not found, "\n".join(found)


PAGE = """# Title

A group is [quick](docs/results.md).
Nothing is
lost.

* Nothing is *repeated*.
"""
RESULTS = "| what | measured |\n| a move, p50 | 15.4 ms |\n"
HERE = "architecture/test_claims.py::test_every_guarantee_has_a_test"
QUICK = Claim(says="A group is [quick](docs/results.md).", row="a move", measured="15.4 ms")
LOST = Claim(says="Nothing is lost.", tests=[HERE])
REPEATED = Claim(says="Nothing is *repeated*.", tests=[HERE])


def test_a_page_whose_sentences_all_have_an_entry() -> None:
    assert list(complaints([QUICK, LOST, REPEATED], PAGE, RESULTS)) == []


@pytest.mark.parametrize(
    ("claims", "results", "complaint"),
    [
        ([QUICK, LOST], RESULTS, "no entry of claims.toml has 'Nothing is *repeated*.'"),
        ([QUICK, Claim(says="Nothing is late.", tests=[HERE]), REPEATED], RESULTS, "README does not say"),
        ([QUICK, LOST, Claim(says=REPEATED.says, tests=["unit/test_gone.py::test_it"])], RESULTS, "is not there"),
        ([QUICK, LOST, Claim(says=REPEATED.says, tests=[HERE + "s"])], RESULTS, "is not there"),
        ([QUICK, LOST, Claim(says=REPEATED.says)], RESULTS, "wants tests"),
        ([QUICK, LOST, Claim(says=REPEATED.says, tests=[HERE], because="no")], RESULTS, "wants tests"),
        ([QUICK, LOST, REPEATED], RESULTS.replace("15.4", "16.2"), "rests on '15.4 ms'"),
        ([QUICK, LOST, REPEATED], "", "rests on '15.4 ms'"),
    ],
    ids=["no entry", "other words", "no file", "no test", "no evidence", "a test and none", "other figure", "no row"],
)
def test_what_is_not_so_is_told(claims: list[Claim], results: str, complaint: str) -> None:
    assert any(complaint in each for each in complaints(claims, PAGE, results))


# -- what README says of commands, versions and numbers ----------------------------------------------------------------


def make(*arguments: str) -> str:
    """Return what make prints; it must not be told of the make that may run this test."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout


def test_make_lists_all_targets() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    assert phony is not None
    assert {line.split()[0] for line in make().splitlines()} == set(phony[1].split())


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("install", []),
        ("demo", ["examples/demo"]),
        ("demo-spark", ["-e '.[dev,spark-tests]'", "-m benchmarks.baselines"]),
        (
            "test",
            ["ruff check", "lint-imports", "mypy", "tests/unit tests/property", "pytest tests/integration tests/chaos"],
        ),
    ],
)
def test_make_does_what_is_said(target: str, parts: list[str]) -> None:
    """By what it would run where nothing is installed yet."""
    text = make("--dry-run", "VENV=nothing-is-here", target)
    lines = text.splitlines()
    assert lines[0].endswith(" -m venv nothing-is-here")
    assert lines[1].endswith("-e '.[dev]'")
    assert [part for part in parts if part not in text] == []
    assert parts or len(lines) == 3, "and nothing else"


@pytest.mark.parametrize("code", [0, 1])
def test_make_demo_fails_where_the_demo_does(code: int, tmp_path: Path) -> None:
    """With a Python that does nothing but end; 2 is what make says of a command that failed."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    if not code:
        make(f"VENV={tmp_path}", "demo")
        return
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make(f"VENV={tmp_path}", "demo")
    assert failed.value.returncode == 2


def test_python_versions_are_those_of_the_project_and_of_its_page() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    named = re.search(r"With Python ([\d.]+) \(\[or ([\d., ]+)\]", prose(read("README.md")))
    assert named is not None
    versions = [named[1], *named[2].split(", ")]
    assert project["requires-python"] == f">={versions[0]}"
    told = [each.rpartition(" ")[2] for each in project["classifiers"] if each.startswith("Programming Language ::")]
    assert told == versions
    page = read("docs/compatibility.md").partition("## Python versions")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d+\.\d+)\b", page, re.MULTILINE) == versions
    assert f"Python {versions[0]}" in read(".ci/run")


def test_kafka_versions_are_those_that_are_run() -> None:
    run = re.search(r"^KAFKA_VERSIONS \?= (.*)$", read("Makefile"), re.MULTILINE)
    assert run is not None
    page = read("docs/compatibility.md").partition("## Kafka versions")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d[\d.]+) \| (\d+) \| \d+ \| (\d+) \|", page, re.MULTILINE)
    assert [version for version, _, _ in rows] == run[1].split()
    assert all(int(passed) > 0 and failed == "0" for _, passed, failed in rows)
    *most, last = (version.rpartition(".")[0] for version in run[1].split())
    assert f"Kafka {', '.join(most)} and {last} are run" in prose(read("README.md"))


def test_numbers_of_readme_are_those_of_the_code() -> None:
    said = prose(read("README.md"))
    assert f"in windows of up to {max(TAUS_SECONDS):g} s" in said
    assert ("Each second the leader sizes" in said) == (DEFAULTS.decision_seconds == 1.0)
    assert f"returns at most {BATCH_RECORDS:,} records" in said
    assert f"{NUMBERS[len(WALKS)]} walks through the code" in said


def test_the_licence_is_the_one_of_the_package() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert f"Licence: {project['license']}." in read("README.md")
    assert "Apache License" in read("LICENSE")
    assert "Version 2.0" in read("LICENSE")


def test_the_package_is_described_as_readme_begins() -> None:
    description = tomllib.loads(read("pyproject.toml"))["project"]["description"]
    assert prose(read("README.md")).startswith(description)
