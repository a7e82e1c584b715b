"""docs/reference.md and docs/glossary.md name what there is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from architecture.tree import Module, ours
from loadtrim import Settings

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
SETTING = re.compile(r"^\| `LOADTRIM_(\w+)` \| (.*?) \|", re.MULTILINE)

WITHOUT_VALUE = {
    "max_replicas": "number of partitions",
    "instance": "host name in a container, else host name and process id",
    "control_topic": "__loadtrim.<group>",
    "requested_at": "the process's start",
}
"""What takes the place of a setting that is not given. Tests beside what does it hold each: ``common.host``,
``wire.topic_names``, ``delivery.metering_task`` and ``planning.planner``."""


def test_every_setting_is_there_with_its_default() -> None:
    told = {name.lower(): default for name, default in SETTING.findall(REFERENCE)}
    fields = msgspec.structs.fields(Settings)
    assert told.keys() == {field.name for field in fields}
    defaults = {field.name: str(field.default).lower() for field in fields if field.default not in ("", None)}
    defaults |= {field.name: "empty" for field in fields if field.default == ""} | WITHOUT_VALUE
    assert {name: default.strip("`").lower() for name, default in told.items()} == defaults


def test_names_of_the_glossary_are_in_the_code() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| [^|]* \| (`[^|]+) \|$", glossary, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    settings = {f"LOADTRIM_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
    assert sorted(named - names_of(ours()) - settings) == []


def test_a_word_of_a_comment_is_no_name_of_the_code() -> None:
    text = "# handoff\nclass Lease:\n    until: float\n    def give(self, now): self.drained = now\n"
    names = names_of([Module("room.lease", text)])
    assert {"lease", "Lease", "until", "give", "drained", "now"} <= names
    assert "handoff" not in names


def names_of(modules: Iterable[Module]) -> set[str]:
    """Return what modules define: their own names, classes, functions, parameters, fields and variables."""
    found: set[str] = set()
    for module in modules:
        found.add(module.name.rpartition(".")[2])
        for node in ast.walk(module.tree):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    found.add(node.name)
                case ast.arg():
                    found.add(node.arg)
                case ast.Name(ctx=ast.Store()):
                    found.add(node.id)
                case ast.Attribute(ctx=ast.Store()):
                    found.add(node.attr)
    return found
