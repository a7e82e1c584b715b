"""A group in plain text: what ``loadtrim status`` and ``loadtrim up --plain`` print. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from loadtrim.observer.group import ObservedGroup, ObservedMember, ObservedPartition
from loadtrim_agent.common.member_names import short_member
from loadtrim_agent.observability.text import (
    counted,
    decision_line,
    duration,
    late_line,
    manual_override_line,
    member_name,
    number,
    percent,
    printable,
    shared_line,
    unknown_latency_line,
)

__all__ = [
    "MIXED_LINE",
    "ago",
    "busy_words",
    "group_line",
    "in_time_words",
    "latency_words",
    "load_words",
    "member_label",
    "owns",
    "partition_rows",
    "replica_words",
    "status_lines",
    "table",
]

_MARGIN = "  "
MIXED_LINE = (
    "This is a mixed group: members that are plain consumers are in it, or one with LOADTRIM_ENABLED=false or without "
    "the control topic. Nothing moves and nothing scales until each member runs the agent (docs/how-to.md, on how "
    "to migrate a service)."
)
CAPACITY_ERROR_SHOWN = 0.01
"""Share of a member's capacity that it may well give less before it is told. Chosen."""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Lines of a table with columns as wide as they need to be.

    Args:
        headers: one per column.
        rows: cells, as many as headers.
        right: columns that are aligned to the right.
    """
    cells = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    return [
        _MARGIN.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def owns(partitions: Iterable[tuple[str, int]]) -> str:
    """``payments 0-2 5, refunds 1``: partitions by topic, runs of three and more as a range."""
    topics = groupby(sorted(partitions), key=lambda each: each[0])
    return printable(", ".join(f"{topic} {_ranges([index for _, index in each])}" for topic, each in topics))


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        members = [value for _, value in run]
        if len(members) >= 3:
            parts.append(f"{members[0]}-{members[-1]}")
        else:
            parts += map(str, members)
    return " ".join(parts)


def ago(seconds: float) -> str:
    """``3 s ago``; below a second ``just now``."""
    return "just now" if seconds < 1.0 else f"{duration(round(seconds))} ago"


def member_label(member: ObservedMember, called: Mapping[str, str]) -> str:
    """Return what a member is called; the leader with a star.

    Args:
        member: the member.
        called: of its group.
    """
    name = member_name(member.member, called)
    return f"{name} *" if member.leader else name


def replica_words(state: ObservedGroup) -> str:
    """``3, 4 wanted``, ``1 with 2 members``, ``0 (1 member has not told its instance yet)``."""
    alive = [each for each in state.members if each.state != "silent"]
    unknown = sum(1 for each in alive if not each.instance)
    words = str(state.replicas)
    if len(alive) - unknown > state.replicas:
        words += f" with {len(alive) - unknown} members"
    if state.alive and state.replicas_wanted not in (None, state.replicas):
        words += f", {state.replicas_wanted} wanted"
    if unknown:
        words += f" ({counted(unknown, 'member')} {'has' if unknown == 1 else 'have'} not told the instance yet)"
    return words


def load_words(state: ObservedGroup) -> str:
    """``2.31 of 3 busy seconds per second (77 %), 391 records/s, 2.6 expected``."""
    if state.work is None:
        why = "nothing is planned" if state.mixed else "no decision has told the work yet"
        return f"{number(state.rate)} records/s; {why}"
    share = f" ({percent(state.work / state.capacity)})" if state.capacity else ""
    words = f"{number(state.work)} of {number(state.capacity)} busy seconds per second{share}"
    words += f", {number(state.rate)} records/s"
    if state.forecast is not None:
        words += f", {number(state.forecast)} expected"
    return words


def in_time_words(state: ObservedGroup) -> str:
    """``99.97 % of the last 1 min (objective: 99.9 % within 0.5 s)``."""
    over = f"the last {duration(state.window_seconds)}"
    done = f"nothing done in {over}" if state.in_time_share is None else f"{percent(state.in_time_share)} of {over}"
    if state.unknown_share:
        # Of what is known only what was late for certain may be left: its share would tell nothing of all.
        done = f"unknown for {percent(state.unknown_share)} of {over}"
        late = sum(state.late.values())
        done += f", {counted(late, 'record')} late for certain" if late else ""
    if state.objective_seconds is None:
        return done
    share = "" if state.objective_share is None else f"{number(100 * state.objective_share)} % "
    return f"{done} (objective: {share}within {duration(state.objective_seconds)})"


def latency_words(state: ObservedGroup) -> str | None:
    """``half within 25 ms, 99 % within 100 ms``; None where members do not report it."""
    if state.unknown_share:
        return unknown_latency_line(state.untold, state.names) or "unknown for a part of the records"
    if state.latency_p50 is None or state.latency_p99 is None:
        return None
    return f"half within {_bound(state.latency_p50)}, 99 % within {_bound(state.latency_p99)}"


def _bound(seconds: float) -> str:
    return "an hour or more" if seconds == float("inf") else duration(seconds)


def group_line(state: ObservedGroup) -> str:
    """The group in one line, for ``loadtrim up --plain``."""
    if not state.alive:
        return f"{state.group}: nobody of loadtrim there"
    mixed = ", mixed group (nothing moves and nothing scales)" if state.mixed else ""
    parts = [f"{state.group}: {counted(state.replicas, 'replica')}{mixed}, load {load_words(state)}"]
    parts.append(f"{counted(state.lag_records, 'record')} behind")
    if state.unknown_share:
        parts.append("in time: unknown")
    elif state.in_time_share is not None:
        parts.append(f"{percent(state.in_time_share)} in time")
    return ", ".join(parts)


def status_lines(state: ObservedGroup, partitions: bool = False) -> list[str]:
    """The group at length.

    Args:
        state: the group.
        partitions: with a table of all partitions.
    """
    facts = _facts(state)
    width = max(len(name) for name in facts)
    lines = [_head(state), *(f"{_MARGIN}{name.ljust(width)}{_MARGIN}{words}" for name, words in facts.items())]
    if state.members:
        lines += ["", *_member_table(state)]
    if partitions and state.partitions:
        lines += ["", *_partition_table(state)]
    return lines + [f"\n{note}" for note in _notes(state)]


def _head(state: ObservedGroup) -> str:
    generation = "no generation known" if state.generation is None else f"generation {state.generation}"
    if state.mixed:
        return f"{state.group}: {generation}, mixed group, no leader"
    leader = "no leader known" if state.leader is None else member_name(state.leader, {**state.names, **state.called})
    if state.leader is not None:
        leader = f"leader {leader}" if state.alive else f"led by {leader} when it ended"
    return f"{state.group}: {generation}, {leader}"


def _facts(state: ObservedGroup) -> dict[str, str]:
    facts = {"replicas": replica_words(state)}
    if state.alive:
        facts["load"] = load_words(state)
    oldest = f", the oldest {duration(state.lag_seconds)} old" if state.lag_records else ""
    facts["behind"] = counted(state.lag_records, "record") + oldest + ("" if state.alive else ", as last reported")
    facts["in time"] = in_time_words(state)
    if latency := latency_words(state):
        facts["latency"] = latency
    if late := late_line(state.late):
        facts["late"] = late
    facts["moves"] = f"{counted(state.moves, 'handoff')} in the last {duration(state.window_seconds)}"
    facts["brake"] = manual_override_line(state.manual_override)
    if state.decision is not None:
        facts["decision"] = f"{ago(state.at - state.decision.at)}: {decision_line(state.decision, state.names)}"
    return facts


def _member_table(state: ObservedGroup) -> list[str]:
    called = state.called
    rows = [
        (
            member_label(each, called),
            _member_words(each, state.at),
            busy_words(each),
            str(each.lag_records),
            duration(each.lag_seconds) if each.lag_records else "-",
            f"{len(each.partitions)}: {owns(each.partitions)}" if each.partitions else "nothing",
        )
        for each in state.members
    ]
    return table(("MEMBER", "STATE", "BUSY", "BEHIND", "OLDEST", "OWNS"), rows, frozenset({2, 3, 4}))


def busy_words(member: ObservedMember) -> str:
    """Return ``77 %``, and ``77 % of 10 ± 0.4`` where it has learnt what it can do, or ``12 % of 9.3, a guess``."""
    if member.utilization is None:
        return "-"
    share, able, error = percent(member.utilization), member.capacity or 0.0, member.capacity_error or 0.0
    if error <= CAPACITY_ERROR_SHOWN * able:
        return share
    return (
        f"{share} of {number(able)} ± {number(error)}"
        if member.capacity_known
        else f"{share} of {number(able)}, a guess"
    )


def _member_words(member: ObservedMember, now: float) -> str:
    if member.state == "silent" and member.seen_at is not None:
        return f"silent for {duration(now - member.seen_at)}"
    return "to go" if member.state == "victim" else printable(member.state)


def partition_rows(partitions: Iterable[ObservedPartition], called: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Cells of the table of partitions: partition, owner, state, records/s, cost, behind, oldest, handoffs."""
    return [
        (
            printable(f"{each.topic}-{each.partition}"),
            # One that has left is no member any more, and its instance is known still.
            printable(called.get(each.member) or each.instance or short_member(each.member))
            if each.member
            else "NOBODY",
            printable(each.state) or "-",
            "-" if each.arrival_rate is None else number(each.arrival_rate),
            "-" if each.cost_seconds is None else duration(each.cost_seconds),
            "-" if each.lag_records is None else str(each.lag_records),
            duration(each.lag_seconds) if each.lag_records and each.lag_seconds is not None else "-",
            str(each.version),
        )
        for each in partitions
    ]


def _partition_table(state: ObservedGroup) -> list[str]:
    headers = ("PARTITION", "OWNER", "STATE", "RECORDS/S", "COST", "BEHIND", "OLDEST", "HANDOFFS")
    return table(headers, partition_rows(state.partitions, state.called), frozenset({3, 4, 5, 6, 7}))


def _notes(state: ObservedGroup) -> list[str]:
    notes = []
    if not state.alive:
        last = "never" if state.seen_at is None else ago(state.at - state.seen_at)
        notes.append(
            f"Nobody of loadtrim is there: no member has said anything lately (the last one: {last}). "
            "Plain consumers write nothing that would be shown here."
        )
    if state.mixed and state.alive:
        notes.append(
            f"{MIXED_LINE} Owners are as the members of loadtrim report: what plain consumers own is missing, and "
            "partitions without traffic may be."
        )
    elif state.owners_from == "reports" and not state.mixed:
        notes.append(
            "The map of this generation is too far back in the log to be read: owners are those that reported "
            "last, and partitions without traffic are missing."
        )
    nobodys = [(each.topic, each.partition) for each in state.partitions if each.member is None]
    if nobodys:
        notes.append(f"Owned by nobody: {owns(nobodys)}.")
    notes += [shared_line(instance, processes) for instance, processes in state.shared.items()]
    return notes
