"""A walk as text, read back from text, and as a Mermaid sequence diagram."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .recorder import BACK, CALL, RESULT, THEN, Step

__all__ = ["between", "diagram", "files", "parse", "transcript"]

_STEP = re.compile(r"(.+?) (-->|->|-\^|~>) (.+): (.+)")
_DRAWN = {CALL: "->>", RESULT: "-->>", BACK: "-)", THEN: "--)"}
"""Arrow of a Mermaid sequence diagram by kind."""


def transcript(steps: Sequence[Step]) -> str:
    """One line per step, then how many files of this project the item passes."""
    lines = [f"{step.come_from} {step.kind} {step.to}: {step.form}" for step in steps]
    return "\n".join([*lines, "", f"{len(files(steps))} files", ""])


def parse(text: str) -> list[Step]:
    """The steps of a transcript."""
    found = (_STEP.fullmatch(line) for line in text.splitlines())
    return [Step(m[1], m[3], m[4], m[2]) for m in found if m is not None]


def files(steps: Iterable[Step]) -> list[str]:
    """The files of this project that the item passes, in order."""
    return [stop for stop in _stops(steps) if stop.endswith(".py")]


def diagram(steps: Sequence[Step]) -> str:
    """A Mermaid sequence diagram; the page's legend says what the arrows mean."""
    names = {stop: f"p{number}" for number, stop in enumerate(_stops(steps))}
    lines = ["```mermaid", "sequenceDiagram"]
    lines += [f"    participant {name} as {_short(stop)}" for stop, name in names.items()]
    for step in steps:
        text = f"then: {step.form}" if step.kind == THEN else step.form
        lines.append(f"    {names[step.come_from]}{_DRAWN[step.kind]}{names[step.to]}: {text}")
    return "\n".join([*lines, "```"])


def between(page: str, walk: str) -> tuple[int, int]:
    """Where the diagram of a walk stands in a page: begin and end of the text between its marks.

    Raises:
        ValueError: the page has no such marks.
    """
    begin, end = f"<!-- walk: {walk} -->\n\n", f"\n\n<!-- end of walk: {walk} -->"
    start = page.index(begin) + len(begin)
    return start, page.index(end, start)


def _stops(steps: Iterable[Step]) -> list[str]:
    return list(dict.fromkeys(stop for step in steps for stop in (step.come_from, step.to)))


def _short(stop: str) -> str:
    return stop.removeprefix("loadtrim_agent/").removesuffix(".py")
