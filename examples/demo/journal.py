"""What the processes of a run wrote down, read back: the checker's and the report's only source of records.

A run has one directory. In it, all append-only, a line per event, fields separated by commas, times in
nanoseconds on the one clock that the machine's processes share (see :func:`payments.service.clock_ns`):

* ``<instance>-<pid>.journal``, by each process of the service: ``S`` start, ``H`` handed out, ``D`` done,
``E`` end;
* ``producer-<pid>.journal``: ``S``, ``P,id,topic,partition,clock_ns,timestamp_ms`` before a record is sent,
  ``A,id,topic,partition,offset,clock_ns`` when the broker has acknowledged it, ``F,id,reason`` when it was
  refused,
  ``E``;
* ``supervisor-<pid>.journal``, by whoever started the processes: ``X,pid,clock_ns`` a process has exited,
  ``L,pid,clock_ns`` from now on its lease is certainly not valid (it was frozen or cut off for too long),
  ``C,topic,partition,offset`` the committed offset at the end of the run.

A line counts when its line break is there: what a crash cut off is no event.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from payments.service import JOURNAL_VERSION, Journal, clock_ns

__all__ = [
    "Delivered",
    "Journal",
    "JournalError",
    "JournaledRun",
    "ProcessLog",
    "Sent",
    "SupervisorJournal",
    "Tp",
    "clock_ns",
    "read_run",
]


class JournalError(Exception):
    """A journal that cannot be believed: a malformed line, an end without a beginning, a missing file.

    Nobody but the command line catches it: a check on half of the evidence would be worth nothing.
    """


class Tp(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class Delivered:
    """One record in the hands of one process, once."""

    tp: Tp
    offset: int
    record_id: str
    process: str
    """Name and pid: ``payments-1/4711``."""
    handed_ns: int
    done_ns: int | None = None
    """None: it never got done here."""
    end_ns: int | None = None
    """When it was in hand no more: done, or the process ended or died. None: nobody wrote that down."""


@dataclass(slots=True)
class ProcessLog:
    """The journal of one process of the service."""

    name: str
    pid: int
    started_ns: int
    epoch_offset_ns: int
    """Add it to a clock's time to get nanoseconds since the epoch."""
    last_ns: int
    """The last sign of life in the journal."""
    ended_ns: int | None = None
    """When it ended by itself. None: it was killed, or runs on."""
    exited_ns: int | None = None
    """When its supervisor saw that it was gone. None: unknown."""
    lease_lost_ns: list[int] = field(default_factory=list)
    """Times at which its lease was certainly not valid, ascending."""
    handouts: list[Delivered] = field(default_factory=list)
    """In the order of the journal."""

    @property
    def process(self) -> str:
        return f"{self.name}/{self.pid}"

    def gone_ns(self) -> int | None:
        """When it ended or died, as far as anybody knows."""
        return self.exited_ns if self.ended_ns is None else self.ended_ns

    def lost_lease_between(self, from_ns: int, until_ns: int) -> bool:
        """Whether it died or its lease was not valid at some time from ``from_ns`` to ``until_ns``."""
        gone = self.gone_ns()
        if gone is not None and from_ns <= gone <= until_ns:
            return True
        return any(from_ns <= lost <= until_ns for lost in self.lease_lost_ns)


@dataclass(slots=True)
class Sent:
    """One record that the producer sent."""

    record_id: str
    tp: Tp
    sent_ns: int
    timestamp_ms: int
    """The record's timestamp, milliseconds since the epoch."""
    offset: int | None = None
    """None: never acknowledged; it may be in the topic or not."""
    acked_ns: int | None = None
    refused: str | None = None


@dataclass(slots=True)
class JournaledRun:
    """Everything that was written down in a run."""

    processes: list[ProcessLog] = field(default_factory=list)
    """By start time."""
    sent: dict[str, Sent] = field(default_factory=dict)
    """Of all producers, by the record's id."""
    epoch_offset_ns: int = 0
    """The producer's: add it to a clock's time to get nanoseconds since the epoch."""
    committed: dict[Tp, int] = field(default_factory=dict)
    """Committed offsets at the end of the run, where the supervisor wrote them down."""
    cut_lines: list[str] = field(default_factory=list)
    """Names of journals whose last line was cut off, and therefore left out."""

    def handouts(self) -> Iterable[Delivered]:
        for process in self.processes:
            yield from process.handouts


class SupervisorJournal:
    """Writes the supervisor's journal: what the processes cannot write themselves."""

    def __init__(self, directory: Path) -> None:
        self._journal = Journal(directory, "supervisor", role="supervisor")

    def exited(self, pid: int, at_ns: int | None = None) -> None:
        """The process is gone. Call it as soon as that is known; ``at_ns`` None: now."""
        self._journal.write("X", pid, clock_ns() if at_ns is None else at_ns)

    def lease_lost(self, pid: int, at_ns: int | None = None) -> None:
        """From ``at_ns`` (None: now) on the process's lease is certainly not valid, until it joins again.

        For a process frozen with SIGSTOP: the time of the signal plus the session timeout, less one heartbeat
        interval if what is taken over at the earliest possible moment is to count as lawful.
        """
        self._journal.write("L", pid, clock_ns() if at_ns is None else at_ns)

    def committed(self, topic: str, partition: int, offset: int) -> None:
        """The group's committed offset, asked of the broker after the run."""
        self._journal.write("C", topic, partition, offset)

    def close(self) -> None:
        self._journal.close()


def read_run(directory: Path) -> JournaledRun:
    """Read all journals of a run. About 2 s for a million lines.

    Raises:
        JournalError: see there; the message names file and line.
    """
    paths = sorted(directory.glob("*.journal"))
    if not paths:
        raise JournalError(
            f"{directory}: no journals there, so there is nothing to check; was the run's directory meant?"
        )
    run = JournaledRun()
    supervisors: list[_Lines] = []
    for path in paths:
        lines = _Lines(path, run.cut_lines)
        if not lines.rows:
            continue  # it died before its first line was whole: it can have had nothing in hand
        if lines.role == "producer":
            _read_producer(lines, run)
        elif lines.role == "supervisor":
            supervisors.append(lines)
        else:
            run.processes.append(_read_process(lines))
    run.processes.sort(key=lambda process: (process.started_ns, process.pid))
    for lines in supervisors:
        _read_supervisor(lines, run)
    for process in run.processes:
        _close_open_ends(process)
    return run


class _Lines:
    """The whole lines of one journal, split, with the first one read."""

    def __init__(self, path: Path, cut_lines: list[str]) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8", errors="replace")
        whole, _, rest = text.rpartition("\n")
        if rest:
            cut_lines.append(path.name)
        self.rows = [line.split(",") for line in whole.split("\n")] if whole else []
        self.role = self.name = ""
        if self.rows:
            self._read_start(self.rows[0])

    def _read_start(self, row: Sequence[str]) -> None:
        try:
            kind, version, self.role, self.name, pid, clock, epoch = row
            self.pid, self.started_ns, self.epoch_offset_ns = int(pid), int(clock), int(epoch) - int(clock)
        except ValueError:
            raise self.error(1, "does not begin with a start line; not a journal?") from None
        if kind != "S" or version != str(JOURNAL_VERSION):
            raise self.error(1, f"is {kind} of version {version}; readable is S of version {JOURNAL_VERSION}")

    def error(self, number: int, what: str) -> JournalError:
        return JournalError(f"{self.path}: line {number} {what}")

    def each(self, handlers: dict[str, Callable[..., None]]) -> None:
        """Call, for every line after the first, the handler of its kind with its fields."""
        for number, (kind, *fields) in enumerate(self.rows[1:], 2):
            handler = handlers.get(kind)
            if handler is None:
                raise self.error(number, f"is of the unknown kind {kind!r}")
            try:
                handler(*fields)
            except (TypeError, ValueError, LookupError) as error:
                line = ",".join([kind, *fields])
                raise self.error(number, f"cannot be read: {line!r} ({error})") from error


def _read_process(lines: _Lines) -> ProcessLog:
    log = ProcessLog(lines.name, lines.pid, lines.started_ns, lines.epoch_offset_ns, lines.started_ns)
    open_handouts: defaultdict[tuple[str, str, str], deque[Delivered]] = defaultdict(deque)

    def handed_out(topic: str, partition: str, offset: str, record_id: str, at: str) -> None:
        tp = Tp(topic, int(partition))
        handout = Delivered(tp, int(offset), record_id, log.process, int(at))
        log.handouts.append(handout)
        open_handouts[topic, partition, offset].append(handout)
        log.last_ns = handout.handed_ns

    def done(topic: str, partition: str, offset: str, at: str) -> None:
        waiting = open_handouts[topic, partition, offset]
        if not waiting:
            raise ValueError("done without having been handed out")
        handout = waiting.popleft()
        handout.done_ns = handout.end_ns = log.last_ns = int(at)

    def ended(at: str) -> None:
        log.ended_ns = log.last_ns = int(at)

    lines.each({"H": handed_out, "D": done, "E": ended})
    return log


def _read_producer(lines: _Lines, run: JournaledRun) -> None:
    run.epoch_offset_ns = run.epoch_offset_ns or lines.epoch_offset_ns

    def sent(record_id: str, topic: str, partition: str, at: str, timestamp_ms: str) -> None:
        if record_id in run.sent:
            raise ValueError(f"id {record_id} was sent before: ids must be unique in a run")
        run.sent[record_id] = Sent(record_id, Tp(topic, int(partition)), int(at), int(timestamp_ms))

    def acknowledged(record_id: str, topic: str, partition: str, offset: str, at: str) -> None:
        record = run.sent[record_id]
        record.tp, record.offset, record.acked_ns = Tp(topic, int(partition)), int(offset), int(at)

    def refused(record_id: str, reason: str) -> None:
        run.sent[record_id].refused = reason

    lines.each({"P": sent, "A": acknowledged, "F": refused, "E": lambda _at: None})


def _read_supervisor(lines: _Lines, run: JournaledRun) -> None:
    def of_pid(pid: str, at: str) -> ProcessLog | None:
        """Return the last process that had started under this id: the system gives it again, within an hour even."""
        started = (process for process in run.processes if process.pid == int(pid) and process.started_ns <= int(at))
        return max(started, key=lambda process: process.started_ns, default=None)

    def exited(pid: str, at: str) -> None:
        process = of_pid(pid, at)
        # A process that died before it wrote a line has no journal, and nothing to answer for.
        if process is not None and process.exited_ns is None:
            process.exited_ns = int(at)

    def lease_lost(pid: str, at: str) -> None:
        process = of_pid(pid, at)
        if process is None:
            raise ValueError(f"no process {pid} had started then")
        process.lease_lost_ns = sorted([*process.lease_lost_ns, int(at)])

    def committed(topic: str, partition: str, offset: str) -> None:
        run.committed[Tp(topic, int(partition))] = int(offset)

    lines.each({"X": exited, "L": lease_lost, "C": committed, "E": lambda _at: None})


def _close_open_ends(process: ProcessLog) -> None:
    gone = process.gone_ns()
    for handout in process.handouts:
        if handout.done_ns is None:
            handout.end_ns = None if gone is None else max(gone, handout.handed_ns)
