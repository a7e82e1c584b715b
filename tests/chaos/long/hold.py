"""A place in a process where a test may hold it up: in the middle of a transaction, say."""

from __future__ import annotations

import asyncio
from pathlib import Path

from integration.harness import eventually

__all__ = ["Hold"]

LOOK_SECONDS = 0.01
OBEYED_SECONDS = 30.0
"""A member that has just come is given something to do after a session of its predecessor's."""
HELD_SECONDS_MAX = 30.0
"""A process whose test has gone goes on after this."""


class Hold:
    """A file that both sides know: the test writes a place's name into it, the process takes it away there.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._asked = path
        self._held = path.with_suffix(".held")

    # -- the process -----------------------------------------------------------------------------------------------

    async def here(self, place: str) -> None:
        """Wait as long as the test wants this process to stay at this place."""
        if not self._asked.exists() or self._asked.read_text() != place:
            return
        self._asked.rename(self._held)
        for _ in range(round(HELD_SECONDS_MAX / LOOK_SECONDS)):
            if not self._held.exists():
                return
            await asyncio.sleep(LOOK_SECONDS)

    # -- the test --------------------------------------------------------------------------------------------------

    async def ask(self, place: str) -> None:
        """Hold the process up at a place, and return when it is there.

        Raises:
            AssertionError: it does not come there.
        """
        new = self._asked.with_suffix(".new")
        new.write_text(place)
        new.rename(self._asked)
        try:
            await eventually(self._held.exists, f"a process comes to {place!r}", OBEYED_SECONDS)
        finally:
            self._asked.unlink(missing_ok=True)

    def release(self) -> None:
        """Let it go on."""
        self._held.unlink(missing_ok=True)
