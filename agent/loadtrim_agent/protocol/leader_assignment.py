"""The leader makes the assignment between its JoinGroup answer and its SyncGroup request (rules 7 and 8)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.ownership_records import AssignmentRecord

from .assignment import GenerationAssignment, answers_of, assign_standard, make_assignment
from .commands import Command, CountCommand, FetchTopicsCommand, ReadAssignmentCommand
from .counters import ProtocolCount
from .events import AssignmentFoundEvent, GroupAnswer, JoinAnsweredEvent
from .group_config import LOADTRIM, GroupConfig
from .join_sequence import JoinSequence
from .missing_partitions import MissingPartitions
from .ports import MembershipHooks

__all__ = ["LeaderAssignment"]

ASSIGNMENT_READ_SECONDS = 0.5
"""Chosen: some fifty reads of the log; a leader that waits for longer holds the whole group up (rule 8)."""


class _Look(enum.Enum):
    """Tell how far the look at the log is, in a rebalance."""

    NOT_BEGUN = enum.auto()
    UNDER_WAY = enum.auto()
    OVER = enum.auto()


class LeaderAssignment:
    """The assignment of one generation at a time, for the member that leads it. Changed by the membership only.

    Args:
        hooks: what is known of the members, and the log.
        emit: takes commands.
        join_sequence: of all members, kept over generations.
    """

    def __init__(self, hooks: MembershipHooks, emit: Callable[[Command], None], join_sequence: JoinSequence) -> None:
        self._hooks = hooks
        self._emit = emit
        self._join_sequence = join_sequence
        self._joined = JoinAnsweredEvent(now=0.0, sent_at=0.0, attempt=0, code=0)
        """The answer that made this member the leader: everybody's JoinGroup."""
        self._look = _Look.NOT_BEGUN
        self._newest_known = False
        """The JoinGroups of the generation before are known."""
        self._topics_asked: tuple[str, ...] | None = None
        self._topics_answered = False
        self._assigned_for: dict[str, int] = {}
        """Topic -> partitions that the last assignment was made for; empty where another member leads."""
        self.missing = MissingPartitions()
        self._append: int | None = None
        self._pending: AssignmentRecord | None = None
        """The assignment that is being written to the log. Invariant: there is one iff ``_append`` is set."""
        self._never_inline = False
        """The broker has refused answers that had the assignment in them."""
        self.contested = False
        """A partition was owned by two: the next generation, which the leader starts at once, gives it away."""

    def judge(self, joined: JoinAnsweredEvent) -> bool:
        """Take in everybody's JoinGroup. True: one is a delayed copy, so that nothing may be made of them (rule 8)."""
        self._joined = joined
        stale = self._join_sequence.is_stale(joined.members)
        # Without the assignment of the generation before, others may have been answered JoinGroups that are not known.
        self._newest_known = self._join_sequence.covers(joined.generation)
        self._join_sequence.answered(joined.members)
        return stale

    def begin(self) -> None:
        self._look, self._topics_answered = _Look.NOT_BEGUN, False
        self._topics_asked = None
        self._append = self._pending = None

    @property
    def writing(self) -> bool:
        """The assignment is on its way to the log: it does not fit into the answers."""
        return self._append is not None

    def make(
        self, now: float, config: GroupConfig, counts: Mapping[str, int], *, late: bool
    ) -> dict[str, GroupAnswer] | None:
        """Return everybody's answer; None where something must be known or written first.

        Args:
            now: time of the record.
            config: for the limit of inline assignments.
            counts: topic -> partitions, as far as metadata is known.
            late: topics are not waited for any more.
        """
        joined = self._joined
        if self.writing or self._lacks_what_the_log_has(config) or self._lacks_topics(counts, late=late):
            return None
        counts = self.missing.believed(now, joined.members, counts)
        self._assigned_for = {topic: counts.get(topic, 0) for m in joined.members for topic in m.topics}
        if joined.protocol != LOADTRIM:
            return assign_standard(joined.protocol, joined.members, counts)
        made = make_assignment(
            joined.members, counts, leaving=self._hooks.leaving_members(), weights=self._hooks.weights()
        )
        self._count_oddities(made)
        self.contested = bool(made.contested)
        assignment = AssignmentRecord(
            group=config.group,
            member=joined.member,
            at=self._hooks.wall(now),
            generation=joined.generation,
            members=made.entries,
            manual_override=self._hooks.override.latest,
            override_known=self._hooks.override.known,
        )
        fits = len(encode(assignment)) * len(joined.members) <= config.inline_limit_bytes
        if fits and not self._never_inline:
            return answers_of(assignment, inline=True)
        self._pending = assignment
        self._append = self._hooks.append(assignment)
        return None

    def appended(self, append: int, offset: int | None) -> dict[str, GroupAnswer] | None:
        """Return the answers once the assignment is in the log at ``offset``, or will not be (None): rule 7."""
        if append != self._append or self._pending is None:
            return None
        answers = answers_of(self._pending, inline=False)
        if offset is None:
            self._emit(CountCommand(what=ProtocolCount.ASSIGNMENT_NOT_WRITTEN))
            return answers
        return {m: structs.replace(a, assignment_offset=offset) for m, a in answers.items()}

    def without_more(self) -> dict[str, GroupAnswer] | None:
        """Waiting takes too long: return the answers without a place in the log, or wait for the newest no more."""
        if self._append is not None:
            return self.appended(self._append, None)
        self._look = _Look.OVER
        return None

    @property
    def looking(self) -> bool:
        """The log is being read for what this leader does not know."""
        return self._look is _Look.UNDER_WAY

    def found(self, event: AssignmentFoundEvent) -> bool:
        """Take in what the log had, also too late. True: by it one of the JoinGroups is a delayed copy (rule 8)."""
        was_looking, self._look = self.looking, _Look.OVER
        # A newcomer has read no such record of the log itself, and every later one learns it from this assignment.
        if event.complete or event.manual_override is not None:
            self._hooks.override.repeated(event.manual_override)
        newest = event.assignment if was_looking else None
        # Its number says nothing: a generation that was not stored before a failover leaves its assignment in the log.
        if newest is None:
            return False
        attempts = {m: e.attempt for m, e in newest.members.items()}
        # What was answered is known in the member's own sequence already: judged by it, everything would be a copy.
        known = JoinSequence()
        known.learn(attempts)
        self._join_sequence.learn(attempts)
        return known.is_stale(self._joined.members)

    def made_by_broker(self, topics: Iterable[str], counts: Mapping[str, int]) -> None:
        """The broker has assigned, and nobody leads: each member looks for new partitions itself.

        The broker looks only when somebody joins, or when a member of the consumer protocol heartbeats.
        """
        self._assigned_for = {topic: counts.get(topic, 0) for topic in topics}

    def topics_changed(self, now: float, counts: Mapping[str, int]) -> bool:
        """Metadata is there. True: the assignment in force was made for other numbers of partitions (rule 7)."""
        self._topics_answered = self._topics_answered or self._topics_asked is not None
        changed = self.missing.changed(now, self._assigned_for, counts)
        if changed:
            self.forget()
        return changed

    def ask_for_missing(self, now: float) -> None:
        """Ask for what is owned and not shown by metadata, while this member leads."""
        if now >= self.missing.ask_at:
            self._emit(FetchTopicsCommand(topics=self.missing.asked(now)))

    def too_large(self) -> None:
        """The broker could not store the answers: from now on assignments travel in the log."""
        self._never_inline = True

    def forget(self) -> None:
        """The assignment made last is not in force any more."""
        self._assigned_for = {}

    def _lacks_what_the_log_has(self, config: GroupConfig) -> bool:
        # Rule 8: a leader without the newest assignment, or without the last order, asks the log for it, once.
        joined = self._joined
        known = self._newest_known and self._hooks.override.known
        if known or self._look is _Look.OVER or joined.protocol != LOADTRIM or not config.log_usable:
            return False
        if self._look is _Look.NOT_BEGUN:
            self._look = _Look.UNDER_WAY
            # One that is alone has no JoinGroup to doubt, but only the log knows what the command line wanted.
            alone = all(member.member == joined.member for member in joined.members)
            only = self._newest_known or alone
            command = ReadAssignmentCommand(group=config.group, timeout=ASSIGNMENT_READ_SECONDS, override_only=only)
            self._emit(command)
        return True

    def _lacks_topics(self, counts: Mapping[str, int], *, late: bool) -> bool:
        # Rule 7: a partition that is owned and not known is asked for once more before it is called void.
        if late:
            return False
        members = self._joined.members
        missing = {topic for member in members for topic in member.topics} - counts.keys()
        if not self._topics_answered:
            missing |= {p.topic for m in members for p in m.owned if p.partition >= counts.get(p.topic, 0)}
        if missing and self._topics_asked is None:
            self._topics_asked = tuple(sorted(missing))
            self._emit(FetchTopicsCommand(topics=self._topics_asked))
        return bool(missing)

    def _count_oddities(self, made: GenerationAssignment) -> None:
        for partition in made.contested:
            self._emit(CountCommand(what=ProtocolCount.CONTESTED_CLAIM, partition=partition))
        for _, partition in made.void:
            self._emit(CountCommand(what=ProtocolCount.VOID_CLAIM, partition=partition))
