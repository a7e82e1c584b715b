"""The output of transactional members, as a reader of committed records sees it, and what is wrong with it.

Evidence: the output topic, what the producer says of each record of the input (acknowledged, or of an aborted
transaction), and before which transactions' ends a member asked for a commit. It looks for:

*output lost*
    a record of the input was acknowledged, and nothing was put out of it.
*output repeated*
    something was put out of a record more than once.
*output disordered*
    the records of a partition were put out in another order.
*output uncommitted*
    a transaction is visible of which nobody had asked a commit: it was aborted, or its process died within it.
*output of an aborted input*
    something was put out of a record of an aborted transaction.
*output foreign*
    something was put out of a record that nobody sent, or sent elsewhere.
*output late*
    something was put out of a record more than 90 s after it was acknowledged: its partition was stuck.

Nothing of that is excused, whatever fault there was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Self

import msgspec

from demo.journal import Sent

from .load import ABORTED

__all__ = ["LATE_SECONDS", "AskedCommits", "Made", "Output", "Outputs", "wrong_outputs"]

LATE_SECONDS = 90.0
"""Chosen: above all that a fault may cost, its own length, a session and a transaction's time included."""


class Made(msgspec.Struct, kw_only=True):
    """What a member puts out of one record."""

    record_id: str
    offset: int
    """Of the input."""
    transaction: str


class Output(msgspec.Struct, array_like=True):
    """One record of the output."""

    partition: int
    """Of input and output."""
    at_ms: int
    """When it was put out, milliseconds since the epoch."""
    made: Made


class Outputs(msgspec.Struct, kw_only=True):
    """All of the output.

    Attributes:
        source: topic of the input.
        entries: as a reader of committed records sees them, each partition's in its order.
        asked: transactions whose commit was asked for.
    """

    source: str
    entries: list[Output] = []
    asked: set[str] = set()


class AskedCommits:
    """The transactions whose commit was asked for, by the journals of the members. Each look reads what is new."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.transactions: set[str] = set()
        self.last_ns: dict[int, int] = {}
        """Partition of the input -> when a commit of it was asked for last."""

    def look(self) -> Self:
        for path in self._directory.glob("*.journal"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, line_break, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(line_break)
            for line in whole.decode().split("\n"):
                self._take(line.split(","))
        return self

    def _take(self, fields: list[str]) -> None:
        match fields:
            case ["C", transaction, at, *partitions]:
                self.transactions.add(transaction)
                self.last_ns.update((each, max(int(at), self.last_ns.get(each, 0))) for each in map(int, partitions))


def wrong_outputs(sent: Mapping[str, Sent], outputs: Outputs) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, each as the rule's name and a text."""
    seen: dict[str, Output] = {}
    for entry in outputs.entries:
        made = entry.made
        text = f"{outputs.source}-{entry.partition} offset {made.offset} by {made.transaction}"
        if (first := seen.setdefault(made.record_id, entry)) is not entry:
            yield "output repeated", f"{text}; first by {first.made.transaction}"
        if made.transaction not in outputs.asked:
            yield "output uncommitted", text
        record = sent.get(made.record_id)
        if record is None or not _is_of(record, entry, outputs.source):
            yield "output foreign", f"{text}, id {made.record_id}"
        elif record.refused == ABORTED:
            yield "output of an aborted input", text
    yield from _disordered(outputs)
    for record in sent.values():
        if record.tp.topic == outputs.source and record.offset is not None and record.record_id not in seen:
            yield "output lost", f"{record.tp} offset {record.offset}, id {record.record_id}"


def _is_of(record: Sent, entry: Output, source: str) -> bool:
    return record.tp == (source, entry.partition) and record.offset in (None, entry.made.offset)


def _disordered(outputs: Outputs) -> Iterator[tuple[str, str]]:
    for partition in sorted({entry.partition for entry in outputs.entries}):
        for before, after in pairwise(_of(outputs.entries, partition)):
            if after.made.offset < before.made.offset:
                text = f"{outputs.source}-{partition} offset {after.made.offset} after {before.made.offset}"
                yield "output disordered", f"{text}, by {after.made.transaction} and {before.made.transaction}"


def _of(entries: Iterable[Output], partition: int) -> Iterator[Output]:
    return (entry for entry in entries if entry.partition == partition)
