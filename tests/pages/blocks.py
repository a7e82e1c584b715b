"""The code blocks of the documentation: what a reader copies."""

from __future__ import annotations

import re
import subprocess
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks", "blocks_of", "pages", "program"]

ROOT = Path(__file__).parents[2]
HISTORY = {"CHANGELOG.md"}
"""Pages that tell of the code as it was."""
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ \t]*$", re.M | re.S)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_RUNS = re.compile(r"<!-- runs: (?P<tests>[\w, ]+) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Relative to the repository."""
    line: int
    section: str
    """The heading above it."""
    language: str
    """As the fence names it; empty: it names none."""
    text: str
    runs: tuple[str, ...]
    """Tests that run it as it stands, by name: it is a whole program. They are named in a comment above it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> tuple[str, ...]:
    """Return the pages that tell of the code as it is, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return tuple(sorted(name for name in found if (ROOT / name).exists() and name not in HISTORY))


@cache
def blocks() -> tuple[Block, ...]:
    """Return all blocks of all pages."""
    return tuple(block for page in pages() for block in blocks_of(page, (ROOT / page).read_text()))


def blocks_of(page: str, text: str) -> list[Block]:
    """Return the blocks of one page, in order."""
    found = []
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()]
        headings = _HEADING.findall(_FENCE.sub("", before))
        runs = _RUNS.search(before)
        found.append(
            Block(
                page=page,
                line=before.count("\n") + 1,
                section=headings[-1] if headings else "",
                language=fence["language"],
                text=textwrap.dedent(fence["text"]),
                runs=tuple(runs["tests"].split(", ")) if runs else (),
            )
        )
    return found


def program(page: str, section: str) -> str:
    """Return the whole program of a section; that there is one only is for the caller to rely on."""
    [text] = [block.text for block in blocks() if (block.page, block.section) == (page, section) and block.runs]
    return text
