"""The independent checker: was anything lost, repeated, or owned twice?

It believes nobody but the producer's journal (what was sent, what the broker acknowledged) and the journals
that each process of the service wrote for itself (what it was handed, what it got done, when). It asks
neither the agent nor the group. What it says, and what it means exactly:

*lost*
    the broker acknowledged it, and no process ever got it done. Where the supervisor wrote down the group's
    committed offsets, a record at or above them is not lost but *left over*: whoever comes next will be
    handed it.
*repeated*
    done more than once, by whichever processes. *Handed out again*: handed out more than once but done at
    most once, as after a crash.
*double owner* (invariant I1: a record of a partition is handed out by at most one member at a time)
    either *overlap*: a process is handed a record of a partition while another one still has one in hand. In
    hand is the time from its ``H`` line to its ``D`` line; without a ``D`` line to the end or death of the
    process. (What a process really has in hand lasts a few microseconds longer on both sides; nothing here
    can be a false alarm of the journal's own making.) Not counted where the first process died or certainly
    lost its lease in between, as the supervisor's journal says: then it is *after a lost lease*, and shown;
    or *interleaved*: process A was handed records of a partition, then B was, then A went
    on after its own last record as if B had never been, though B neither ended nor lost its lease in between.
    So two owners that take turns without ever overlapping are found too. (With manual commits a handoff
    lawfully starts at the last commit and can look the same: ``--manual-commits`` leaves this rule out.)
*out of order*
    a record is handed out for the first time after a later one of its partition was.
*foreign*
    a process was handed a record that no producer's journal knows, or with another id than the producer put
    there.

Exit codes: 0 nothing lost, no double owner, nothing foreign; 1 otherwise (``--strict``: also on repeated,
handed out again, left over and out of order); 2 the journals cannot be read or prove nothing.

    python examples/demo/checker.py DIRECTORY [--strict] [--manual-commits] [--json]
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.journal import Delivered, JournaledRun, JournalError, ProcessLog, Sent, Tp, read_run

__all__ = ["CheckerVerdict", "DoubleOwner", "Foreign", "Lost", "OutOfOrder", "Repeated", "Touch", "check", "main"]

_SHOWN_MAX = 10
"""Findings of one kind that the readable output spells out."""


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """One process had one record in hand: who, which offset, from when to when (s from the first send)."""

    process: str
    offset: int
    handed_at: float
    done_at: float | None = None
    """None: it never got done there."""

    def __str__(self) -> str:
        end = "never done" if self.done_at is None else f"done {self.done_at:.4f} s"
        return f"{self.process} offset {self.offset} (handed out {self.handed_at:.4f} s, {end})"


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was acknowledged and never done (or, as left over, is still to be handed out)."""

    record_id: str
    partition: str
    offset: int
    sent_at: float
    handed_out: tuple[Touch, ...] = ()

    def __str__(self) -> str:
        where = "; ".join(map(str, self.handed_out)) or "never handed out"
        what = f"{self.partition} offset {self.offset} id {self.record_id}"
        return f"{what}, sent {self.sent_at:.4f} s: {where}"


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was handed out more than once."""

    record_id: str
    partition: str
    offset: int
    times_done: int
    handed_out: tuple[Touch, ...]

    def __str__(self) -> str:
        touches = "; ".join(map(str, self.handed_out))
        return f"{self.partition} offset {self.offset} id {self.record_id}: {touches}"


class DoubleOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Two processes owned a partition at once."""

    kind: str
    """``overlap`` or ``interleaved``."""
    partition: str
    holder: Touch
    intruder: Touch

    def __str__(self) -> str:
        how = "while" if self.kind == "overlap" else "and then, passing over it,"
        return f"{self.partition} {self.kind}: {self.holder} {how} {self.intruder}"


class OutOfOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A record first handed out after a later one of its partition."""

    partition: str
    later: Touch
    earlier: Touch

    def __str__(self) -> str:
        return f"{self.partition}: {self.earlier} only after {self.later}"


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is not what the producer sent."""

    partition: str
    touch: Touch
    record_id: str
    expected_id: str | None
    """What the producer put at this offset; None: it knows of no such id."""

    def __str__(self) -> str:
        expected = "which nobody sent" if self.expected_id is None else f"where {self.expected_id} was sent"
        return f"{self.partition}: {self.touch} carried id {self.record_id}, {expected}"


class CheckerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the checker found."""

    sent: int
    acknowledged: int
    unacknowledged: int
    """Sent, but neither acknowledged nor refused: they may be in the topic or not."""
    handed_out: int
    done: int
    """Different records that were done."""
    processes: int
    lost: tuple[Lost, ...] = ()
    left_over: tuple[Lost, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    handed_out_again: tuple[Repeated, ...] = ()
    double_owners: tuple[DoubleOwner, ...] = ()
    after_lost_lease: tuple[DoubleOwner, ...] = ()
    out_of_order: tuple[OutOfOrder, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    cut_lines: tuple[str, ...] = ()
    unknown_ends: tuple[str, ...] = ()
    """Processes that left a record in hand and whose end nobody wrote down: from their last sign of life on,
    overlaps with that record cannot be seen."""

    @property
    def ok(self) -> bool:
        """Nothing lost, no double owner, nothing foreign."""
        return not (self.lost or self.double_owners or self.foreign)

    @property
    def spotless(self) -> bool:
        """As a run without a crash or a lost lease must be."""
        twice = self.repeated or self.handed_out_again
        return self.ok and not (twice or self.left_over or self.after_lost_lease or self.out_of_order)

    def as_json(self) -> bytes:
        summary = {"ok": self.ok, "spotless": self.spotless, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(summary), indent=2)

    def __str__(self) -> str:
        counts = f"{self.sent} sent, {self.acknowledged} acknowledged, {self.handed_out} handed out"
        lines = [f"{counts}, {self.done} done by {self.processes} processes"]
        for name, found in self._findings():
            lines.append(f"{name:<18}{len(found)}")
            lines += [f"  {finding}" for finding in found[:_SHOWN_MAX]]
            if len(found) > _SHOWN_MAX:
                lines.append(f"  ... and {len(found) - _SHOWN_MAX} more")
        if self.unacknowledged:
            lines.append(f"{'unacknowledged':<18}{self.unacknowledged} (the broker may have them or not)")
        if self.unknown_ends:
            lines.append(f"not fully checked: the end of {', '.join(self.unknown_ends)} is unknown")
        if self.cut_lines:
            lines.append(f"last line cut off, left out: {', '.join(self.cut_lines)}")
        return "\n".join(lines)

    def _findings(self) -> Iterator[tuple[str, Sequence[object]]]:
        yield "lost", self.lost
        yield "repeated", self.repeated
        yield "double owners", self.double_owners
        yield "out of order", self.out_of_order
        yield "handed out again", self.handed_out_again
        for name, found in (
            ("left over", self.left_over),
            ("after lost lease", self.after_lost_lease),
            ("foreign", self.foreign),
        ):
            if found:
                yield name, found


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A run, arranged for the questions below."""

    run: JournaledRun
    origin_ns: int
    processes: dict[str, ProcessLog]
    by_partition: dict[Tp, list[Delivered]]
    """Each partition's handouts over all processes, by the time of handing out."""
    by_record: dict[tuple[Tp, int], list[Delivered]]

    @classmethod
    def of(cls, run: JournaledRun) -> _Evidence:
        by_partition: defaultdict[Tp, list[Delivered]] = defaultdict(list)
        by_record: defaultdict[tuple[Tp, int], list[Delivered]] = defaultdict(list)
        for handout in sorted(run.handouts(), key=lambda h: (h.handed_ns, h.process, h.offset)):
            by_partition[handout.tp].append(handout)
            by_record[handout.tp, handout.offset].append(handout)
        return cls(
            run=run,
            origin_ns=min(record.sent_ns for record in run.sent.values()),
            processes={process.process: process for process in run.processes},
            by_partition=dict(sorted(by_partition.items())),
            by_record=dict(sorted(by_record.items())),
        )

    def seconds(self, ns: int) -> float:
        return (ns - self.origin_ns) / 1e9

    def touch(self, handout: Delivered) -> Touch:
        return Touch(
            process=handout.process,
            offset=handout.offset,
            handed_at=self.seconds(handout.handed_ns),
            done_at=None if handout.done_ns is None else self.seconds(handout.done_ns),
        )

    def double_owner(self, kind: str, holder: Delivered, intruder: Delivered) -> DoubleOwner:
        return DoubleOwner(
            kind=kind, partition=str(holder.tp), holder=self.touch(holder), intruder=self.touch(intruder)
        )


def check(run: JournaledRun, *, manual_commits: bool = False) -> CheckerVerdict:
    """Judge a run. O(n log n) in handouts; about 1 s for 100 000 records.

    Args:
        run: what :func:`demo.journal.read_run` read.
        manual_commits: the service commits by itself, so a handoff may start before what was done.

    Raises:
        JournalError: nothing was acknowledged, so nothing can be proved.
    """
    acknowledged = [record for record in run.sent.values() if record.offset is not None]
    if not acknowledged:
        raise JournalError("no record was acknowledged by the broker: this run proves nothing")
    evidence = _Evidence.of(run)
    lost, left_over = _lost(evidence, acknowledged)
    repeated, again = _repeated(evidence)
    double_owners, after_lost_lease = _overlaps(evidence)
    if not manual_commits:
        double_owners += _interleaved(evidence)
    return CheckerVerdict(
        sent=len(run.sent),
        acknowledged=len(acknowledged),
        unacknowledged=sum(r.offset is None and r.refused is None for r in run.sent.values()),
        handed_out=sum(map(len, evidence.by_record.values())),
        done=sum(any(h.done_ns is not None for h in handouts) for handouts in evidence.by_record.values()),
        processes=len(run.processes),
        lost=tuple(lost),
        left_over=tuple(left_over),
        repeated=tuple(repeated),
        handed_out_again=tuple(again),
        double_owners=tuple(double_owners),
        after_lost_lease=tuple(after_lost_lease),
        out_of_order=tuple(_out_of_order(evidence)),
        foreign=tuple(_foreign(evidence, acknowledged)),
        cut_lines=tuple(run.cut_lines),
        unknown_ends=tuple(_unknown_ends(run)),
    )


def _lost(evidence: _Evidence, acknowledged: Iterable[Sent]) -> tuple[list[Lost], list[Lost]]:
    lost: list[Lost] = []
    left_over: list[Lost] = []
    for record in acknowledged:
        assert record.offset is not None
        handouts = evidence.by_record.get((record.tp, record.offset), [])
        if any(handout.done_ns is not None for handout in handouts):
            continue
        finding = Lost(
            record_id=record.record_id,
            partition=str(record.tp),
            offset=record.offset,
            sent_at=evidence.seconds(record.sent_ns),
            handed_out=tuple(map(evidence.touch, handouts)),
        )
        committed = evidence.run.committed.get(record.tp)
        waits = committed is not None and record.offset >= committed
        (left_over if waits else lost).append(finding)
    return lost, left_over


def _repeated(evidence: _Evidence) -> tuple[list[Repeated], list[Repeated]]:
    repeated: list[Repeated] = []
    again: list[Repeated] = []
    for (tp, offset), handouts in evidence.by_record.items():
        if len(handouts) == 1:
            continue
        times_done = sum(handout.done_ns is not None for handout in handouts)
        finding = Repeated(
            record_id=handouts[0].record_id,
            partition=str(tp),
            offset=offset,
            times_done=times_done,
            handed_out=tuple(map(evidence.touch, handouts)),
        )
        (repeated if times_done > 1 else again).append(finding)
    return repeated, again


def _overlaps(evidence: _Evidence) -> tuple[list[DoubleOwner], list[DoubleOwner]]:
    """Records of one partition in hand at two processes at once: (double owners, after a lost lease)."""
    owners: list[DoubleOwner] = []
    after_lost_lease: list[DoubleOwner] = []
    for handouts in evidence.by_partition.values():
        in_hand: list[tuple[int, int]] = []  # (end, index into handouts), the earliest end first
        for index, handout in enumerate(handouts):
            while in_hand and in_hand[0][0] <= handout.handed_ns:
                heapq.heappop(in_hand)
            for _, other in sorted(in_hand):
                holder = handouts[other]
                if holder.process == handout.process:
                    continue
                losses = evidence.processes[holder.process].lease_lost_ns
                excused = any(holder.handed_ns <= lost <= handout.handed_ns for lost in losses)
                found = evidence.double_owner("overlap", holder, handout)
                (after_lost_lease if excused else owners).append(found)
            end = handout.end_ns
            if end is None:
                end = evidence.processes[handout.process].last_ns
            heapq.heappush(in_hand, (end, index))
    return owners, after_lost_lease


@dataclass(slots=True)
class _Stint:
    """Handouts of one partition to one process, with none to another process in between."""

    handouts: list[Delivered]

    @property
    def process(self) -> str:
        return self.handouts[0].process

    def furthest(self) -> Delivered:
        return max(self.handouts, key=lambda handout: handout.offset)


def _interleaved(evidence: _Evidence) -> list[DoubleOwner]:
    """Processes that went on after their own last record though another had taken over and got further."""
    found: list[DoubleOwner] = []
    offsets = _offsets(evidence)
    for tp, handouts in evidence.by_partition.items():
        stints = [_Stint(list(group)) for _, group in groupby(handouts, key=lambda handout: handout.process)]
        last_of: dict[str, int] = {}
        for index, stint in enumerate(stints):
            previous = last_of.get(stint.process)
            last_of[stint.process] = index
            if previous is None:
                continue
            own_last = stints[previous].furthest().offset
            first = stint.handouts[0]
            if offsets[tp].get(own_last) != first.offset:
                continue
            passed_over = _passed_over(evidence, stints[previous + 1 : index], first)
            if passed_over is not None:
                found.append(evidence.double_owner("interleaved", passed_over, first))
    return found


def _offsets(evidence: _Evidence) -> dict[Tp, dict[int, int]]:
    """Per partition: offset -> the next one that has a record. Transaction markers leave gaps."""
    known: defaultdict[Tp, set[int]] = defaultdict(set)
    for record in evidence.run.sent.values():
        if record.offset is not None:
            known[record.tp].add(record.offset)
    for tp, offset in evidence.by_record:
        known[tp].add(offset)
    return {tp: dict(zip(sorted(of), sorted(of)[1:], strict=False)) for tp, of in known.items()}


def _passed_over(evidence: _Evidence, between: Iterable[_Stint], first: Delivered) -> Delivered | None:
    """What a process that is still a lawful owner had been handed, at or beyond the record that ``first`` is."""
    for stint in between:
        last = stint.furthest()
        if last.offset < first.offset:
            continue
        owner = evidence.processes[stint.process]
        if not owner.lost_lease_between(stint.handouts[-1].handed_ns, first.handed_ns):
            return last
    return None


def _out_of_order(evidence: _Evidence) -> Iterator[OutOfOrder]:
    for tp, handouts in evidence.by_partition.items():
        seen: set[int] = set()
        highest: Delivered | None = None
        for handout in handouts:
            if handout.offset in seen:
                continue
            seen.add(handout.offset)
            if highest is None or handout.offset > highest.offset:
                highest = handout
            else:
                yield OutOfOrder(partition=str(tp), later=evidence.touch(highest), earlier=evidence.touch(handout))


def _foreign(evidence: _Evidence, acknowledged: Iterable[Sent]) -> Iterator[Foreign]:
    expected = {(record.tp, record.offset): record.record_id for record in acknowledged}
    for (tp, offset), handouts in evidence.by_record.items():
        for handout in handouts:
            record_id = expected.get((tp, offset))
            if record_id == handout.record_id:
                continue
            # Sent, and in the topic although its acknowledgement never came: no stranger.
            sent = evidence.run.sent.get(handout.record_id)
            if record_id is None and sent is not None and sent.offset is None:
                continue
            yield Foreign(
                partition=str(tp),
                touch=evidence.touch(handout),
                record_id=handout.record_id,
                expected_id=record_id,
            )


def _unknown_ends(run: JournaledRun) -> list[str]:
    return sorted({handout.process for handout in run.handouts() if handout.end_ns is None})


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code (see the module)."""
    parser = argparse.ArgumentParser(description="Was anything lost, repeated, or owned twice?")
    parser.add_argument("directory", type=Path, help="where the run's journals are")
    parser.add_argument("--strict", action="store_true", help="fail on all that no crash excuses")
    parser.add_argument("--manual-commits", action="store_true", help="the service commits by itself")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args(arguments)
    try:
        verdict = check(read_run(options.directory), manual_commits=options.manual_commits)
    except (JournalError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(verdict.as_json().decode() if options.json else verdict)
    return 0 if (verdict.spotless if options.strict else verdict.ok) else 1


if __name__ == "__main__":
    sys.exit(main())
