"""Partitions that this member holds, acquires and gives away (rules 2 to 5, 10, 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import ReleaseRecord

from .assigned_partition import AssignedEvent, AssignedPartition, AssignedState, IdlePoint
from .commands import (
    AwaitIdlePointCommand,
    Command,
    CommitResultCommand,
    CountCommand,
    DropCommand,
    FailCommand,
    GatherCommitsCommand,
    OpenCommand,
    ResumeCommand,
    RunCommand,
    StopCommand,
)
from .commits import CommitOutcome, CommitQueue
from .counters import ProtocolCount
from .events import (
    AppendedEvent,
    CommittedFetchedEvent,
    CommitWantedEvent,
    DrainedEvent,
    IdlePointEvent,
    OffsetCommit,
    OpenedEvent,
    TransactionSendsEvent,
    TransactionSentEvent,
)
from .group_config import COORDINATOR_MOVED, REFUSED_FOR_GOOD, RETRIABLE, Code, GroupConfig
from .offset_fetches import OffsetFetches
from .ownership import Ownership

__all__ = ["PartitionTable"]

NEVER = float("inf")
PRE_COMMIT_SECONDS = 0.2
"""Chosen: the time for which an idle point is waited for before the partition is stopped anyway; twenty commits."""
DOUBT_SECONDS = 1.0
"""Chosen: the time for which a sent release may stay undecided before a rebalance decides (rule 10)."""
REFUSED_SECONDS = 1.0
"""Chosen: what the broker refuses to this member is asked for again after this time, for rights may be granted."""
LATE_SECONDS = 0.25
"""A tick that comes so long after it was due tells of a process that was frozen or starved."""

_GIVING = (AssignedState.PRE_COMMIT, AssignedState.DRAINING, AssignedState.COMMITTING)


class PartitionTable:
    """Held partitions by :class:`AssignedPartition`; changed by :class:`~.machine.Machine` only."""

    def __init__(
        self, config: GroupConfig, emit: Callable[[Command], None], append: Callable[[ReleaseRecord], int]
    ) -> None:
        self._config = config
        self._emit = emit
        self._append = append
        self.commits = CommitQueue(config.retry_backoff)
        self.ownership: Ownership | None = None
        """The fold of the log; None while nothing may move (mixed group, no map)."""
        self.assigned: dict[Partition, AssignedPartition] = {}
        self._moving: dict[Partition, AssignedPartition] = {}
        """The entries of :attr:`assigned` that are being given away: so few that every event may look at them all."""
        self._gathering = False
        """The shell was asked for all that is done, to commit it ahead, and has not answered yet."""
        self._acquisitions = 0
        self._fetches = OffsetFetches(emit)
        self._sending: dict[tuple[Partition, int], int] = {}
        """Acquisition -> how many requests with its offsets are on their way through transactions."""
        self._again_at = NEVER
        """Time at which refused requests are tried again."""
        self._appends: dict[int, tuple[Partition, int]] = {}
        """Release append in flight -> partition and acquisition."""

    def continue_from(self, earlier: PartitionTable) -> None:
        """Go on from the numbers of an earlier machine of this process, so that late answers stay harmless."""
        self._acquisitions = earlier._acquisitions
        self._fetches.continue_from(earlier._fetches)
        self.commits.continue_from(earlier.commits)

    # -- what others ask -----------------------------------------------------------------------------------------

    def owned_partitions(self, topics: Iterable[str]) -> tuple[Partition, ...]:
        """Owned and no release sent (rule 5), of subscribed topics, sorted."""
        subscribed = frozenset(topics)
        return tuple(
            sorted(
                p
                for p, h in self.assigned.items()
                if h.state is not AssignedState.TRANSFERRED and p.topic in subscribed
            )
        )

    def acquisition_of(self, partition: Partition) -> int | None:
        entry = self.assigned.get(partition)
        return entry.acquisition_id if entry is not None else None

    def wakeup(self) -> float:
        """Return the time at which :meth:`tick` wants to be called at the latest."""
        return min(self._again_at, min((entry.deadline for entry in self._moving.values()), default=NEVER))

    # -- barriers ------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """A JoinGroup is about to be sent: what was stopped without a release runs again (rule 5)."""
        for entry in self._sorted_moving():
            if entry.state in _GIVING:
                self._resume(entry)

    def keep(self, partition: Partition) -> None:
        """The intention to give it away is dropped, if the release was not sent."""
        entry = self.assigned.get(partition)
        if entry is not None and entry.state in _GIVING:
            self._resume(entry)

    def drop_unopened(self, topics: Iterable[str] | None = None) -> None:
        """Put down what was taken and not opened yet: of these topics, or all of it."""
        for entry in self._sorted():
            if not entry.opened and (topics is None or entry.partition.topic in topics):
                self._drop(entry)

    def enter(self, ownership: Ownership | None, mine: Iterable[Partition]) -> None:
        """A generation begins: keep what is ours and we hold, drop the rest, take what is new (rules 3, 4).

        Args:
            ownership: the fold of its log; None: nothing moves in it.
            mine: what its assignment gives this member.
        """
        self.ownership = ownership
        wanted = frozenset(mine)
        for entry in self._sorted():
            if entry.partition not in wanted or entry.state is AssignedState.TRANSFERRED:
                self._drop(entry)
        self.acquire([p for p in sorted(wanted) if p not in self.assigned])

    def drop_all(self) -> None:
        for entry in self._sorted():
            self._drop(entry)

    # -- taking --------------------------------------------------------------------------------------------------

    def acquire(self, partitions: Iterable[Partition]) -> None:
        """Given by a map without being held: start at the committed offset (rule 4)."""
        self._fetches.ask([self._add(partition, AssignedState.FETCHING) for partition in partitions])

    def _add(self, partition: Partition, state: AssignedState) -> AssignedPartition:
        self._acquisitions += 1
        entry = AssignedPartition(partition=partition, acquisition_id=self._acquisitions, state=state)
        self.assigned[partition] = entry
        return entry

    def committed_fetched(self, event: CommittedFetchedEvent) -> bool:
        """Offsets are there. False: the coordinator has moved; they are asked for again."""
        for entry in self._fetches.answered(event.fetch, self.assigned):
            partition = entry.partition
            offset = event.offsets.get(partition) if event.code == Code.NONE else None
            code = event.refused.get(partition, event.code)
            refused = code != Code.NONE and code not in RETRIABLE
            entry.held_up = refused or partition in event.unstable
            if refused:
                self._emit(CountCommand(what=ProtocolCount.OFFSETS_REFUSED, partition=partition, code=code))
                if entry.state is AssignedState.COMMITTING and entry.patient:
                    _leave_to_the_next_assignment(entry)
                else:
                    self._try_again(event.now, REFUSED_SECONDS)
            elif offset is None:
                self._try_again(event.now, self._config.retry_backoff)
            elif entry.state is AssignedState.FETCHING:
                self._open(entry, offset if offset >= 0 else None)
            elif entry.state is AssignedState.COMMITTING:
                self._handoff_offset(entry, offset)
        if event.code in REFUSED_FOR_GOOD:
            self._emit(FailCommand(code=event.code))
        return event.code not in COORDINATOR_MOVED

    def _open(self, entry: AssignedPartition, offset: int | None, handoff_seconds: float | None = None) -> None:
        entry.committed = offset
        entry.advance(AssignedEvent.OFFSET_KNOWN)
        self._emit(
            OpenCommand(
                partition=entry.partition,
                acquisition_id=entry.acquisition_id,
                offset=offset,
                handoff_seconds=handoff_seconds,
            )
        )

    def opened(self, event: OpenedEvent) -> None:
        entry = self._current(event.partition, event.acquisition_id, AssignedState.OPENING)
        if entry is None:
            return
        if entry.committed is not None:
            self._run(entry, AssignedEvent.OPENED)
            return
        # Rule 4: with no commit yet, an owner that dies before its first one would lose what `latest` skipped.
        entry.advance(AssignedEvent.OPENED_WITHOUT_COMMIT)
        entry.start = event.position
        self.commits.want(
            0, {entry.partition: OffsetCommit(acquisition_id=entry.acquisition_id, offset=event.position)}
        )

    def _run(self, entry: AssignedPartition, event: AssignedEvent) -> None:
        entry.advance(event)
        self._emit(RunCommand(partition=entry.partition, acquisition_id=entry.acquisition_id))

    # -- giving --------------------------------------------------------------------------------------------------

    def intend(
        self, now: float, partition: Partition, target: str, *, patient: bool = False, at_once: bool = False
    ) -> bool:
        """Begin to give a partition away; '' as target: only stop and commit (to leave, or to share a mixed group).

        What is done so far is committed before it is stopped, again in each lull until nothing was done during one
        commit: the broker takes 6 to 8 ms for one, which would be most of the pause. User code has the drain time to
        finish, or, ``patient`` (this member puts down all it has), as long as it takes: the caller then sets the limit.
        ``at_once``: what can be done ahead is done already (a slice), so that it is stopped now.
        """
        entry = self.assigned.get(partition)
        if entry is None or not entry.delivered or (entry.state is AssignedState.PRE_COMMIT and target):
            return False
        self._moving[partition] = entry
        entry.target, entry.patient = target, patient
        if patient or at_once or not target or not self._config.auto_commit:
            self._stop(now, entry)
        else:
            self._pre_commit(now, entry)
        return True

    def _pre_commit(self, now: float, entry: AssignedPartition) -> None:
        entry.advance(AssignedEvent.GIVING)
        entry.deadline = now + PRE_COMMIT_SECONDS
        entry.idle_point = IdlePoint()
        if not self._gathering:  # one commit for all that begin together
            self._gathering = True
            self._emit(GatherCommitsCommand())

    def _stop(self, now: float, entry: AssignedPartition) -> None:
        entry.advance(AssignedEvent.STOPPED)
        entry.since, entry.done, entry.decided = now, None, False
        entry.deadline = NEVER if entry.patient or not entry.target else now + self._config.drain_seconds
        self._emit(StopCommand(partition=entry.partition, acquisition_id=entry.acquisition_id))

    def _await_idle_points(self) -> None:
        """A partition that was committed ahead is stopped when nothing of it is left to commit.

        What was done during the first commit is committed at once: most partitions have few records. Where there is
        more after that too, right after a record is when the next is farthest away.
        """
        for entry in self._sorted_moving():
            waits = entry.state is AssignedState.PRE_COMMIT and not entry.idle_point.awaited
            if waits and not self.commits.busy(entry.partition, entry.acquisition_id):
                entry.idle_point.awaited = True
                entry.idle_point.asked += 1
                self._emit(
                    AwaitIdlePointCommand(
                        partition=entry.partition,
                        acquisition_id=entry.acquisition_id,
                        committed=entry.committed,
                        begun=entry.idle_point.asked == 1,
                    )
                )

    def idle_point(self, event: IdlePointEvent) -> None:
        """Stop it where that leaves nothing to commit, or where no lull is to be hoped for; else commit once more."""
        entry = self._current(event.partition, event.acquisition_id, AssignedState.PRE_COMMIT)
        if entry is None or not entry.idle_point.awaited:
            return
        entry.idle_point.awaited = False
        if event.busy or event.done is None or event.done == entry.committed:
            self._stop(event.now, entry)
        else:
            self.commits.want(
                0, {entry.partition: OffsetCommit(acquisition_id=entry.acquisition_id, offset=event.done)}
            )

    def drained(self, event: DrainedEvent) -> None:
        entry = self._current(event.partition, event.acquisition_id, AssignedState.DRAINING)
        if entry is None:
            return
        entry.advance(AssignedEvent.DRAINED)
        entry.done = event.done
        entry.decided = self._config.auto_commit
        if not self._config.auto_commit:
            # What the user committed counts, also through a transaction: only the broker knows (contracts: Done).
            self._ask_handoff_offset(entry)
        else:
            self._commit_done(entry)

    def _commit_done(self, entry: AssignedPartition) -> None:
        """Commit what is done, unless that was or is being done: an earlier request may have committed less since."""
        if entry.done is None or entry.done == entry.committed:
            return
        commit = OffsetCommit(acquisition_id=entry.acquisition_id, offset=entry.done)
        if not self.commits.covers(entry.partition, commit):
            self.commits.want(0, {entry.partition: commit})

    def _ask_handoff_offset(self, entry: AssignedPartition) -> None:
        """Ask where the next owner is to start, now or when the commit on its way was answered."""
        entry.decided = False
        if not self._busy(entry):
            self._fetches.ask([entry])

    def _handoff_offset(self, entry: AssignedPartition, offset: int) -> None:
        if offset < 0 and entry.patient:
            _leave_to_the_next_assignment(entry)
        elif offset < 0:
            self._resume(entry, ProtocolCount.MOVE_REFUSED)
        else:
            entry.committed = entry.done = offset
            entry.decided = True

    def settled(self) -> list[AssignedPartition]:
        """Return the partitions whose commit is acknowledged and the last: their release may be sent (rule 2)."""
        return [
            h
            for h in self._sorted_moving()
            if h.state is AssignedState.COMMITTING
            and h.decided
            and h.committed is not None
            and not self._busy(h)
            and (h.done is None or h.done == h.committed)
        ]

    def release(self, now: float, entry: AssignedPartition, record: ReleaseRecord | None) -> None:
        """Send the release; after it nothing is cancelled. None: a final commit before leaving, nobody is given it."""
        entry.advance(AssignedEvent.RELEASE_SENT)
        entry.deadline = NEVER
        if record is not None:
            entry.deadline = now + DOUBT_SECONDS
            self._appends[self._append(record)] = (entry.partition, entry.acquisition_id)

    def appended(self, event: AppendedEvent) -> None:
        partition, acquisition_id = self._appends.pop(event.append, (None, 0))
        entry = self.assigned.get(partition) if partition is not None else None
        if entry is not None and entry.acquisition_id == acquisition_id and entry.state is AssignedState.TRANSFERRED:
            entry.appended_at_offset = event.offset

    def missing_release(self, position: int) -> bool:
        """A release was acknowledged before ``position`` and was not there when we read past it (rule 10)."""
        return any(
            h.state is AssignedState.TRANSFERRED
            and h.appended_at_offset is not None
            and h.appended_at_offset < position
            for h in self._moving.values()
        )

    def fold(self, release: ReleaseRecord, member: str, *, acquire: bool) -> bool:
        """One release from the log. ``acquire`` False during a barrier: it changes the fold, and takes nothing."""
        if self.ownership is None or not self.ownership.apply(release):
            return False
        entry = self.assigned.get(release.key)
        if release.source == member and entry is not None and entry.state is AssignedState.TRANSFERRED:
            self._drop(entry, released=True)
        if release.target == member and acquire and release.key not in self.assigned:
            self._open(self._add(release.key, AssignedState.FETCHING), release.offset, release.seconds)
        return True

    def tick(self, now: float) -> bool:
        """Drop intentions that took too long; ask again for offsets. True: a release is in doubt (rule 10)."""
        doubt = False
        for entry in self._sorted_moving():
            if now < entry.deadline:
                continue
            if entry.state is AssignedState.PRE_COMMIT:
                self._stop(now, entry)
            elif entry.state in _GIVING:
                self._resume(entry, ProtocolCount.MOVE_TIMED_OUT)
            elif entry.state is AssignedState.TRANSFERRED and now > entry.deadline + LATE_SECONDS:
                entry.deadline = now + DOUBT_SECONDS  # this process did not run meanwhile: the log was not read either
            elif entry.state is AssignedState.TRANSFERRED:
                entry.deadline = NEVER
                doubt = True
        if now >= self._again_at:
            self._again_at = NEVER
            self._do_again()
        return doubt

    def _try_again(self, now: float, seconds: float) -> None:
        self._again_at = min(self._again_at, now + seconds)

    def coordinator_found(self) -> None:
        """Ask it what the one before has not answered: that one may be silent for a session timeout."""
        self._fetches.ask_again(self._sorted())

    def _do_again(self) -> None:
        """Ask again for offsets, and pin again what the broker refused to take."""
        idle = [h for h in self._sorted() if not self._fetches.asks(h) and not self._busy(h)]
        undecided = [h for h in idle if h.state is AssignedState.COMMITTING and not h.decided]
        self._fetches.ask([*(h for h in idle if h.state is AssignedState.FETCHING), *undecided])
        self.commits.want(
            0,
            {
                h.partition: OffsetCommit(acquisition_id=h.acquisition_id, offset=h.start)
                for h in idle
                if h.state is AssignedState.INITIAL_COMMIT and h.start is not None
            },
        )

    # -- commits -------------------------------------------------------------------------------------------------

    def commit_wanted(self, event: CommitWantedEvent) -> None:
        """Queue what is of the acquisition held now; a release waits for what user code commits before it (rule 2)."""
        wanted: dict[Partition, OffsetCommit] = {}
        for partition, commit in sorted(event.offsets.items()):
            entry = self.assigned.get(partition)
            held = entry is not None and entry.acquisition_id == commit.acquisition_id
            decided = entry is not None and entry.state is AssignedState.COMMITTING and self._config.auto_commit
            if decided and not event.request:
                continue  # the auto-commit brings nothing that the handoff does not commit
            if entry is not None and held and entry.state is not AssignedState.TRANSFERRED:
                wanted[partition] = _with_handoff(entry, commit) if decided else commit
            elif entry is not None and held and commit.offset == entry.committed:
                continue  # the handoff has committed it
            elif event.request:
                self._emit(CommitResultCommand(request=event.request, code=Code.ILLEGAL_GENERATION))
                return
        if wanted:
            self.commits.want(event.request, wanted)
        elif event.request:
            self._emit(CommitResultCommand(request=event.request, code=Code.NONE))
        if not event.request:
            self._gathering = False
            self._await_idle_points()  # of what has nothing to commit

    def commit_answered(self, now: float, outcome: CommitOutcome) -> None:
        for partition, commit in sorted(outcome.acknowledged.items()):
            entry = self.assigned[partition]
            entry.committed = commit.offset
            if entry.state is AssignedState.INITIAL_COMMIT:
                self._run(entry, AssignedEvent.START_COMMITTED)
            elif entry.state is AssignedState.COMMITTING and not self._config.auto_commit:
                self._ask_handoff_offset(entry)
            elif entry.state is AssignedState.COMMITTING:
                self._commit_done(entry)
        for partition in outcome.refused:
            refused = self.assigned.get(partition)
            if refused is not None:
                self._refused(now, refused, outcome.refused_for_good.get(partition))
        self._await_idle_points()
        self._answer_requests(outcome.finished)

    def _refused(self, now: float, entry: AssignedPartition, code: int | None) -> None:
        """Do what a refused commit asks for; ``code``: it is refused for good, and no caller waits for the answer."""
        queued = self.commits.busy(entry.partition, entry.acquisition_id)
        initial = entry.state is AssignedState.INITIAL_COMMIT
        if code is not None:
            what = ProtocolCount.INITIAL_COMMIT_REFUSED if initial else ProtocolCount.COMMIT_REFUSED
            self._emit(CountCommand(what=what, partition=entry.partition, code=code))
        if initial and not queued:
            entry.held_up = True
            self._try_again(now, REFUSED_SECONDS)
        elif entry.state is AssignedState.COMMITTING and entry.target and (queued or not entry.patient):
            self._resume(entry, ProtocolCount.MOVE_REFUSED)  # rule 2, "refused or unknown: it keeps p"
        elif entry.state is AssignedState.COMMITTING and not queued:
            _leave_to_the_next_assignment(entry)

    def transaction_sends(self, event: TransactionSendsEvent) -> None:
        """Until it was answered the broker does not know that these offsets are on their way (rule 2)."""
        for key in sorted(event.acquisitions.items()):
            self._sending[key] = self._sending.get(key, 0) + 1

    def transaction_sent(self, event: TransactionSentEvent) -> None:
        """From now on the broker knows: it answers UNSTABLE until the transaction ends."""
        for key in sorted(event.acquisitions.items()):
            left = self._sending.pop(key, 0) - 1
            if left > 0:
                self._sending[key] = left
            entry = self._current(*key, AssignedState.COMMITTING)
            if entry is not None and not self._config.auto_commit:
                self._ask_handoff_offset(entry)

    def _busy(self, entry: AssignedPartition) -> bool:
        """A commit of it is queued or in flight, or offsets are on their way through a transaction."""
        acquisition = (entry.partition, entry.acquisition_id)
        return self.commits.busy(*acquisition) or acquisition in self._sending

    def _answer_requests(self, finished: Mapping[int, int]) -> None:
        for request, code in sorted(finished.items()):
            self._emit(CommitResultCommand(request=request, code=code))

    # -- small steps ---------------------------------------------------------------------------------------------

    def _resume(self, entry: AssignedPartition, why: ProtocolCount = ProtocolCount.MOVE_DROPPED) -> None:
        stopped = entry.state is not AssignedState.PRE_COMMIT
        entry.advance(AssignedEvent.RESUMED)
        del self._moving[entry.partition]
        entry.target, entry.done, entry.decided = "", None, False
        self._emit(CountCommand(what=why, partition=entry.partition))
        if stopped:
            self._emit(ResumeCommand(partition=entry.partition, acquisition_id=entry.acquisition_id))

    def _drop(self, entry: AssignedPartition, *, released: bool = False) -> None:
        entry.advance(AssignedEvent.DROPPED)
        del self.assigned[entry.partition]
        self._moving.pop(entry.partition, None)
        self._answer_requests(self.commits.lose(entry.partition))
        self._emit(DropCommand(partition=entry.partition, acquisition_id=entry.acquisition_id, released=released))

    def _current(self, partition: Partition, acquisition_id: int, state: AssignedState) -> AssignedPartition | None:
        entry = self.assigned.get(partition)
        return entry if entry is not None and entry.acquisition_id == acquisition_id and entry.state is state else None

    def _sorted(self) -> list[AssignedPartition]:
        return [self.assigned[p] for p in sorted(self.assigned)]

    def _sorted_moving(self) -> list[AssignedPartition]:
        return [self._moving[p] for p in sorted(self._moving)] if self._moving else []


def _leave_to_the_next_assignment(entry: AssignedPartition) -> None:
    """Put it down uncommitted: whoever is given it begins at the last commit, and does again what was done since."""
    entry.target, entry.done, entry.decided = "", None, True


def _with_handoff(entry: AssignedPartition, commit: OffsetCommit) -> OffsetCommit:
    """Return the commit of user code and of the handoff's last commit in one: of the later offset."""
    entry.done = commit.offset if entry.done is None else max(entry.done, commit.offset)
    return structs.replace(commit, offset=entry.done)
