"""What docs/architecture.md says of the walks: their diagrams, and how many files each passes."""

from __future__ import annotations

import re
from pathlib import Path

from .transcript import between, diagram, files, parse

__all__ = ["GOLDEN", "PAGE", "written"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
GOLDEN = ROOT / "tests" / "golden" / "walks"
_WALK = re.compile(r"^(\| (\w+) \| )\d+( \| \d+ \|)$", re.MULTILINE)


def written(page: str) -> str:
    """The page with the diagrams of the transcripts and the counts of their files."""
    walks = {path.stem: parse(path.read_text()) for path in sorted(GOLDEN.glob("*.txt"))}
    page = _WALK.sub(lambda m: f"{m[1]}{len(files(walks[m[2]]))}{m[3]}", page)
    for walk, steps in walks.items():
        begin, end = between(page, walk)
        page = page[:begin] + diagram(steps) + page[end:]
    return page
