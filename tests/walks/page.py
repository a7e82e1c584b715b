"""What docs/architecture.md says of the tree: counts of modules and of the files that a walk passes."""

from __future__ import annotations

import re
from pathlib import Path

from .transcript import between, diagram, files, parse

__all__ = ["GOLDEN", "PAGE", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
GOLDEN = ROOT / "tests" / "golden" / "walks"
_ROOM = re.compile(r"^(\| (?:\d \| )?`([\w/]+)` \| )\d+( \|)", re.MULTILINE)
_WALK = re.compile(r"^(\| (\w+) \| )\d+( \| \d+ \|)$", re.MULTILINE)


def written(page: str) -> str:
    """The page with today's counts and the diagrams of the transcripts."""
    page = _ROOM.sub(lambda m: f"{m[1]}{_modules(m[2])}{m[3]}", page)
    walks = {path.stem: parse(path.read_text()) for path in sorted(GOLDEN.glob("*.txt"))}
    page = _WALK.sub(lambda m: f"{m[1]}{len(files(walks[m[2]]))}{m[3]}", page)
    for walk, steps in walks.items():
        begin, end = between(page, walk)
        page = page[:begin] + diagram(steps) + page[end:]
    return page


def _modules(room: str) -> int:
    """Modules of a room of the agent, or below a folder of the project; ``__init__`` is none."""
    agent = ROOT / "agent" / "loadtrim_agent" / room
    found = (agent if agent.is_dir() else ROOT / room).rglob("*.py")
    return sum(path.name != "__init__.py" for path in found)
