"""``make ceilings``: writes the exceptions that are smaller today, and says which have grown."""

from __future__ import annotations

import sys

from architecture.checks import CHECKS
from architecture.ratchet import EXCEPTIONS, Refused, read, tightened, written


def main() -> int:
    """Rewrite the list, downwards only."""
    listed = read(EXCEPTIONS.read_text(encoding="utf-8"))
    tables, refused = [], []
    for ceiling, count in CHECKS:
        before = listed.get(ceiling.title, {})
        try:
            after = tightened(ceiling, count(), before)
        except Refused as error:
            refused.append(str(error))
            after = error.table
        tables.append((ceiling.title, after))
        print(f"{ceiling.title}: {len(before)} -> {len(after)} names, {sum(before.values())} -> {sum(after.values())}")
    EXCEPTIONS.write_text(written(tables), encoding="utf-8")
    if refused:
        print(*refused, sep="\n", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
