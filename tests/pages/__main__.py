"""Print the parts of pages that are made from the code; ``--write`` puts them on their pages."""

from __future__ import annotations

import sys

from .metrics import PAGE, made, written


def main() -> None:
    """Make every part."""
    for name, text in made().items():
        print(f"== {name}\n{text}")
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
