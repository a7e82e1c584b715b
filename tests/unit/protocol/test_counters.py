"""Labels are public: Prometheus and /status show them."""

from __future__ import annotations

from loadtrim_agent.protocol.counters import ProtocolCount, Severity


def test_labels_of_errors_stay() -> None:
    errors = {count.label for count in ProtocolCount if count.severity is Severity.ERROR}
    assert errors == {
        "commit_refused",
        "contested_claim",
        "foreign_plan",
        "foreign_release",
        "forgotten",
        "future_records_dropped",
        "heartbeat_refused",
        "join_unanswered",
        "log_failed",
        "log_gap",
        "map_not_written",
        "map_too_large",
        "map_unanswered",
        "offsets_refused",
        "pin_refused",
        "release_in_doubt",
        "release_not_found",
        "stale_join",
        "stale_map",
    }


def test_outcomes_of_moves_stay() -> None:
    outcomes = {count.label: count.outcome for count in ProtocolCount if count.severity is Severity.MOVE}
    assert outcomes == {
        "move_timed_out": "timed_out",
        "move_refused": "refused",
        "move_dropped": "dropped",
        "move_not_possible": "not_possible",
        "void_release": "void",
    }
    told = (Severity.MOVE, Severity.SLICE)
    assert all(bool(count.outcome) == (count.severity in told) for count in ProtocolCount)
