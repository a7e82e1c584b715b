"""The queue of commits (rule 13): per acquisition, merged, one request in flight.

Commits carry the generation, so the broker refuses those of a member that was left behind. Around a barrier it refuses
everybody's for some milliseconds; those wait here and are sent again in the new generation, if the partition is still
held by the same acquisition. Losing a partition empties its entry: an old commit must never overwrite a newer owner's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping

import msgspec

from loadtrim_agent.common.partition import Partition

from .commands import SendCommitCommand
from .events import CommitAnsweredEvent, OffsetCommit
from .group_config import RETRIABLE, Code
from .missing_partitions import GONE_SECONDS

__all__ = ["CommitFailure", "CommitOutcome", "CommitQueue", "failure_of"]

_REBALANCE = frozenset({Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS})
_SENT_AGAIN = RETRIABLE | _REBALANCE | {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.REQUEST_TIMED_OUT}
"""Among them that a coordinator has just started and knows no topic yet, and that a follower of its log is away."""


class CommitFailure(enum.StrEnum):
    """The reason for which a commit request was not acknowledged (label of the metric), the least bad first."""

    REBALANCE = "rebalance"
    """The commit's generation had ended, or is ending: expected around a rebalance. The next one sends it again."""
    COORDINATOR = "coordinator"
    """No coordinator answered, or it does not know yet: whether it counted is unknown, and it is sent again."""
    FENCED = "fenced"
    """The coordinator does not know the member any more: what it did since its last commit is done again elsewhere."""
    REFUSED = "refused"
    """Anything else: rights that are missing, say."""


def failure_of(codes: Collection[int]) -> CommitFailure | None:
    """Return the worst of what the partitions of one request were answered; None: all were acknowledged."""
    failed = set(codes) - {Code.NONE}
    if not failed:
        return None
    if failed <= _REBALANCE:
        return CommitFailure.REBALANCE
    if failed <= _SENT_AGAIN:
        return CommitFailure.COORDINATOR
    if failed <= _SENT_AGAIN | {Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID}:
        return CommitFailure.FENCED
    return CommitFailure.REFUSED


class _Entry(msgspec.Struct):
    acquisition_id: int
    offset: int
    metadata: str
    requests: set[int] = msgspec.field(default_factory=set)
    """Callers that wait for this partition's outcome."""

    def commits_as(self, other: _Entry) -> bool:
        return (self.acquisition_id, self.offset, self.metadata) == (
            other.acquisition_id,
            other.offset,
            other.metadata,
        )


class CommitOutcome(msgspec.Struct):
    """The meaning of one answer."""

    acknowledged: dict[Partition, OffsetCommit] = msgspec.field(default_factory=dict)
    """Committed now, by acquisitions that are still the same."""
    refused: list[Partition] = msgspec.field(default_factory=list)
    """Not committed, or not known to be (they are sent again where that may help)."""
    refused_for_good: dict[Partition, int] = msgspec.field(default_factory=dict)
    """Refused partitions that are not sent again and that no caller waits for, with the code of each."""
    finished: dict[int, int] = msgspec.field(default_factory=dict)
    """Request -> code, for callers that need wait no longer."""


class CommitQueue:
    """Pure bookkeeping; O(partitions) per request."""

    def __init__(self, retry_backoff: float) -> None:
        self._retry_backoff = retry_backoff
        self._not_before = 0.0
        """Refused for now: nothing is sent before this time."""
        self._refused: tuple[str, int] | None = None
        """Member and generation that the broker fenced: nothing is sent for it again."""
        self._pending: dict[Partition, _Entry] = {}
        self._in_flight: dict[Partition, _Entry] = {}
        self._sent: int | None = None
        """Number of the request in flight."""
        self._numbers = 0
        self._unknown_since: dict[Partition, float] = {}
        """Partition -> since when its commits are answered that it is not known."""
        self._waiting: dict[int, set[Partition]] = {}
        """Caller -> partitions that it still waits for."""

    def continue_from(self, earlier: CommitQueue) -> None:
        """Number requests on from an earlier queue of this process."""
        self._numbers = earlier._numbers

    def want(self, request: int, offsets: Mapping[Partition, OffsetCommit]) -> None:
        """Queue offsets; a later one for the same partition replaces an earlier one and answers for it too.

        A caller that wants what is on its way already waits for that answer.
        """
        for partition, commit in sorted(offsets.items()):
            entry = _Entry(commit.acquisition_id, commit.offset, commit.metadata)
            previous, sent = self._pending.get(partition), self._in_flight.get(partition)
            if request and previous is None and sent is not None and sent.commits_as(entry):
                entry = sent
            else:
                self._pending[partition] = entry
            if previous is not None:
                entry.requests |= previous.requests
            if request:
                entry.requests.add(request)
                self._waiting.setdefault(request, set()).add(partition)

    def busy(self, partition: Partition, acquisition_id: int) -> bool:
        """A commit of this acquisition is queued or in flight; one of an earlier acquisition says nothing of this."""
        entries = (self._pending.get(partition), self._in_flight.get(partition))
        return any(entry is not None and entry.acquisition_id == acquisition_id for entry in entries)

    def latest_offsets(self, acquisition_of: Callable[[Partition], int | None]) -> dict[Partition, int]:
        """Return the offsets of the latest commits that are queued or in flight, of acquisitions that are still held.

        Cost: O(partitions in these commits).
        """
        latest = self._in_flight | self._pending
        return {p: entry.offset for p, entry in latest.items() if entry.acquisition_id == acquisition_of(p)}

    def fenced(self, member: str, generation: int) -> bool:
        """The broker takes nothing of this member in this generation any more."""
        return self._refused == (member, generation)

    def covers(self, partition: Partition, commit: OffsetCommit) -> bool:
        """The latest commit of this partition that is queued or in flight is this one."""
        entry = self._pending.get(partition) or self._in_flight.get(partition)
        return entry is not None and (entry.acquisition_id, entry.offset) == (commit.acquisition_id, commit.offset)

    @property
    def idle(self) -> bool:
        return not self._pending and self._sent is None

    def next(self, now: float, member: str, generation: int) -> SendCommitCommand | None:
        """Everything queued as one request, unless one is in flight: commits do not pipeline at the broker."""
        if self._sent is not None or not self._pending:
            return None
        if now < self._not_before or self._refused == (member, generation):
            return None
        self._numbers += 1
        self._sent = self._numbers
        self._in_flight, self._pending = self._pending, {}
        offsets = {p: (e.offset, e.metadata) for p, e in sorted(self._in_flight.items())}
        return SendCommitCommand(commit=self._sent, member=member, generation=generation, offsets=offsets)

    def wakeup(self, member: str, generation: int) -> float:
        """Return the time at which refused commits may be sent again; asked only while commits may be sent at all."""
        waits = self._pending and self._sent is None and self._refused != (member, generation)
        return self._not_before if waits else float("inf")

    def answered(self, event: CommitAnsweredEvent, acquisition_of: Callable[[Partition], int | None]) -> CommitOutcome:
        """Sort one answer out. ``acquisition_of`` tells which acquisition of a partition is held now."""
        outcome = CommitOutcome()
        if event.commit != self._sent:
            return outcome
        in_flight, self._in_flight, self._sent = self._in_flight, {}, None
        codes = set(event.codes.values())
        if Code.ILLEGAL_GENERATION in codes:
            self._refused = (event.member, event.generation)
        elif codes & _SENT_AGAIN:
            self._not_before = event.now + self._retry_backoff
        for partition, entry in sorted(in_flight.items()):
            code = event.codes.get(partition, Code.DISCONNECTED)
            if code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown_since.pop(partition, None)
            if acquisition_of(partition) != entry.acquisition_id:
                self._finish(partition, entry, Code.ILLEGAL_GENERATION, outcome)
            elif code == Code.NONE:
                outcome.acknowledged[partition] = OffsetCommit(acquisition_id=entry.acquisition_id, offset=entry.offset)
                self._finish(partition, entry, Code.NONE, outcome)
            elif code in _SENT_AGAIN and not self._is_gone(partition, code, event.now):
                outcome.refused.append(partition)
                self._put_back(partition, entry)
            else:
                outcome.refused.append(partition)
                if not entry.requests and code != Code.UNKNOWN_MEMBER_ID:  # which the membership heeds
                    outcome.refused_for_good[partition] = code
                self._finish(partition, entry, code, outcome)
        return outcome

    def _is_gone(self, partition: Partition, code: int, now: float) -> bool:
        """Return whether the coordinator has not known the topic for so long that it is not there any more."""
        unknown = code == Code.UNKNOWN_TOPIC_OR_PARTITION
        return unknown and now - self._unknown_since.setdefault(partition, now) >= GONE_SECONDS

    def lose(self, partition: Partition, code: int = Code.ILLEGAL_GENERATION) -> dict[int, int]:
        """The partition is not held any more. Returns the callers that are answered by that, with the code."""
        outcome = CommitOutcome()
        self._unknown_since.pop(partition, None)
        entry = self._pending.pop(partition, None)
        if entry is not None:
            self._finish(partition, entry, code, outcome)
        return outcome.finished

    def abandon(self) -> dict[int, int]:
        """The member has left. Returns the callers that wait for what is on its way, with the code."""
        outcome = CommitOutcome()
        for partition, entry in sorted(self._in_flight.items()):
            self._finish(partition, entry, Code.ILLEGAL_GENERATION, outcome)
        return outcome.finished

    def _put_back(self, partition: Partition, entry: _Entry) -> None:
        newer = self._pending.get(partition)
        if newer is None:
            self._pending[partition] = entry
        else:
            newer.requests |= entry.requests

    def _finish(self, partition: Partition, entry: _Entry, code: int, outcome: CommitOutcome) -> None:
        for request in sorted(entry.requests):
            waits_for = self._waiting.get(request)
            if waits_for is None:
                continue
            waits_for.discard(partition)
            if code != Code.NONE or not waits_for:
                del self._waiting[request]
                outcome.finished[request] = code
