"""Decisions and members in plain English."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.observability import text as words
from loadtrim_agent.wire.ownership_records import (
    ManualOverrideRecord,
    MovePlan,
)
from loadtrim_agent.wire.telemetry_records import (
    BaselineUse,
    DecisionRecord,
    RejectedPlan,
    Untold,
)

A = "payments-0f1e2d3c-1111-2222-3333-444455556666"
B = "payments-9a8b7c6d-1111-2222-3333-444455556666"
NAMES = {A: "pod-a", B: "pod-b"}
MOVE = MovePlan(topic="orders", partition=3, source=A, target=B, reason="spreads the work")
MANUAL_OVERRIDE = ManualOverrideRecord(group="payments", member="cli", at=0.0, action="scale", replicas=3)


def decision(**changes: Any) -> DecisionRecord:
    fields: dict[str, Any] = {
        "group": "payments",
        "member": A,
        "at": 1714564803.25,
        "generation": 7,
        "sequence": 12,
        "outcome": "up",
        "reason": "The load rises by 12 records/s each second.",
        "policy": "objective",
        "packer": "trim",
        "replicas_actual": 3,
        "replicas_wanted": 4,
        "members": {A: 0.62, B: 0.914},
        "rate": 412.3,
        "work": 2.43,
        "forecast": 2.71,
        "backlog": 0.4,
        "moves": (MOVE,),
        "rejected": (RejectedPlan(replicas=3, reason="would be late by 0.4 s"),),
        "late": {"forecast": 9, "serial": 3, "blocked": 0},
        "startup_seconds": 8.21,
        "handoff_seconds": 0.0082,
    }
    return DecisionRecord(**(fields | changes))


# Numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0"), (0.25, "0.25"), (12.34, "12.3"), (412.3, "412"), (999.6, "1000"), (4210.0, "4210"), (-0.0, "0")],
)
def test_numbers(value: float, expected: str) -> None:
    assert words.number(value) == expected


@given(st.floats(-1e12, 1e12))
def test_numbers_have_no_exponent_and_are_close(value: float) -> None:
    if abs(value) >= 1e-4 or value == 0:
        text = words.number(value)
        assert "e" not in text
        assert float(text) == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.008, "8 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (8.21, "8.21 s"),
        (99.97, "1 min 40 s"),
        (200, "3 min 20 s"),
        (3599.6, "1 h"),
        (7500, "2 h 5 min"),
        (-2, "-2 s"),
        (0, "0 ms"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert words.duration(seconds) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.62, "62 %"), (1.0, "100 %"), (0.9995, "99.95 %"), (0.99996, "99.99 %"), (1.31, "131 %"), (0, "0 %")],
)
def test_percentages(share: float, expected: str) -> None:
    assert words.percent(share) == expected


def test_counts() -> None:
    assert [words.counted(n, "move") for n in (0, 1, 2)] == ["no moves", "1 move", "2 moves"]


def test_times_in_a_zone() -> None:
    assert words.time_of_day(1714564803.25) == "2024-05-01 12:00:03.250 UTC"
    assert words.time_of_day(1714564803.25, ZoneInfo("Europe/Berlin")) == "2024-05-01 14:00:03.250 CEST"


# Names


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (A, "pod-a"),
        ("fraud-0f1e2d3c-1111-2222-3333-444455556666", "fraud-0f1e2d"),
        ("cli", "cli"),
        ("payments-service-eu-central-1-production-7", "payments-service-eu-central-1-production-7"),
        ("", ""),
    ],
)
def test_members_are_called_by_instance_or_shortly(member: str, expected: str) -> None:
    assert words.member_name(member, NAMES) == expected


# Decisions


def test_a_decision_in_a_line() -> None:
    assert words.decision_line(decision(), NAMES) == (
        "scales up, 3 -> 4 replicas, 1 move: The load rises by 12 records/s each second."
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"outcome": "none", "replicas_wanted": 3, "moves": (), "reason": "Fits."},
            "nothing to do, 3 replicas: Fits.",
        ),
        (
            {"outcome": "down", "replicas_wanted": 2, "moves": (), "victims": (B,), "reason": "Less."},
            "scales down, 3 -> 2 replicas, pod-b to go: Less.",
        ),
        (
            {"outcome": "hold", "replicas_actual": 1, "replicas_wanted": 1, "moves": (), "reason": ""},
            "holds, 1 replica: no reason given",
        ),
        (
            {"outcome": "move", "replicas_wanted": 3, "mode": "shadow", "reason": "Skew."},
            "moves partitions, 3 replicas, 1 move (shadow mode: not carried out): Skew.",
        ),
        ({"outcome": "sideways", "moves": (), "reason": "New."}, "sideways, 3 -> 4 replicas: New."),
    ],
)
def test_other_decisions_in_a_line(changes: dict[str, object], expected: str) -> None:
    assert words.decision_line(decision(**changes), NAMES) == expected


def test_a_decision_at_length() -> None:
    head, *rest = words.decision_lines(decision(manual_override=MANUAL_OVERRIDE), NAMES)
    assert head == (
        "2024-05-01 12:00:03.250 UTC  decision 7.12 by pod-a (objective/trim): scales up, 3 -> 4 replicas, 1 move: "
        "The load rises by 12 records/s each second."
    )
    seen = (
        "412 records/s; 2.43 busy seconds per second of work, 2.71 expected within the 8.21 s that a replica "
        "takes to start; a backlog of 0.4 busy seconds; handoffs of 8.2 ms"
    )
    assert rest == [
        f"  saw: {seen}",
        "  members: pod-b 91 %, pod-a 62 %",
        "  move: orders-3 from pod-a to pod-b: spreads the work",
        "  not taken: 3 replicas: would be late by 0.4 s",
        "  12 records late: 9 more load than forecast, 3 a partition too large for one member",
        "  brake on: 3 replicas until `loadtrim resume payments`",
    ]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            BaselineUse(used=True, scale=1.124, quantile=0.8413, forecast=3.1, returning=4.25),
            (
                "3.1 busy seconds per second within the start-up time, 4.25 before a replica let go would have paid; "
                "today has 1.12 times the usual load; not exceeded in 84 % of the minutes"
            ),
        ),
        (
            BaselineUse(used=True, scale=1.0, forecast=1.0, returning=1.0, topics=("orders",)),
            (
                "1 busy seconds per second within the start-up time, 1 before a replica let go would have paid; "
                "today has 1 times the usual load; of orders only, the rest as it is now"
            ),
        ),
        (
            BaselineUse(
                used=True,
                scale=1.0,
                forecast=1.0,
                returning=1.0,
                topics=("orders",),
                reason="for clicks it is old",
                ignored={"clicks": "stale", "new": "missing"},
            ),
            (
                "1 busy seconds per second within the start-up time, 1 before a replica let go would have paid; "
                "today has 1 times the usual load; of orders only, the rest as it is now; "
                "some are ignored (for clicks it is old); none for new"
            ),
        ),
        (
            BaselineUse(reason_code="stale", reason="for orders it is old", ignored={"orders": "stale"}),
            "ignored, because for orders it is old",
        ),
        (
            BaselineUse(reason_code="stale", reason="for a it is old", ignored={"a": "stale", "b": "missing"}),
            "ignored, because for a it is old; none for b",
        ),
        (BaselineUse(reason_code="missing"), "none for what the group reads"),
    ],
)
def test_what_became_of_the_baseline(use: BaselineUse, said: str) -> None:
    assert f"  baseline: {said}" in words.decision_lines(decision(baseline=use))
    assert not any("baseline" in line for line in words.decision_lines(decision()))


def test_how_far_a_plan_is_from_the_fewest() -> None:
    lines = words.decision_lines(decision(members_opened=3, members_bound=2))
    assert "  placement: on 3 members; no fewer than 2 could do" in lines
    lines = words.decision_lines(decision(members_opened=0, members_bound=0))
    assert "  placement: on no members; nothing to own" in lines
    assert not any("placement: on" in line for line in words.decision_lines(decision()))


def test_a_decision_with_nothing_in_it_still_reads() -> None:
    bare = DecisionRecord(group="g", member=A, at=0.0, generation=0, sequence=0, outcome="none", reason="Idle.")
    assert words.decision_lines(bare) == [
        "1970-01-01 00:00:00.000 UTC  decision 0.0 by payments-0f1e2d (?/?): nothing to do, no replicas: Idle.",
        "  saw: 0 records/s; 0 busy seconds per second of work, 0 expected; no backlog",
    ]


def test_the_same_decision_reads_the_same_whatever_the_order_of_its_maps() -> None:
    late = {"serial": 3, "forecast": 3, "blocked": 3}
    members = {A: 0.5, B: 0.5}
    one = decision(late=late, members=members)
    other = decision(late=dict(reversed(late.items())), members=dict(reversed(members.items())))
    assert words.decision_lines(one) == words.decision_lines(other)


def test_long_lists_are_cut() -> None:
    many = decision(members={f"m{n}": 0.5 for n in range(9)})
    assert words.decision_lines(many)[2].endswith("m5 50 % and 3 more")


def test_a_move_from_nobody_without_a_reason() -> None:
    assert words.move_line(MovePlan(topic="t", partition=0, source="", target=B), NAMES) == "t-0 from nobody to pod-b"


def test_brakes() -> None:
    hold = ManualOverrideRecord(group="payments", member="cli", at=0.0, action="hold")
    resume = ManualOverrideRecord(group="payments", member="cli", at=0.0, action="resume")
    assert words.manual_override_line(hold) == "brake on: no plans are made until `loadtrim resume payments`"
    assert words.manual_override_line(resume) == words.manual_override_line(None) == "no brake is on: plans are made"


def test_no_late_records_are_no_words() -> None:
    assert words.late_line({}) == words.late_line({"serial": 0}) == ""
    assert words.late_line({"unheard_of": 1}) == "1 record late: 1 unheard_of"


# Members


# The log


def test_no_line_holds_what_a_terminal_would_obey() -> None:
    odd = "x\x1b]0;title\x07\r\ny"
    move = MovePlan(topic=odd, partition=0, source=odd, target=odd, reason=odd)
    told = DecisionRecord(
        group=odd, member=odd, at=253_370_764_800.0, generation=1, sequence=1, outcome=odd, reason=odd, moves=(move,),
        victims=(odd,), members={odd: 1.0}, rejected=(RejectedPlan(replicas=1, reason=odd),), late={odd: 1},
        baseline=BaselineUse(reason=odd, reason_code=odd), policy=odd, packer=odd,
        manual_override=ManualOverrideRecord(group=odd, member=odd, at=1.0, action="hold"),
    )  # fmt: skip
    lines = [*words.decision_lines(told), words.decision_line(told)]
    for zone in (UTC, timezone(timedelta(hours=14))):
        lines += words.decision_lines(told, zone=zone)
    assert all(line.isprintable() for line in lines)


def test_a_line_is_cut() -> None:
    assert len(words.printable("x" * 1_000_000)) == 2_000
    assert words.printable("plain words, and ä") == "plain words, and ä"


@pytest.mark.parametrize(
    ("outcome", "actual", "wanted", "said"),
    [
        ("up", 1, 2, "scales up, 1 -> 2 replicas"),
        ("up", 3, 3, "lets none go, 3 replicas"),
        ("up", 4, 3, "lets fewer go, 4 -> 3 replicas"),
        ("down", 2, 1, "scales down, 2 -> 1 replica"),
        ("down", 2, 2, "wants no more, 2 replicas"),
        ("down", 1, 4, "wants fewer than before, 1 -> 4 replicas"),
        ("none", 1, 2, "still wants 1 more, 1 -> 2 replicas"),
        ("none", 3, 1, "still wants 2 fewer, 3 -> 1 replica"),
        ("none", 3, 3, "nothing to do, 3 replicas"),
        ("move", 1, 2, "moves partitions, 1 -> 2 replicas"),
        ("hold", 2, 2, "holds, 2 replicas"),
    ],
)
def test_words_and_numbers_of_a_decision_agree(outcome: str, actual: int, wanted: int, said: str) -> None:
    """Seen: "scales down, 1 -> 4 replicas" after 99 were wanted, and "nothing to do, 1 -> 2 replicas"."""
    told = words.decision_line(
        decision(outcome=outcome, replicas_actual=actual, replicas_wanted=wanted, moves=(), reason="So.")
    )
    assert told == f"{said}: So."


def test_latency_is_not_unknown_where_commits_tell_it() -> None:
    assert words.unknown_latency_line({"a": Untold.COMMITTED.value}) == ""
    line = words.unknown_latency_line({"a": Untold.COMMITTED.value, "b": Untold.KEPT.value})
    assert line.startswith("unknown on b: the next record is asked for")


@pytest.mark.parametrize(
    ("replicas", "victims", "reason", "told"),
    [
        (
            3,
            (),
            "1 replica (3 there): it fits",
            "3 replicas until those to go are drained: 1 replica (3 there): it fits",
        ),
        (
            2,
            ("o-3",),
            "1 replica (3 there)",
            "2 replicas, without o-3, until the others to go are drained: 1 replica (3 ",
        ),
        (1, ("o-2", "o-3"), "1 replica (3 there)", "1 replica, without o-2, o-3: 1 replica (3 there)"),
        (4, (), "4 replicas (3 there): more comes", "4 replicas: 4 replicas (3 there): more comes"),
        (2, (), "", "2 replicas"),
    ],
)
def test_a_wish_and_its_reason_do_not_contradict_each_other(
    replicas: int, victims: tuple[str, ...], reason: str, told: str
) -> None:
    """ "wants 3 replicas: 1 replica (3 there)": what is to go counts until it is drained, and nobody said so."""
    assert words.wish_line(replicas, victims, reason).startswith(told)
