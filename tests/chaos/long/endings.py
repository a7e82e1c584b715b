"""How the processes of a run ended, and which of that somebody had asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from demo.journal import clock_ns

from .evidence import Ending

__all__ = ["Endings", "heeds_sigterm"]


def heeds_sigterm(journal: Iterable[list[str]]) -> bool:
    """Whether a process, by its journal, has a consumer that handles SIGTERM: not before it, nor after it."""
    kinds = {line[0] for line in journal}
    return "H" in kinds and "E" not in kinds


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    names: frozenset[str]
    codes: frozenset[int]
    crash: bool
    stop_ns: int


class Endings:
    """The ends of processes.

    Attributes:
        found: by the process's name.
    """

    def __init__(self) -> None:
        self.found: dict[str, Ending] = {}
        self._asked: list[_Asked] = []

    @contextlib.contextmanager
    def expecting(self, names: Iterable[str], *codes: int, crash: bool = False, stop: bool = False) -> Iterator[None]:
        """Within this block let processes end with one of these codes; whatever they do afterwards nobody asked for.

        Args:
            names: of the processes.
            codes: exit codes.
            crash: what such a process had done since its last commit may be done again.
            stop: from now on it may leave its group.
        """
        asked = _Asked(frozenset(names), frozenset(codes), crash, clock_ns() if stop else 0)
        self._asked.append(asked)
        try:
            yield
        finally:
            self._asked.remove(asked)

    def ended(self, name: str, code: int, *, expected: bool = False) -> None:
        """Note the end of a process."""
        of_it = [each for each in self._asked if name in each.names]
        asked = [each for each in of_it if code in each.codes]
        self.found[name] = Ending(
            at_ns=clock_ns(),
            code=code,
            crash=any(each.crash for each in asked),
            expected=expected or bool(asked),
            asked_ns=min((each.stop_ns for each in of_it if each.stop_ns), default=0),
        )

    def wrong(self, what: str) -> None:
        """Note what nobody asked for, in words."""
        self.found[what] = Ending(at_ns=clock_ns(), code=0, expected=False)
