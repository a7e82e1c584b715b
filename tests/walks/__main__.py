"""Print the transcripts of the walks; ``--write`` puts them and their diagrams where the test expects them."""

from __future__ import annotations

import asyncio
import sys

from .page import GOLDEN, PAGE, written
from .scenes import WALKS
from .transcript import transcript


def main() -> None:
    """Play every walk."""
    for name, walk in WALKS.items():
        text = transcript(asyncio.run(walk()).steps)
        print(f"== {name}\n{text}")
        if "--write" in sys.argv:
            (GOLDEN / f"{name}.txt").write_text(text)
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
