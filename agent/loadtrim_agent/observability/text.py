"""Decisions and manual overrides in plain English: for INFO logs, ``loadtrim explain`` and the live view.

Pure functions: same input, same words. A *line* is one line without an end; *lines* are a block for people.
Replicas and victims are instances. Members are called by their instance where ``names`` has it, with the client id
where an instance has several. Others are called by a short form of their member id.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from loadtrim_agent.common.host import process_id
from loadtrim_agent.common.member_names import member_names, short_member
from loadtrim_agent.planning.baseline import Ignored
from loadtrim_agent.wire.ownership_records import (
    ManualOverrideRecord,
    MovePlan,
)
from loadtrim_agent.wire.telemetry_records import BaselineUse, DecisionRecord, Untold

__all__ = [
    "baseline_line",
    "counted",
    "decision_line",
    "decision_lines",
    "duration",
    "late_line",
    "manual_override_line",
    "member_name",
    "move_line",
    "number",
    "percent",
    "printable",
    "shared_line",
    "time_of_day",
    "unknown_latency_line",
    "untold_line",
    "wish_line",
    "workloads_line",
]

Names = Mapping[str, str | None]
"""Member id -> instance; None or empty: not known."""

_REPLICAS = re.compile(r"(\d{1,9}) replicas?\b")
_LISTED_MAX = 6
"""So many items are named in one line; of more, the number is said."""

_PROCESSES_LISTED_MAX = 8

_CAUSES = {
    "serial": "a partition too large for one member",
    "replica": "a replica on its way",
    "startup": "a replica on its way",
    "unasked": "fewer replicas than are wanted",
    "forecast": "more load than forecast",
    "placement": "partitions badly placed",
    "blocked": "blocked for reasons other than load",
    "already_late": "already late when first seen",
    "queued": "waiting behind other records",
}


_UNTOLD = {
    "kept": "the next record is asked for while others are worked on, or wait in the program",
    "tasks": "several tasks ask one consumer for records, and the call of one makes done what another works on",
}
_UNTOLD_OTHERWISE = "the program does not say when a record is done"
_SAY = "Put `async with consumer.work(message):` around the work on each, or call `consumer.done(message)`."


LINE_CHARACTERS_MAX = 2_000
"""A line that tells of a record is cut here. Chosen: a plan of some dozen moves is shorter."""


def printable(text: str) -> str:
    """Return a line as a terminal or a log may show it: without escape sequences and line ends that a record held."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text[: LINE_CHARACTERS_MAX + 1])
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[: LINE_CHARACTERS_MAX - 3]}..."


# Numbers


def number(value: float) -> str:
    """At most three significant digits below 1000, none behind the point above: ``0.25``, ``12.3``,
    ``4210``.
    """
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return "0" if text == "-0" else text


def duration(seconds: float) -> str:
    """``8 ms``, ``1.2 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return f"{number(seconds * 1000)} ms"
    if seconds < 99.95:
        return f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(share: float) -> str:
    """``62 %``; shares close to 1 with the digits that matter: ``99.95 %``."""
    if 0.99 < share < 1:
        # Rounded down: 99.996 % is not 100 %.
        return f"{int(share * 10000) / 100:.2f} %"
    return f"{share * 100:.0f} %"


def counted(count: int, noun: str) -> str:
    """``1 move``, ``3 moves``, ``no moves``."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def wish_line(replicas: int, victims: Sequence[str], reason: str) -> str:
    """Return what is asked for, as in ``3 replicas until those to go are drained: 1 replica (3 there): ...``.

    Args:
        replicas: asked for now. Members that are to go count until they own nothing.
        victims: instances that own nothing any more and may be ended.
        reason: the decision's, which begins with the replicas that are left in the end.
    """
    said = _REPLICAS.match(reason)
    drains = said is not None and int(said[1]) < replicas
    without = f", without {', '.join(victims)}" if victims else ""
    until = f" until {'the others' if victims else 'those'} to go are drained" if drains else ""
    comma = "," if without and until else ""
    return f"{counted(replicas, 'replica')}{without}{comma}{until}" + (f": {reason}" if reason else "")


def time_of_day(at: float, zone: tzinfo = UTC) -> str:
    """``2024-05-01 12:00:03.250 UTC``.

    Args:
        at: Seconds since the epoch.
        zone: Whose clock.
    """
    when = datetime.fromtimestamp(at, zone)
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d} {when.tzname()}"


# People and things


def member_name(member: str, names: Names | None = None) -> str:
    """The name that is known of a member, or the member id with the broker's random part cut to 6 letters."""
    known = (names or {}).get(member)
    return printable(known or short_member(member))


def _listed(items: Sequence[str]) -> str:
    if len(items) <= _LISTED_MAX:
        return ", ".join(items)
    return f"{', '.join(items[:_LISTED_MAX])} and {len(items) - _LISTED_MAX} more"


def shared_line(instance: str, processes: Collection[str]) -> str:
    """Return what to tell of an instance that is several processes."""
    listed = ", ".join(process_id(each) for each in sorted(processes)[:_PROCESSES_LISTED_MAX])
    more = f" and {len(processes) - _PROCESSES_LISTED_MAX} more" if len(processes) > _PROCESSES_LISTED_MAX else ""
    return printable(
        f"{len(processes)} processes ({listed}{more}) are the instance {instance}: they count as one replica, and are "
        "ended together. If they are started and ended one by one, give each a LOADTRIM_INSTANCE of its own."
    )


def workloads_line(scaled: str, others: Collection[str]) -> str:
    """Return what to tell of a group with pods of more workloads than the one that is scaled."""
    return printable(
        f"Pods of {', '.join(sorted(others))} are in the group beside those of {scaled}, whose leader scales {scaled} "
        "alone: the others count in the replicas that are wanted, and are left as they are. Set "
        f"LOADTRIM_KUBERNETES_TARGET=deployment/{scaled} (or its kind) in all of them, or each leader scales its own."
    )


def move_line(move: MovePlan, names: Names | None = None) -> str:
    """``payments-3 from pod-a to pod-b: spread``."""
    source = member_name(move.source, names) if move.source else "nobody"
    reason = f": {move.reason}" if move.reason else ""
    return printable(f"{move.topic}-{move.partition} from {source} to {member_name(move.target, names)}{reason}")


def manual_override_line(manual_override: ManualOverrideRecord | None) -> str:
    """What the command line asked for, and how it ends."""
    if manual_override is None or manual_override.action == "resume":
        return "no brake is on: plans are made"
    end = printable(f"until `loadtrim resume {manual_override.group}`")
    if manual_override.action == "hold":
        return f"brake on: no plans are made {end}"
    forced = ", also outside the bounds," if manual_override.forced else ""
    return f"brake on: {counted(manual_override.replicas or 0, 'replica')}{forced} {end}"


def late_line(late: Mapping[str, int]) -> str:
    """``14 records late: 9 more load than forecast, 5 a replica on its way``; empty without any."""
    causes = sorted(((count, cause) for cause, count in late.items() if count > 0), key=lambda c: (-c[0], c[1]))
    if not causes:
        return ""
    total = sum(count for count, _ in causes)
    return printable(f"{counted(total, 'record')} late: {', '.join(f'{n} {_CAUSES.get(c, c)}' for n, c in causes)}")


def untold_line(why: str) -> str:
    """Reason why nobody knows when a record is done, and what to do: two sentences."""
    reason = _UNTOLD.get(why, _UNTOLD_OTHERWISE)
    return f"{reason}. {_SAY}"


def unknown_latency_line(untold: Mapping[str, str], names: Names | None = None) -> str:
    """``unknown on pod-1: <why>. <what to do>``; empty where it is known.

    Args:
        untold: member id -> why.
        names: member id -> instance.
    """
    untold = {member: why for member, why in untold.items() if why != Untold.COMMITTED}
    if not untold:
        return ""
    members = _listed([member_name(member, names) for member in sorted(untold)])
    return printable(f"unknown on {members}: {untold_line(min(untold.values()))}")


# Decisions


def decision_line(decision: DecisionRecord, names: Names | None = None) -> str:
    """One decision in one line: ``scales up, 3 -> 4 replicas, 2 moves: <reason>``."""
    parts = [_outcome(decision), _replicas(decision)]
    if decision.moves:
        parts.append(counted(len(decision.moves), "move"))
    if decision.victims:
        # Whole instances go.
        going = sorted({member_name(victim, names) for victim in decision.victims})
        parts.append(f"{_listed(going)} to go")
    shadow = " (shadow mode: not carried out)" if decision.mode == "shadow" else ""
    return printable(f"{', '.join(parts)}{shadow}: {decision.reason or 'no reason given'}")


def _outcome(decision: DecisionRecord) -> str:
    """Return what a decision does, seen from the replicas that are there.

    Its outcome compares with what was wanted before, which says nothing of the replicas that are there.
    """
    missing = decision.replicas_wanted - decision.replicas_actual
    match decision.outcome:
        case "hold":
            return "holds"
        case "move":
            return "moves partitions"
        case "up":
            words = ("lets fewer go", "lets none go", "scales up")
        case "down":
            words = ("scales down", "wants no more", "wants fewer than before")
        case "none":
            words = (f"still wants {-missing} fewer", "nothing to do", f"still wants {missing} more")
        case other:
            return other
    return words[(missing > 0) - (missing < 0) + 1]


def _replicas(decision: DecisionRecord) -> str:
    actual, wanted = decision.replicas_actual, decision.replicas_wanted
    return counted(actual, "replica") if actual == wanted else f"{actual} -> {counted(wanted, 'replica')}"


def decision_lines(decision: DecisionRecord, names: Names | None = None, zone: tzinfo = UTC) -> list[str]:
    """One decision at length, for ``loadtrim explain``: what, why, what was seen, what was not taken.

    Args:
        decision: The decision.
        names: Member id -> instance.
        zone: For the time.
    """
    made_by = f"{decision.policy or '?'}/{decision.packer or '?'}"
    called = _called(decision, names or {})
    by = f"by {member_name(decision.member, called)} ({made_by})"
    head = f"{time_of_day(decision.at, zone)}  decision {decision.generation}.{decision.sequence} {by}"
    lines = [f"{head}: {decision_line(decision, names)}", f"  saw: {_seen(decision)}"]
    if decision.members:
        busiest = sorted(decision.members.items(), key=lambda member: (-member[1], member[0]))
        lines.append(f"  members: {_listed([f'{member_name(m, called)} {percent(u)}' for m, u in busiest])}")
    if decision.baseline is not None:
        lines.append(f"  {baseline_line(decision.baseline)}")
    if decision.members_opened is not None and decision.members_bound is not None:
        least = f"no fewer than {decision.members_bound} could do" if decision.members_bound else "nothing to own"
        lines.append(f"  placement: on {counted(decision.members_opened, 'member')}; {least}")
    lines += [f"  move: {move_line(move, called)}" for move in decision.moves]
    lines += [
        f"  not taken: {counted(rejected.replicas, 'replica')}: {rejected.reason}" for rejected in decision.rejected
    ]
    if unknown := unknown_latency_line(decision.untold, names):
        lines.append(f"  latency: {unknown}")
    if late := late_line(decision.late):
        lines.append(f"  {late}")
    if decision.manual_override is not None and decision.manual_override.action != "resume":
        lines.append(f"  {manual_override_line(decision.manual_override)}")
    return [printable(line) for line in lines]


def _called(decision: DecisionRecord, names: Names) -> dict[str, str]:
    """Return what the members that a decision speaks of are called."""
    members = {decision.member, *decision.members, *decision.victims}
    members |= {member for move in decision.moves for member in (move.source, move.target) if member}
    return member_names({member: names.get(member) for member in sorted(members)})


def _seen(decision: DecisionRecord) -> str:
    ahead = f"{number(decision.forecast)} expected"
    if decision.startup_seconds is not None:
        ahead += f" within the {duration(decision.startup_seconds)} that a replica takes to start"
    seen = [
        f"{number(decision.rate)} records/s",
        f"{number(decision.work)} busy seconds per second of work, {ahead}",
        f"a backlog of {number(decision.backlog)} busy seconds" if decision.backlog > 0 else "no backlog",
    ]
    if decision.handoff_seconds is not None:
        seen.append(f"handoffs of {duration(decision.handoff_seconds)}")
    return "; ".join(seen)


def baseline_line(use: BaselineUse) -> str:
    """What the history expected, and how today compares; or why it does not count."""
    if use.reason_code == Ignored.MISSING:
        return "baseline: none for what the group reads"
    parts = _used(use) if use.used else [f"ignored, because {use.reason}" if use.reason else "ignored"]
    if missing := [topic for topic, why in use.ignored.items() if why == Ignored.MISSING]:
        parts.append(f"none for {_listed(missing)}")
    return printable(f"baseline: {'; '.join(parts)}")


def _used(use: BaselineUse) -> list[str]:
    """What was expected of the topics that were counted in, and why others were not."""
    ahead, back = number(use.forecast or 0.0), number(use.returning or 0.0)
    parts = [
        f"{ahead} busy seconds per second within the start-up time, {back} before a replica let go would have paid",
        f"today has {number(use.scale or 0.0)} times the usual load",
    ]
    if use.quantile is not None:
        parts.append(f"not exceeded in {percent(use.quantile)} of the minutes")
    if use.topics:
        parts.append(f"of {_listed(use.topics)} only, the rest as it is now")
    if use.reason:
        parts.append(f"some are ignored ({use.reason})" if use.ignored else use.reason)
    return parts
