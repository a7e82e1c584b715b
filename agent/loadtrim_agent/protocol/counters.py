"""Counters of the protocol: one enum with the label and the severity of each."""

from __future__ import annotations

import enum

__all__ = ["ProtocolCount", "Severity"]


class Severity(enum.Enum):
    """The weight of one more of a counter."""

    NOTE = "note"
    """Expected in a healthy group; shown in the debug log only."""
    MOVE = "move"
    """The outcome of a move (``loadtrim_moves_total``)."""
    SLICE = "slice"
    """The outcome of a slice (``loadtrim_slices_total``)."""
    ERROR = "error"
    """Something is wrong in the group or at the broker (``loadtrim_agent_errors_total``)."""


class ProtocolCount(enum.Enum):
    """One counter. The value is its label; labels of moves and errors are public (Prometheus, ``/status``)."""

    severity: Severity
    outcome: str
    """MOVE, SLICE: label of the outcome in ``loadtrim_moves_total`` or ``loadtrim_slices_total``; else empty."""

    def __new__(cls, label: str, severity: Severity = Severity.NOTE, outcome: str = "") -> ProtocolCount:
        count = object.__new__(cls)
        count._value_ = label
        count.severity = severity
        count.outcome = outcome
        return count

    # Moves (rule 2): why a partition that was to be given away was not.
    MOVE_TIMED_OUT = ("move_timed_out", Severity.MOVE, "timed_out")
    MOVE_REFUSED = ("move_refused", Severity.MOVE, "refused")
    MOVE_DROPPED = ("move_dropped", Severity.MOVE, "dropped")
    MOVE_NOT_POSSIBLE = ("move_not_possible", Severity.MOVE, "not_possible")
    VOID_RELEASE = ("void_release", Severity.MOVE, "void")

    # Slices (rule 14): partitions that this member gives away by its own decision.
    SLICE_PROMISED = ("slice_promised", Severity.SLICE, "promised")
    SLICE_KEPT = ("slice_kept", Severity.SLICE, "kept")
    SLICE_OVERTAKEN = ("slice_overtaken", Severity.SLICE, "overtaken")
    SLICE_TIMED_OUT = ("slice_timed_out", Severity.SLICE, "timed_out")
    SLICE_DROPPED = ("slice_dropped", Severity.SLICE, "dropped")
    SLICE_NOT_POSSIBLE = ("slice_not_possible", Severity.SLICE, "not_possible")
    VOID_PROMISE = ("void_promise",)

    # The log (rules 9 and 10).
    LOG_FAILED = ("log_failed", Severity.ERROR)
    LOG_GAP = ("log_gap", Severity.ERROR)
    LOG_USABLE = ("log_usable",)
    RELEASE_IN_DOUBT = ("release_in_doubt", Severity.ERROR)
    RELEASE_NOT_FOUND = ("release_not_found", Severity.ERROR)
    FOREIGN_RELEASE = ("foreign_release", Severity.ERROR)
    FOREIGN_PLAN = ("foreign_plan", Severity.ERROR)
    FUTURE_RECORDS_DROPPED = ("future_records_dropped", Severity.ERROR)

    # Rebalances (rules 6 to 9 and 12).
    FORGOTTEN = ("forgotten", Severity.ERROR)
    JOIN_UNANSWERED = ("join_unanswered", Severity.ERROR)
    STALE_JOIN = ("stale_join", Severity.ERROR)
    ASSIGNMENT_UNANSWERED = ("map_unanswered", Severity.ERROR)
    ASSIGNMENT_NOT_WRITTEN = ("map_not_written", Severity.ERROR)
    ASSIGNMENT_TOO_LARGE = ("map_too_large", Severity.ERROR)
    ASSIGNMENT_UNREADABLE = ("map_unreadable",)
    STALE_ASSIGNMENT = ("stale_map", Severity.ERROR)
    CONTESTED_CLAIM = ("contested_claim", Severity.ERROR)
    VOID_CLAIM = ("void_claim",)
    PARTITIONS_CHANGED = ("partitions_changed",)

    # What the coordinator refuses, and does not say to be over soon.
    HEARTBEAT_REFUSED = ("heartbeat_refused", Severity.ERROR)
    OFFSETS_REFUSED = ("offsets_refused", Severity.ERROR)
    COMMIT_REFUSED = ("commit_refused", Severity.ERROR)
    INITIAL_COMMIT_REFUSED = ("pin_refused", Severity.ERROR)

    # Prefetches (rule 4).
    PREFETCHES_LEFT_OUT = ("prefetches_left_out",)

    @property
    def label(self) -> str:
        return str(self.value)
