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
    try:
        print(chaos.run())
    except Exception:
        assert chaos.world.trace is not None
        for line in list(chaos.world.trace)[-lines:]:
            print(line)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
