"""The lists of mutants, and whether they fit the source of now."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LISTS", "ROOT", "Mutant", "complaints", "load"]

LISTS = Path(__file__).parent / "lists"
ROOT = Path(__file__).parents[2]
_SIMULATIONS = ("sim", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One small bug."""

    name: str
    area: str
    """The list that it stands in."""
    breaks: str
    """What goes wrong with it, in a sentence."""
    file: str
    before: str
    """Text that stands in the file exactly once."""
    after: str
    killer: str = ""
    """What notices it: a pytest node id, ``sim SEED`` or ``whole SEED``. Empty exactly where it is equivalent."""
    equivalent: str = ""
    """Why nothing can notice it; empty: it can be noticed."""

    def applied(self, source: str) -> str:
        """Return the source with this bug in it.

        Raises:
            ValueError: the text to be replaced does not stand in it exactly once.
        """
        count = source.count(self.before)
        if count != 1:
            raise ValueError(f"{self.name}: its text stands in {self.file} {count} times, not once")
        return source.replace(self.before, self.after)

    @property
    def module(self) -> str:
        """Return the name by which the file is imported."""
        _, *packages = Path(self.file).with_suffix("").parts
        return ".".join(packages)

    @property
    def simulation(self) -> tuple[str, int] | None:
        """Return the simulation and the seed that kill it; None: a test does."""
        kind, _, seed = self.killer.partition(" ")
        return (kind, int(seed)) if kind in _SIMULATIONS else None


def load(folder: Path = LISTS) -> list[Mutant]:
    """Return all mutants, list by list."""
    return [
        Mutant(area=path.stem, **entry)
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]


def complaints(mutants: Sequence[Mutant], root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with the lists: a line for each mutant that does not fit the tree below ``root``."""
    for name, count in Counter(mutant.name for mutant in mutants).items():
        if count > 1:
            yield f"{name}: {count} mutants have this name"
    for mutant in mutants:
        yield from _misfits(mutant, root)


def _misfits(mutant: Mutant, root: Path) -> Iterator[str]:
    if not (root / mutant.file).is_file():
        yield f"{mutant.name}: {mutant.file} is gone"
        return
    if mutant.before.split() == mutant.after.split():
        yield f"{mutant.name}: changes nothing but the layout of {mutant.file}"
    try:
        ast.parse(mutant.applied((root / mutant.file).read_text()))
    except SyntaxError as error:
        yield f"{mutant.name}: does not compile: {error}"
    except ValueError as error:
        yield str(error)
    if bool(mutant.killer) == bool(mutant.equivalent):
        yield f"{mutant.name}: has either a killer or a reason why nothing can notice it"
    elif mutant.killer and mutant.simulation is None:
        yield from _missing_test(mutant, root)


def _missing_test(mutant: Mutant, root: Path) -> Iterator[str]:
    """Yield a line where the killer is no test; collecting all of them would take as long as the other tests."""
    path, _, names = mutant.killer.partition("::")
    function = names.rpartition("::")[2].partition("[")[0]
    if not (root / path).is_file() or f"def {function}(" not in (root / path).read_text():
        yield f"{mutant.name}: its killer {mutant.killer} does not exist"
