"""``python -m sim SEED [LINES]``: replay one seed and print the last lines of what happened."""

from __future__ import annotations

import sys
import traceback

from .chaos import Chaos


def main(arguments: list[str]) -> int:
    seed = int(arguments[0])
    lines = int(arguments[1]) if len(arguments) > 1 else 200
    chaos = Chaos(seed, trace=True)
    print(chaos.options)
    told, failed = "", 0
    try:
        told = str(chaos.run())
    except Exception:
        told, failed = traceback.format_exc().rstrip(), 1
    assert chaos.world.trace is not None
    print(*list(chaos.world.trace)[-lines:], sep="\n")
    print(told)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
