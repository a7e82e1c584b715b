"""Exceptions that may only shrink: what is over a ceiling today, with today's number.

The file ``exceptions.toml`` has a table per check and a line per exception. A check fails when a number has grown or is
new. It fails as well when a number has shrunk or is gone, so that what was gained is kept at once: ``make ceilings``
writes the smaller numbers. It never writes a larger one, and never a name more than there were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

__all__ = ["EXCEPTIONS", "Ceiling", "Refused", "grown", "problems", "read", "tightened", "written"]

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

HEAD = """\
# What is over a ceiling, with today's number: it may only shrink. `make ceilings` writes smaller numbers, and carries
# an exception along when its thing is renamed or moved; nothing here is typed by hand.
"""

LINE = re.compile(r'"(?P<name>[^"]+)" = (?P<number>\d+)')


@dataclass(frozen=True)
class Ceiling:
    """One check.

    Attributes:
        title: the table's name in the file.
        limit: the largest number that needs no exception.
        unit: what is counted, in the plural.
        advice: what to do about too many.
        slack: how much of a listed number may be saved before the list must follow; not 0 for counts by room. Several
            engineers rewrite prose of one room at a time; a count that must fit exactly would fail after each merge.
    """

    title: str
    limit: int
    unit: str
    advice: str
    slack: int = 0


class Refused(Exception):
    """``make ceilings`` was to write a larger number; the text lists them.

    Attributes:
        table: the list with what did become smaller.
    """

    def __init__(self, text: str, table: dict[str, int]) -> None:
        super().__init__(text)
        self.table = table


def problems(ceiling: Ceiling, measured: Mapping[str, int], listed: Mapping[str, int]) -> list[str]:
    """Return one sentence for each number that is not as it is listed; empty when the list fits."""
    over = {name: number for name, number in measured.items() if number > ceiling.limit}
    found = []
    for name, number in sorted(over.items()):
        before = listed.get(name)
        if before is None:
            found.append(
                f"{name}: {number} {ceiling.unit}, at most {ceiling.limit} are allowed; {ceiling.advice} "
                "(if it was only renamed or moved: `make ceilings`)"
            )
        elif number > before:
            moved = " (what only moved between rooms: `make ceilings`)" if ceiling.slack else ""
            found.append(f"{name}: grew from {before} to {number} {ceiling.unit}; {ceiling.advice}{moved}")
        elif number < before - ceiling.slack:
            found.append(f"{name}: shrank from {before} to {number} {ceiling.unit}; run `make ceilings` to keep that")
    found += [
        f"{name}: is listed with {listed[name]} {ceiling.unit} but is gone or within {ceiling.limit}; "
        "run `make ceilings` to strike it"
        for name in sorted(listed.keys() - over.keys())
        if listed[name] > ceiling.slack
    ]
    return found


def tightened(ceiling: Ceiling, measured: Mapping[str, int], listed: Mapping[str, int]) -> dict[str, int]:
    """Return the list with today's numbers where they are smaller.

    New names take the places of those that are gone, the largest first, if no number is larger than the one before it:
    things were renamed or moved. Counts by room may move between rooms as long as their sum does not grow.

    Raises:
        Refused: a number has grown, or a new one finds no place.
    """
    over = {name: number for name, number in measured.items() if number > ceiling.limit}
    if ceiling.slack and sum(over.values()) <= sum(listed.values()):
        return over
    refused = [
        f"{name}: {listed[name]} -> {over[name]}" for name in sorted(over) if over[name] > listed.get(name, over[name])
    ]
    new = sorted(over.keys() - listed.keys(), key=lambda name: (-over[name], name))
    gone = {name: number for name, number in listed.items() if name not in over}
    places = sorted(gone.values(), reverse=True)[: len(new)]
    homeless = {name for name, place in zip_longest(new, places, fillvalue=0) if over[name] > place}
    refused += [f"{name}: {over[name]} is new" for name in sorted(homeless)]
    if refused:
        smaller = {name: min(number, listed.get(name, number)) for name, number in over.items() if name not in homeless}
        text = "\n  ".join([f"[{ceiling.title}] may only shrink; {ceiling.advice}:", *refused])
        raise Refused(text, smaller | gone if homeless else smaller)
    return over


def grown(ceilings: Iterable[Ceiling], now: Mapping[str, dict[str, int]], before: Mapping[str, dict[str, int]]) -> str:
    """Return what the list of now has more than an earlier one; empty: nothing.

    A table that the earlier list does not have is a check that is new.
    """
    texts = []
    for ceiling in ceilings:
        if ceiling.title in before:
            try:
                tightened(ceiling, now.get(ceiling.title, {}), before[ceiling.title])
            except Refused as error:
                texts.append(str(error))
    return "\n".join(texts)


def read(text: str) -> dict[str, dict[str, int]]:
    """Return the tables of the file's text.

    Two branches that both tightened the list merge by union (``.gitattributes``), so that a name may stand there twice,
    and a line may have come back. The smaller number counts.
    """
    tables: dict[str, dict[str, int]] = {}
    table: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("["):
            table = tables.setdefault(line.strip("[]"), {})
        elif match := LINE.fullmatch(line):
            name, number = match["name"], int(match["number"])
            table[name] = min(number, table.get(name, number))
        elif line and line[0] not in "#<=>|":
            raise ValueError(f"{EXCEPTIONS.name} has a line that is no exception: {line!r}")
    return tables


def written(tables: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    """Return the file's text."""
    parts = [HEAD]
    for title, table in tables:
        parts.append(f"\n[{title}]\n")
        parts += [f'"{name}" = {table[name]}\n' for name in sorted(table)]
    return "".join(parts)
