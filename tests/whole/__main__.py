"""``python -m whole SEED [LINES]``: replay one seed and print the last lines of what happened."""

from __future__ import annotations

import logging
import sys
import time
import traceback

from .chaos import Chaos


def main(arguments: list[str]) -> int:
    seed = int(arguments[0])
    lines = int(arguments[1]) if len(arguments) > 1 else 200
    chaos = Chaos(seed, trace=True)
    world = chaos.world
    print(chaos.options)

    class Traced(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            process = world.kernel._current
            world.note(process.name if process else "", f"    {record.levelname} {record.getMessage()}")

    logging.getLogger("loadtrim").addHandler(Traced())
    logging.getLogger("loadtrim").setLevel(logging.DEBUG)
    began = time.perf_counter()
    try:
        print(chaos.run(), f"{time.perf_counter() - began:.2f} s")
    except BaseException:
        assert world.trace is not None
        for line in list(world.trace)[-lines:]:
            print(line)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
