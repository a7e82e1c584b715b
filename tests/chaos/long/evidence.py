"""What a run leaves behind for its judge: journals, faults, ends of processes, and the coordinator's own log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from demo.journal import Delivered, JournaledRun, ProcessLog, Tp
from integration.offsets_topic import GroupLog

from .outputs import Outputs

__all__ = ["SLACK_NS", "Ending", "Evidence", "Notes", "Window", "name_of"]

SLACK_NS = 100_000_000
"""The broker's stamps are whole milliseconds of the wall clock, the journals' are not."""


class Window(msgspec.Struct, kw_only=True):
    """One fault, from its begin until all was well again."""

    kind: str
    begun_ns: int
    over_ns: int = 0
    """Until then the fault itself kept partitions from being consumed, whoever owned them; 0: it did not."""
    recovered_ns: int = 0
    """When every partition had been consumed again, or nobody waited any longer; 0: it lasts."""
    well: bool = True
    """Whether all was well within the world's patience."""
    mixed: bool = False
    """A member without the agent was in the group."""
    evicts: bool = False
    """It may cost a member that it met its session."""
    fences: int = 0
    """So many transactional members may end by it, of those that it met."""
    meets: list[str] = []
    """Names of the processes that it met; empty: all."""
    detail: str = ""
    cut_ns: int = 0
    """When the control topic began to lose what members have read: they must notice. 0: it lost nothing such."""
    failed: str = ""
    """Why it was not played as it should; empty: it was."""

    def met(self, name: str) -> bool:
        """Whether it may have met this process."""
        return not self.meets or name in self.meets


class Ending(msgspec.Struct, kw_only=True):
    """How a process ended."""

    at_ns: int
    code: int
    crash: bool = False
    """It was killed, or lost its rights: what it had done since its last commit may be done again."""
    expected: bool = True
    asked_ns: int = 0
    """When it was told to stop; 0: it was not."""
    fenced: bool = False
    """It says that its transactional producer was of no use any more: expected where a fault does that."""


class Notes(msgspec.Struct, kw_only=True):
    """What a run leaves behind beside the journals.

    Attributes:
        log: the coordinator's.
        windows: the faults.
        endings: by the process's name, which is its client id as well, and no other process's.
        bound_seconds: longest time that a partition may stand still.
        bound_mixed_seconds: the same in a mixed group, where each rebalance takes everything from everybody.
        epoch_offset_ns: nanoseconds of the epoch minus those of the journals' clock.
        outputs: of the transactional members; None: there were none.
    """

    log: GroupLog
    windows: list[Window]
    endings: dict[str, Ending]
    bound_seconds: float
    bound_mixed_seconds: float
    epoch_offset_ns: int
    outputs: Outputs | None = None


@dataclass
class Evidence:
    """The journals of a run, and the notes beside them."""

    run: JournaledRun
    notes: Notes

    @property
    def log(self) -> GroupLog:
        return self.notes.log

    @property
    def windows(self) -> list[Window]:
        return self.notes.windows

    def clock_ns(self, epoch_seconds: float) -> int:
        return round(epoch_seconds * 1e9) - self.notes.epoch_offset_ns

    @cached_property
    def origin_ns(self) -> int:
        return min(record.sent_ns for record in self.run.sent.values())

    @cached_property
    def last_ns(self) -> int:
        """When the last record was handed out."""
        return max((handout.handed_ns for handout in self.run.handouts()), default=self.origin_ns)

    @cached_property
    def processes(self) -> dict[str, ProcessLog]:
        return {process.process: process for process in self.run.processes}

    @cached_property
    def by_record(self) -> dict[tuple[Tp, int], list[Delivered]]:
        """All times that each record was handed out, in order."""
        found: defaultdict[tuple[Tp, int], list[Delivered]] = defaultdict(list)
        for handout in sorted(self.run.handouts(), key=lambda handout: handout.handed_ns):
            found[handout.tp, handout.offset].append(handout)
        return dict(found)

    @cached_property
    def membership(self) -> Membership:
        return Membership(self)

    @cached_property
    def commits(self) -> dict[Tp, list[tuple[int, int]]]:
        """(time, offset) of each accepted commit."""
        found: defaultdict[Tp, list[tuple[int, int]]] = defaultdict(list)
        for commit in self.log.commits:
            found[Tp(commit.topic, commit.partition)].append((self.clock_ns(commit.at), commit.offset))
        return dict(found)

    @property
    def session_ns(self) -> int:
        """How long a member may be silent, and a second."""
        return round(self.notes.bound_seconds * 1e9)

    def mixed(self, from_ns: int, until_ns: int) -> bool:
        """Whether a member without the agent was in the group between these times."""
        return any(window.mixed for window in self.windows_in(from_ns, until_ns))

    def mixed_lately(self, at_ns: int) -> bool:
        """Whether one is there, or was within the last session: what is handed out twice may be of its making."""
        return self.mixed(at_ns - self.session_ns, at_ns)

    def windows_in(self, from_ns: int, until_ns: int) -> Iterator[Window]:
        for window in self.windows:
            if window.begun_ns <= until_ns and (not window.recovered_ns or window.recovered_ns >= from_ns):
                yield window

    def crashed(self, process: str, from_ns: int, until_ns: int) -> bool:
        ending = self.notes.endings.get(name_of(process))
        if ending is None or not ending.crash:
            return False
        # What its journal says is earlier than what somebody saw.
        ended_ns = self.processes[process].gone_ns() or ending.at_ns
        return from_ns <= ended_ns <= until_ns

    def told_to_stop(self, name: str, at_ns: int) -> bool:
        """Whether a process had been told to stop by then."""
        ending = self.notes.endings.get(name)
        return ending is not None and 0 < ending.asked_ns <= at_ns

    def gave_up(self, handout: Delivered, until_ns: int) -> bool:
        """Whether user code ended with the record in hand, or with the batch that it was a part of.

        None of a batch is done before the next call. What was handed out with it was so before it was done.
        """
        ended, done_ns = self.processes[handout.process].gone_ns(), handout.done_ns
        if ended is None or ended > until_ns:
            return False
        mine = (other for other in self.run.handouts() if other.process == handout.process and other.done_ns is None)
        return done_ns is None or any(handout.handed_ns <= other.handed_ns <= done_ns for other in mine)

    def seconds(self, ns: int) -> float:
        return (ns - self.origin_ns) / 1e9

    def text(self, handout: Delivered) -> str:
        done = "never" if handout.done_ns is None else f"{self.seconds(handout.done_ns):.3f} s"
        where = f"{handout.tp} offset {handout.offset}"
        return f"{where} by {handout.process}: handed out {self.seconds(handout.handed_ns):.3f} s, done {done}"


class Membership:
    """Who was in the group when, as the coordinator wrote it down."""

    def __init__(self, evidence: Evidence) -> None:
        self.spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Name of a process -> from when until when."""
        self.evictions: defaultdict[str, list[int]] = defaultdict(list)
        """Name of a process that lived -> when a generation began without it, by a fault that may cost it that."""
        self.stopped: defaultdict[str, list[int]] = defaultdict(list)
        """The same of one that was told to stop: it has left, user code goes on with the record in hand."""
        self.unexplained: list[tuple[str, int]] = []
        """The same where no fault explains it: it excuses nothing."""
        self.unknown: list[tuple[int, int]] = []
        self._evidence = evidence
        self._ended = {process.name: process.gone_ns() for process in evidence.run.processes}
        inside: dict[tuple[str, str], int] = {}
        lost_ns: int | None = None
        for generation in evidence.log.generations:
            at = evidence.clock_ns(generation.at)
            if lost_ns is not None:
                self.unknown.append((lost_ns, at))
            lost_ns = at if generation.members is None else None
            members = set((generation.members or {}).items())
            for key in inside.keys() - members:
                self._leaves(key[1], inside.pop(key), at, known=generation.members is not None)
            for key in members - inside.keys():
                inside[key] = at
        for (_, name), since in inside.items():
            self.spans[name].append((since, 2**63))

    def _leaves(self, name: str, since: int, at: int, *, known: bool) -> None:
        self.spans[name].append((since, at))
        gone = self._ended.get(name)
        if not known or (gone is not None and gone <= at):
            return
        # The broker waits for a session before it takes out whoever was silent in a fault.
        windows = self._evidence.windows_in(at - self._evidence.session_ns, at)
        if any(window.evicts and window.met(name) for window in windows):
            self.evictions[name].append(at)
        elif self._evidence.told_to_stop(name, at):
            self.stopped[name].append(at)
        else:
            self.unexplained.append((name, at))

    def had(self, name: str, at: int) -> bool:
        """Whether a process was in the group, or nobody knows."""
        spans = (*self.spans[name], *self.unknown)
        return any(since - SLACK_NS <= at <= until + SLACK_NS for since, until in spans)

    def evicted(self, process: str, from_ns: int, until_ns: int) -> bool:
        return any(from_ns <= at <= until_ns for at in self.evictions[name_of(process)])

    def left_with(self, handout: Delivered, until_ns: int) -> bool:
        """Whether a process that was told to stop left by then with this record in hand."""
        end_ns = min(until_ns, handout.done_ns or until_ns)
        return any(handout.handed_ns <= at <= end_ns for at in self.stopped[name_of(handout.process)])


def name_of(process: str) -> str:
    return process.partition("/")[0]
