"""docs/reference.md and docs/glossary.md name what there is in the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from loadtrim import Settings
from loadtrim_agent.observability.metrics import FAMILIES

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


def test_every_metric_is_there() -> None:
    told = re.findall(r"^\| `(loadtrim_\w+)` \| (\w+) \|", REFERENCE, re.MULTILINE)
    assert sorted(told) == sorted((family.name, family.kind) for family in FAMILIES)


def test_names_of_the_glossary_are_in_the_code() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| [^|]* \| (`[^|]+) \|$", glossary, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    folders = ("agent", "consumer_sdk", "spark", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text())} | {path.stem for path in files}
    assert sorted(named - words) == []
