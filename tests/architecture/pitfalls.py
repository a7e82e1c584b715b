"""Pitfalls of scaling on Kubernetes, each with the tests that fail where we fall into it: ``pitfalls.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from architecture.claims import TESTS, is_there

__all__ = ["COUNT", "LIST", "Pitfall", "complaints", "load"]

LIST = TESTS / "kubernetes" / "pitfalls.toml"
COUNT = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Pitfall:
    """One pitfall."""

    number: int
    title: str
    tests: Sequence[str] = ()
    """Tests that fail where we fall into it, ``file::name`` below ``tests``."""
    why: str = ""
    """What of it no test shows, and why."""


def load() -> list[Pitfall]:
    """Return the pitfalls of the list."""
    return [Pitfall(**each) for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["pitfall"]]


def complaints(pitfalls: Sequence[Pitfall]) -> Iterator[str]:
    """Yield what is wrong with the list."""
    if [each.number for each in pitfalls] != list(range(1, COUNT + 1)):
        yield f"{LIST.name} does not number its pitfalls from 1 to {COUNT}, each once and in order"
    for each in pitfalls:
        if not each.tests and not each.why:
            yield f"pitfall {each.number} wants tests, or the reason why there are none"
        for test in each.tests:
            if not is_there(test):
                yield f"pitfall {each.number} names {test}, which is not there: name the test that shows it now"
