"""What this member holds, takes and gives: the partitions' side of the protocol (rules 2 to 5, 10, 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.records import ReleaseRecord

from .commands import (
    AwaitLullCommand,
    Command,
    CommitResultCommand,
    CountCommand,
    DropCommand,
    FetchCommittedCommand,
    GatherCommitsCommand,
    OpenCommand,
    ResumeCommand,
    RunCommand,
    StopCommand,
)
from .commits import CommitOutcome, CommitQueue
from .events import (
    AppendedEvent,
    CommittedFetchedEvent,
    CommitWantedEvent,
    DrainedEvent,
    LullEvent,
    OffsetCommit,
    OpenedEvent,
    TransactionSendsEvent,
    TransactionSentEvent,
)
from .group_config import COORDINATOR_MOVED, Code, GroupConfig
from .ownership import Hold, HoldState, Ownership

__all__ = ["Holdings"]

NEVER = float("inf")
AHEAD_SECONDS = 0.2
"""How long a moment with nothing left to commit is waited for before the partition is stopped in any case: some twenty
commits."""
DOUBT_SECONDS = 1.0
"""How long a sent release may stay undecided before a barrier decides (rule 10)."""
LATE_SECONDS = 0.25
"""A tick that comes so long after it was due tells of a process that was frozen or starved."""

_GIVING = (HoldState.COMMITTING_AHEAD, HoldState.STOPPING, HoldState.COMMITTING)


class Holdings:
    """Held partitions by :class:`Hold`; changed by :class:`~.machine.Machine` only."""

    def __init__(
        self, config: GroupConfig, emit: Callable[[Command], None], append: Callable[[ReleaseRecord], int]
    ) -> None:
        self._config = config
        self._emit = emit
        self._append = append
        self.commits = CommitQueue(config.retry_backoff)
        self.ownership: Ownership | None = None
        """The fold of the log; None while nothing may move (mixed group, no map)."""
        self.holds: dict[Partition, Hold] = {}
        self._moving: dict[Partition, Hold] = {}
        """Those of :attr:`holds` that are being given away: so few that every event may look at them all."""
        self._gathering = False
        """What is done has been asked for, to be committed ahead, and not been told yet."""
        self._takes = 0
        self._fetches: dict[int, dict[Partition, int]] = {}
        """OffsetFetch in flight -> partition and take that it is for."""
        self._fetch_numbers = 0
        self._sending: dict[tuple[Partition, int], int] = {}
        """Acquisition -> how many requests with its offsets are on their way through transactions."""
        self._again_at = NEVER
        """When what was refused for now is tried again."""
        self._appends: dict[int, tuple[Partition, int]] = {}
        """Release append in flight -> partition and take."""

    def number_on(self, earlier: Holdings) -> None:
        """Go on from the numbers of an earlier machine of this process, so that late answers stay harmless."""
        self._takes = earlier._takes
        self._fetch_numbers = earlier._fetch_numbers
        self.commits.number_on(earlier.commits)

    # -- what others ask -----------------------------------------------------------------------------------------

    def claims(self, topics: Iterable[str]) -> tuple[Partition, ...]:
        """Owned and no release sent (rule 5), of subscribed topics, sorted."""
        subscribed = frozenset(topics)
        return tuple(
            sorted(p for p, h in self.holds.items() if h.state is not HoldState.RELEASED and p.topic in subscribed)
        )

    def take_of(self, partition: Partition) -> int | None:
        hold = self.holds.get(partition)
        return hold.take if hold is not None else None

    def wakeup(self) -> float:
        """When :meth:`tick` wants to be called at the latest."""
        return min(self._again_at, min((hold.deadline for hold in self._moving.values()), default=NEVER))

    # -- barriers ------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """A JoinGroup is about to be sent: what was stopped without a release runs again (rule 5)."""
        for hold in self._sorted_moving():
            if hold.state in _GIVING:
                self._resume(hold)

    def keep(self, partition: Partition) -> None:
        """The intention to give it away is dropped, if the release was not sent."""
        hold = self.holds.get(partition)
        if hold is not None and hold.state in _GIVING:
            self._resume(hold)

    def drop_unopened(self, topics: Iterable[str] | None = None) -> None:
        """Put down what was taken and not opened yet: of these topics, or all of it."""
        for hold in self._sorted():
            if not hold.opened and (topics is None or hold.partition.topic in topics):
                self._drop(hold)

    def enter(self, ownership: Ownership, member: str) -> None:
        """A generation begins: keep what the map gives us and we hold, drop the rest, take what is new (rules 3, 4)."""
        self.ownership = ownership
        mine = {p for p, owner in ownership.owners().items() if owner == member}
        for hold in self._sorted():
            if hold.partition not in mine or hold.state is HoldState.RELEASED:
                self._drop(hold)
        self.take([p for p in sorted(mine) if p not in self.holds])

    def enter_blind(self, partitions: Iterable[Partition]) -> None:
        """A generation in which nothing moves begins: hold exactly these."""
        self.ownership = None
        wanted = frozenset(partitions)
        for hold in self._sorted():
            if hold.partition not in wanted or hold.state is HoldState.RELEASED:
                self._drop(hold)
        self.take([p for p in sorted(wanted) if p not in self.holds])

    def drop_all(self) -> None:
        for hold in self._sorted():
            self._drop(hold)

    # -- taking --------------------------------------------------------------------------------------------------

    def take(self, partitions: Iterable[Partition]) -> None:
        """Given by a map without being held: start at the committed offset (rule 4)."""
        fetch = {p: self._hold(p, HoldState.FETCHING).take for p in partitions}
        self._fetch(fetch)

    def _hold(self, partition: Partition, state: HoldState) -> Hold:
        self._takes += 1
        hold = Hold(partition=partition, take=self._takes, state=state)
        self.holds[partition] = hold
        return hold

    def _fetch(self, takes: Mapping[Partition, int]) -> None:
        if not takes:
            return
        self._fetch_numbers += 1
        self._fetches[self._fetch_numbers] = dict(takes)
        for partition in takes:
            self.holds[partition].fetch = self._fetch_numbers
        self._emit(FetchCommittedCommand(fetch=self._fetch_numbers, partitions=tuple(sorted(takes))))

    def committed_fetched(self, event: CommittedFetchedEvent) -> bool:
        """Offsets are there. False: the coordinator has moved; they are asked for again."""
        takes = self._fetches.pop(event.fetch, {})
        for partition, take in sorted(takes.items()):
            hold = self.holds.get(partition)
            if hold is None or hold.take != take or hold.fetch != event.fetch:
                continue
            offset = event.offsets.get(partition) if event.code == Code.NONE else None
            hold.unstable = partition in event.unstable
            if offset is None:
                self._try_again(event.now)
            elif hold.state is HoldState.FETCHING:
                self._open(hold, offset if offset >= 0 else None)
            elif hold.state is HoldState.COMMITTING:
                self._handoff_offset(hold, offset)
        return event.code not in COORDINATOR_MOVED

    def _open(self, hold: Hold, offset: int | None, handoff_seconds: float | None = None) -> None:
        hold.committed = offset
        hold.become(HoldState.OPENING)
        self._emit(
            OpenCommand(partition=hold.partition, take=hold.take, offset=offset, handoff_seconds=handoff_seconds)
        )

    def opened(self, event: OpenedEvent) -> None:
        hold = self._current(event.partition, event.take, HoldState.OPENING)
        if hold is None:
            return
        if hold.committed is not None:
            self._run(hold)
            return
        # Rule 4: with no commit yet, an owner that dies before its first one would lose what `latest` skipped.
        hold.become(HoldState.PINNING)
        hold.start = event.position
        self.commits.want(0, {hold.partition: OffsetCommit(take=hold.take, offset=event.position)})

    def _run(self, hold: Hold) -> None:
        hold.become(HoldState.RUNNING)
        self._emit(RunCommand(partition=hold.partition, take=hold.take))

    # -- giving --------------------------------------------------------------------------------------------------

    def intend(self, now: float, partition: Partition, target: str, *, patient: bool = False) -> bool:
        """Begin to give a partition away; '' as target: only stop and commit (to leave, or to share a mixed group).

        What is done so far is committed before it is stopped, again in each lull until nothing was done during one
        commit: the broker takes 6 to 8 ms for one, which would be most of the pause. User code has the drain time to
        finish, or, ``patient`` (this member puts down all it has), as long as it takes: the caller then sets the limit.
        """
        hold = self.holds.get(partition)
        if hold is None or not hold.handed_out or (hold.state is HoldState.COMMITTING_AHEAD and target):
            return False
        self._moving[partition] = hold
        hold.target, hold.patient = target, patient
        if patient or not target or not self._config.auto_commit:
            self._stop(now, hold)
        else:
            self._commit_ahead(now, hold)
        return True

    def _commit_ahead(self, now: float, hold: Hold) -> None:
        hold.become(HoldState.COMMITTING_AHEAD)
        hold.deadline = now + AHEAD_SECONDS
        hold.lull_awaited, hold.lulls = False, 0
        if not self._gathering:  # one commit for all that begin together
            self._gathering = True
            self._emit(GatherCommitsCommand())

    def _stop(self, now: float, hold: Hold) -> None:
        hold.become(HoldState.STOPPING)
        hold.since, hold.done, hold.decided = now, None, False
        hold.deadline = NEVER if hold.patient or not hold.target else now + self._config.drain_seconds
        self._emit(StopCommand(partition=hold.partition, take=hold.take))

    def _await_lulls(self) -> None:
        """What was committed ahead is stopped when nothing of it is left to commit.

        What was done during the first commit is committed at once: most partitions have few records. Where there is
        more after that too, right after a record is when the next is farthest away.
        """
        for hold in self._sorted_moving():
            waits = hold.state is HoldState.COMMITTING_AHEAD and not hold.lull_awaited
            if waits and not self.commits.busy(hold.partition):
                hold.lull_awaited = True
                hold.lulls += 1
                self._emit(
                    AwaitLullCommand(
                        partition=hold.partition, take=hold.take, committed=hold.committed, begun=hold.lulls == 1
                    )
                )

    def lull(self, event: LullEvent) -> None:
        """Stop it where that leaves nothing to commit, or where no lull is to be hoped for; else commit once more."""
        hold = self._current(event.partition, event.take, HoldState.COMMITTING_AHEAD)
        if hold is None or not hold.lull_awaited:
            return
        hold.lull_awaited = False
        if event.busy or event.done is None or event.done == hold.committed:
            self._stop(event.now, hold)
        else:
            self.commits.want(0, {hold.partition: OffsetCommit(take=hold.take, offset=event.done)})

    def drained(self, event: DrainedEvent) -> None:
        hold = self._current(event.partition, event.take, HoldState.STOPPING)
        if hold is None:
            return
        hold.become(HoldState.COMMITTING)
        hold.done = event.done
        hold.decided = self._config.auto_commit
        if not self._config.auto_commit:
            # What the user committed counts, also through a transaction: only the broker knows (contracts: Done).
            self._ask_handoff_offset(hold)
        elif event.done is not None and event.done != hold.committed:
            commit = OffsetCommit(take=hold.take, offset=event.done)
            if not self.commits.covers(hold.partition, commit):
                self.commits.want(0, {hold.partition: commit})

    def _ask_handoff_offset(self, hold: Hold) -> None:
        """Ask where the next owner is to start, now or when the commit on its way was answered."""
        hold.decided = False
        if not self._busy(hold):
            self._fetch({hold.partition: hold.take})

    def _handoff_offset(self, hold: Hold, offset: int) -> None:
        if offset < 0:
            self._resume(hold, "move_refused")
        else:
            hold.committed = hold.done = offset
            hold.decided = True

    def settled(self) -> list[Hold]:
        """Holds whose commit is acknowledged with none in flight or queued: their release may be sent (rule 2)."""
        return [
            h
            for h in self._sorted_moving()
            if h.state is HoldState.COMMITTING
            and h.decided
            and h.committed is not None
            and not self._busy(h)
            and (h.done is None or h.done == h.committed)
        ]

    def release(self, now: float, hold: Hold, record: ReleaseRecord | None) -> None:
        """Send the release; after it nothing is cancelled. None: a final commit before leaving, nobody is given it."""
        hold.become(HoldState.RELEASED)
        hold.deadline = NEVER
        if record is not None:
            hold.deadline = now + DOUBT_SECONDS
            self._appends[self._append(record)] = (hold.partition, hold.take)

    def appended(self, event: AppendedEvent) -> None:
        partition, take = self._appends.pop(event.append, (None, 0))
        hold = self.holds.get(partition) if partition is not None else None
        if hold is not None and hold.take == take and hold.state is HoldState.RELEASED:
            hold.appended_at_offset = event.offset

    def missing_release(self, position: int) -> bool:
        """A release was acknowledged before ``position`` and was not there when we read past it (rule 10)."""
        return any(
            h.state is HoldState.RELEASED and h.appended_at_offset is not None and h.appended_at_offset < position
            for h in self._moving.values()
        )

    def fold(self, release: ReleaseRecord, member: str, *, acquire: bool) -> bool:
        """One release from the log. ``acquire`` False during a barrier: it changes the fold, and takes nothing."""
        if self.ownership is None or not self.ownership.apply(release):
            return False
        hold = self.holds.get(release.key)
        if release.source == member and hold is not None and hold.state is HoldState.RELEASED:
            self._drop(hold, released=True)
        if release.target == member and acquire and release.key not in self.holds:
            self._open(self._hold(release.key, HoldState.FETCHING), release.offset, release.seconds)
        return True

    def tick(self, now: float) -> bool:
        """Drop intentions that took too long; ask again for offsets. True: a release is in doubt (rule 10)."""
        doubt = False
        for hold in self._sorted_moving():
            if now < hold.deadline:
                continue
            if hold.state is HoldState.COMMITTING_AHEAD:
                self._stop(now, hold)
            elif hold.state in _GIVING:
                self._resume(hold, "move_timed_out")
            elif hold.state is HoldState.RELEASED and now > hold.deadline + LATE_SECONDS:
                hold.deadline = now + DOUBT_SECONDS  # this process did not run meanwhile: the log was not read either
            elif hold.state is HoldState.RELEASED:
                hold.deadline = NEVER
                doubt = True
        if now >= self._again_at:
            self._again_at = NEVER
            self._do_again()
        return doubt

    def _try_again(self, now: float) -> None:
        self._again_at = min(self._again_at, now + self._config.retry_backoff)

    def _do_again(self) -> None:
        """Ask again for offsets, and pin again what the broker refused to take."""
        asked = {p for takes in self._fetches.values() for p in takes}
        idle = [h for h in self._sorted() if h.partition not in asked and not self._busy(h)]
        undecided = {h.partition: h.take for h in idle if h.state is HoldState.COMMITTING and not h.decided}
        self._fetch({h.partition: h.take for h in idle if h.state is HoldState.FETCHING} | undecided)
        self.commits.want(
            0,
            {
                h.partition: OffsetCommit(take=h.take, offset=h.start)
                for h in idle
                if h.state is HoldState.PINNING and h.start is not None
            },
        )

    # -- commits -------------------------------------------------------------------------------------------------

    def commit_wanted(self, event: CommitWantedEvent) -> None:
        """Queue what is of the acquisition held now; what is being given away takes no other commit (rule 2)."""
        closed = (HoldState.RELEASED,) if not self._config.auto_commit else (HoldState.COMMITTING, HoldState.RELEASED)
        wanted: dict[Partition, OffsetCommit] = {}
        for partition, commit in sorted(event.offsets.items()):
            hold = self.holds.get(partition)
            held = hold is not None and hold.take == commit.take
            if hold is not None and held and hold.state not in closed:
                wanted[partition] = commit
            elif hold is not None and held and commit.offset == hold.committed:
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
            self._await_lulls()  # of what has nothing to commit

    def commit_answered(self, now: float, outcome: CommitOutcome) -> None:
        for partition, commit in sorted(outcome.acknowledged.items()):
            hold = self.holds[partition]
            hold.committed = commit.offset
            if hold.state is HoldState.PINNING:
                self._run(hold)
            elif hold.state is HoldState.COMMITTING and not self._config.auto_commit:
                self._ask_handoff_offset(hold)
        for partition in outcome.refused:
            refused = self.holds.get(partition)
            if refused is not None:
                self._refused(now, refused)
        self._await_lulls()
        self._answer_requests(outcome.finished)

    def _refused(self, now: float, hold: Hold) -> None:
        queued = self.commits.busy(hold.partition)
        if hold.state is HoldState.PINNING and not queued:
            self._emit(CountCommand(what="pin_refused", partition=hold.partition))
            self._try_again(now)
        elif hold.state is HoldState.COMMITTING and hold.target:
            self._resume(hold, "move_refused")  # rule 2, "refused or unknown: it keeps p"
        elif hold.state is HoldState.COMMITTING and not queued:
            hold.done = None  # put down all the same: what it did since the last commit is done again by the next owner
            hold.decided = True

    def transaction_sends(self, event: TransactionSendsEvent) -> None:
        """Until it was answered the broker does not know that these offsets are on their way (rule 2)."""
        for key in sorted(event.takes.items()):
            self._sending[key] = self._sending.get(key, 0) + 1

    def transaction_sent(self, event: TransactionSentEvent) -> None:
        """From now on the broker knows: it answers UNSTABLE until the transaction ends."""
        for key in sorted(event.takes.items()):
            left = self._sending.pop(key, 0) - 1
            if left > 0:
                self._sending[key] = left
            hold = self._current(*key, HoldState.COMMITTING)
            if hold is not None and not self._config.auto_commit:
                self._ask_handoff_offset(hold)

    def _busy(self, hold: Hold) -> bool:
        """A commit of it is queued or in flight, or offsets are on their way through a transaction."""
        return self.commits.busy(hold.partition) or (hold.partition, hold.take) in self._sending

    def _answer_requests(self, finished: Mapping[int, int]) -> None:
        for request, code in sorted(finished.items()):
            self._emit(CommitResultCommand(request=request, code=code))

    # -- small steps ---------------------------------------------------------------------------------------------

    def _resume(self, hold: Hold, why: str = "move_dropped") -> None:
        stopped = hold.state is not HoldState.COMMITTING_AHEAD
        hold.become(HoldState.RUNNING)
        del self._moving[hold.partition]
        hold.target, hold.done, hold.decided = "", None, False
        self._emit(CountCommand(what=why, partition=hold.partition))
        if stopped:
            self._emit(ResumeCommand(partition=hold.partition, take=hold.take))

    def _drop(self, hold: Hold, *, released: bool = False) -> None:
        del self.holds[hold.partition]
        self._moving.pop(hold.partition, None)
        self._answer_requests(self.commits.lose(hold.partition))
        self._emit(DropCommand(partition=hold.partition, take=hold.take, released=released))

    def _current(self, partition: Partition, take: int, state: HoldState) -> Hold | None:
        hold = self.holds.get(partition)
        return hold if hold is not None and hold.take == take and hold.state is state else None

    def _sorted(self) -> list[Hold]:
        return [self.holds[p] for p in sorted(self.holds)]

    def _sorted_moving(self) -> list[Hold]:
        return [self._moving[p] for p in sorted(self._moving)] if self._moving else []
