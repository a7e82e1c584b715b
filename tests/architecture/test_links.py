"""Links of the documentation lead somewhere: files, headings, and paths that prose and docstrings name."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "agent|benchmarks|consumer_sdk|docs|examples|spark|tests"
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
NAMED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*\w\.(?:md|py|json|jsonl|txt|png))\b")
"""A path from the root of the project."""
HOMES = ("", "agent/loadtrim_agent", "consumer_sdk/loadtrim", "spark/loadtrim_spark", "spark")
"""Where a path in prose may begin."""
HISTORY = {"CHANGELOG.md"}
"""Tells of files as they were."""
ELSEWHERE = {"tests/test_consumer.py", "src/controller/approximation_algorithms.py"}
"""In the repositories of others."""


def tracked(pattern: str) -> list[str]:
    """Files of the project, those that are new included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(name for name in found if (ROOT / name).exists())


PAGES = tracked("*.md")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    texts = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts)


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files_and_headings(page: str) -> None:
    dead = []
    for target in LINK.findall(FENCE.sub("", (ROOT / page).read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = set(NAMED.findall((ROOT / page).read_text()))
    assert sorted(path for path in named if path not in ELSEWHERE and not (ROOT / path).exists()) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY])
def test_modules_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / page).read_text()))
    assert sorted(path for path in named - ELSEWHERE if not any((ROOT / home / path).exists() for home in HOMES)) == []


def test_pages_that_the_code_names_exist() -> None:
    named = {
        (name, path)
        for name in tracked("*.py")
        for path in re.findall(r"\bdocs/[\w./-]+\.md\b", (ROOT / name).read_text())
    }
    assert sorted(each for each in named if not (ROOT / each[1]).exists()) == []


def test_decisions_are_named_by_page_and_all_are_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")} - {"README.md"}
    assert {target for target in LINK.findall(index) if "/" not in target} == pages
    numbered = re.compile(r"\(decisions? \d+\b|\bdocs/decisions/\d")
    assert [name for name in (*tracked("*.py"), *PAGES) if numbered.search((ROOT / name).read_text())] == []
