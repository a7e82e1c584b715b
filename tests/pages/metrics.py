"""docs/metrics.md: the table of metrics from the code, and that of the alerts from their rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from loadtrim_agent.observability.families import FAMILIES, Family

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "examples" / "alerts" / "loadtrim.yml"

_RULE = re.compile(
    r"^ {6}- alert: (?P<name>\w+)\n"
    r" {8}expr: \|\n(?P<expr>(?: {10}.*\n)+)"
    r"(?: {8}for: (?P<lasts>\w+)\n)?"
    r" {8}labels: \{severity: (?P<severity>\w+)\}\n"
    r" {8}annotations:\n"
    r' {10}summary: "(?P<summary>.*)"\n'
    r' {10}action: "(?P<action>.*)"\n',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Rule:
    """One alert of the rules."""

    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    action: str


def rules(text: str) -> list[Rule]:
    """Read the rules' file; a rule that is written otherwise than the others fails.

    Raises:
        ValueError: a rule has another form.
    """
    found = [Rule(**{key: value or "" for key, value in match.groupdict().items()}) for match in _RULE.finditer(text)]
    if len(found) != text.count("- alert:"):
        raise ValueError(f"of {text.count('- alert:')} rules {len(found)} can be read: {[rule.name for rule in found]}")
    return found


def made() -> dict[str, str]:
    """Make each part, by the name of its markers."""
    return {"metrics": _metrics(), "alerts": _alerts()}


def written(page: str) -> str:
    """Put each part between its markers.

    Raises:
        ValueError: the page has no such markers.
    """
    for name, text in made().items():
        begin, end = f"<!-- made: {name} -->\n", f"<!-- end of made: {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{PAGE.name} has no place for {name}: {begin.strip()} and {end}")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def _metrics() -> str:
    head = "| name | kind | unit | labels | tells |\n|---|---|---|---|---|\n"
    return head + "".join(_row(family) for family in FAMILIES)


def _row(family: Family) -> str:
    labels = [f"`{label}`" for label in family.labels]
    if family.words:
        labels[-1] += f" ({', '.join(f'`{word}`' for word in family.words)})"
    tells = re.sub(r"\b(loadtrim_\w+|LOADTRIM_\w+)", r"`\1`", family.help)
    return f"| `{family.name}` | {family.kind} | {family.unit} | {', '.join(labels)} | {tells} |\n"


def _alerts() -> str:
    return "\n".join(_alert(rule) for rule in rules(RULES.read_text()))


def _alert(rule: Rule) -> str:
    summary = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", r"*\1*", rule.summary)
    lasts = f", for {rule.lasts}" if rule.lasts else ""
    expr = re.sub(r"^ {10}", "", rule.expr, flags=re.MULTILINE)
    return f"### {rule.name}\n\n{summary} ({rule.severity}{lasts}). {rule.action}\n\n```promql\n{expr}```\n"
