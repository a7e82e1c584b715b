"""Links of the documentation lead somewhere: files, headings, paths, and what docstrings refer to."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from architecture.tree import Module, ours

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


ROLE = re.compile(r":(mod|class|func|meth|data|attr|exc):`~?([.\w]+)`")


@cache
def names() -> frozenset[str]:
    """Everything that our modules define, by its full name, and what their classes get from classes of ours."""
    found: set[str] = set()
    for module in ours():
        found.add(module.name)
        found |= {f"{module.name}.{name}" for name in _bound(module.tree)}
        for name, node in module.definitions:
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found |= {f"{name}.{each}" for each in _bound(node)}
    return frozenset(found)


def _bound(node: ast.Module | ast.ClassDef) -> set[str]:
    """Names that are assigned, annotated, imported or set on ``self`` below a module or a class."""
    found: set[str] = set()
    for each in ast.walk(node) if isinstance(node, ast.ClassDef) else node.body:
        if isinstance(each, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in each.names}
        targets = each.targets if isinstance(each, ast.Assign) else [each.target] if _annotated(each) else []
        for target in (one for each in targets for one in (each.elts if isinstance(each, ast.Tuple) else [each])):
            if isinstance(target, ast.Name):
                found.add(target.id)
            elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                found.add(target.attr)
    return found


def _annotated(node: ast.AST) -> TypeGuard[ast.AnnAssign]:
    return isinstance(node, ast.AnnAssign)


def leads_nowhere(module: Module, target: str) -> bool:
    """Return whether a role's target is nothing of ours. What is named without its module may be of any."""
    assert module.path is not None
    if target.startswith("."):
        dots = len(target) - len(target.lstrip("."))
        own = module.name.split(".") + ["__init__"] * (module.path.name == "__init__.py")
        return ".".join([*own[: len(own) - dots], target.lstrip(".")]) not in names()
    if target.partition(".")[0] in PACKAGES:
        return target not in names()
    if target.partition(".")[0] in FOREIGN:
        return False
    return not any(name.endswith(f".{target}") for name in names())


PACKAGES = frozenset(module.package for module in ours())
FOREIGN = sys.stdlib_module_names | {"aiokafka", "msgspec", "prometheus_client", "pyspark"}


def test_what_docstrings_refer_to_exists() -> None:
    dead = [
        f"{module.name}: :{role}:`{target}`"
        for module in ours()
        for role, target in ROLE.findall(module.text)
        if leads_nowhere(module, target)
    ]
    assert dead == []


@pytest.mark.parametrize(
    ("target", "nowhere"),
    [
        ("loadtrim_agent.kafka.shell", True),
        ("loadtrim_agent.protocol.machine", False),
        ("loadtrim_agent.protocol.machine.Machine", False),
        (".membership", False),
        (".shell", True),
        ("..kafka.control_log", False),
        ("Machine.handle", False),
        ("Machine.hand_out", True),
    ],
)
def test_a_target_is_looked_up_from_the_module_that_names_it(target: str, nowhere: bool) -> None:
    [machine] = [module for module in ours() if module.name == "loadtrim_agent.protocol.machine"]
    assert leads_nowhere(machine, target) is nowhere


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY and page != "docs/compatibility.md"])
def test_tests_that_a_page_names_exist(page: str) -> None:
    """A guarantee is as good as the test that is named beside it. The compatibility page names aiokafka's tests."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text()))
    assert sorted(named - functions_of_tests()) == []


@cache
def functions_of_tests() -> frozenset[str]:
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))
