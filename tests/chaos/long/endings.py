"""How the processes of a run ended, and which of that somebody had asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from demo.journal import clock_ns

from .evidence import Ending

__all__ = ["Endings"]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    names: frozenset[str]
    codes: frozenset[int]
    crash: bool


class Endings:
    """The ends of processes.

    Attributes:
        found: by the process's name.
    """

    def __init__(self) -> None:
        self.found: dict[str, Ending] = {}
        self._asked: list[_Asked] = []

    @contextlib.contextmanager
    def expecting(self, names: Iterable[str], *codes: int, crash: bool = False) -> Iterator[None]:
        """Within this block let processes end with one of these codes; whatever they do afterwards nobody asked for.

        Args:
            names: of the processes.
            codes: exit codes.
            crash: what such a process had done since its last commit may be done again.
        """
        asked = _Asked(frozenset(names), frozenset(codes), crash)
        self._asked.append(asked)
        try:
            yield
        finally:
            self._asked.remove(asked)

    def ended(self, name: str, code: int, *, expected: bool = False) -> None:
        """Note the end of a process."""
        asked = [each for each in self._asked if name in each.names and code in each.codes]
        crash = any(each.crash for each in asked)
        self.found[name] = Ending(at_ns=clock_ns(), code=code, crash=crash, expected=expected or bool(asked))

    def wrong(self, what: str) -> None:
        """Note what nobody asked for, in words."""
        self.found[what] = Ending(at_ns=clock_ns(), code=0, expected=False)
