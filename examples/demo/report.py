"""What a run came to: share in time, latency, replica-minutes, moves, and what the checker found.

Made from the run's directory alone, so that it can be made again:

    python examples/demo/report.py out/run

* the journals (see :mod:`demo.journal`): every latency, the checker's verdict, the gaps at handoffs;
* ``setting.json``: what was played, with which objective, and when each replica was asked for, started and gone;
* ``control.jsonl``: the control topic, for decisions, moves and the members' own handoff times.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import msgspec

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.checker import CheckerVerdict, check
from demo.journal import Delivered, JournaledRun, JournalError, Tp, read_run
from demo.telemetry import OwnerChange, Telemetry, fold, load_entries
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import DEFAULTS

__all__ = [
    "CONTROL_FILE",
    "SETTING_FILE",
    "Latency",
    "Replica",
    "Report",
    "RunSummary",
    "Setting",
    "make_report",
    "percentile",
    "read_setting",
]

SETTING_FILE = "setting.json"
CONTROL_FILE = "control.jsonl"

_REPORT_LAG_SECONDS = 1.0
"""A handoff is reported up to this long after it."""

_AT_ONCE_NS = 2_000_000
"""A record handed out this soon after the one before had waited."""

NOT_THE_PAPERS = (
    "Every fifth second of the trace is played at its own rate: the load rises and falls five times as steeply as "
    "recorded, so these figures are not comparable with the papers'. FULL=1 plays all 600 seconds."
)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one instance; seconds since the epoch."""

    name: str
    asked_at: float
    started_at: float | None = None
    ended_at: float | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What was played, and what the orchestrator did."""

    source: str
    """The load, in words."""
    per_second: tuple[float, ...]
    """Records per second, as asked for."""
    partitions: int
    shares: tuple[float, ...]
    even: bool = False
    objective_seconds: float = 0.5
    objective_share: float = DEFAULTS.sla_share
    busy_seconds: float = 0.0059
    policy: str = ""
    client: str = "loadtrim"
    started_at: float = 0.0
    """When the load began, seconds since the epoch."""
    ended_at: float = 0.0
    """When everything was done, or given up."""
    replicas: tuple[Replica, ...] = ()
    behind_seconds_max: float = 0.0
    """Furthest that the producer was behind its schedule."""
    comparable: bool = False
    """The whole trace was played as recorded."""


def read_setting(directory: Path) -> Setting:
    """Read a run's setting.

    Raises:
        JournalError: it is not there or cannot be read.
    """
    path = directory / SETTING_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Setting)
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"{path} cannot be read ({error}); is this the directory of a finished run?") from error


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the records' timestamps until they were done (for the first time)."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    mean: float = math.nan


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The run in numbers; seconds unless the name says otherwise."""

    source: str
    note: str
    client: str
    policy: str
    load_seconds: int
    records: int
    """Acknowledged by the broker."""
    rate_max: float
    behind_max: float
    """Furthest that the producer was behind its schedule: a whole burst takes some 10 ms to send."""
    partitions: int
    objective_seconds: float
    objective_share: float
    busy_seconds: float
    spent_seconds_mean: float | None
    """On a record until the next one that waited was handed out: ``busy_seconds`` and what the machine, the journal and
    the client add; None: none ever waited."""
    share_in_time: float
    """Of all acknowledged records; what never got done counts as late."""
    share_possible: float
    """If every partition always had a replica of its own: what one partition's burst allows."""
    latency: Latency
    replica_minutes: float
    """From being asked for until gone, within the time from the start of the load until the last record was done."""
    replica_minutes_least: float
    """A pool that starts at once and shares every burst without remainder; no real one can reach it."""
    replicas_max: int
    replicas_mean: float
    scale_ups: int
    """Replicas asked for after the load had begun."""
    scale_downs: int
    """Replicas that went before the load was done."""
    restarts: int
    """Replicas that ended by themselves and were started again."""
    startup_p50: float | None
    """From being asked for until it owned its first partition, as the members say."""
    moves: int
    """Handoffs from the start of the load until the last record was done."""
    generations: int
    handoff_p50: float | None
    handoff_p99: float | None
    """As the members that took over measured them."""
    gap_p50: float | None
    gap_p99: float | None
    """Time that a record waited at a change of owner though its new owner had nothing else to do, from journals."""
    late_by_cause: dict[str, int]
    lost: int
    left_over: int
    repeated: int
    double_owners: int
    out_of_order: int
    ok: bool


class Report(msgspec.Struct, kw_only=True):
    """Everything about a run: the numbers, the verdict, and what the picture needs."""

    summary: RunSummary
    verdict: CheckerVerdict
    setting: Setting
    seconds: list[SecondFigures]
    """Per second of the load."""
    owner_changes: list[OwnerChange]
    """Who owned what: from the control topic where there is one, else from the journals."""
    wanted: list[tuple[float, int]]
    """(seconds since the epoch, replicas that the leader wanted from then on)."""
    arrival_delay_mean: float | None = None
    """From a record's time stamp until it was fetched, where it was fetched as it came, seconds."""
    share_possible_as_played: float | None = None
    """As :attr:`RunSummary.share_possible`, but each record is there when it was acknowledged, and worked on for as
    long as it was. Not quite a bound: a record can be read just before its producer knows. None: of an older run."""

    def as_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


class SecondFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the load, by when its records were sent."""

    second: int
    records: int
    by_partition: tuple[int, ...]
    late: int
    latency_p50: float | None
    latency_p99: float | None
    latency_max: float | None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the sorted ``values`` that at least ``share`` of them do not exceed (nearest rank).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values, so no percentile")
    return values[max(0, math.ceil(share * len(values)) - 1)]


def make_report(run: JournaledRun, setting: Setting, telemetry: Telemetry) -> Report:
    """Judge and sum up a run. O(n log n) in records.

    Raises:
        JournalError: nothing was acknowledged.
    """
    verdict = check(run)
    latencies = _latencies(run)
    changes = telemetry.owner_changes or _owner_changes(run)
    return Report(
        summary=_summary(run, setting, telemetry, verdict, latencies),
        verdict=verdict,
        setting=setting,
        seconds=_by_second(run, setting, latencies),
        owner_changes=changes,
        wanted=[(decision.at, decision.replicas_wanted) for decision in telemetry.decisions],
        arrival_delay_mean=fmean(telemetry.arrival_delays) if telemetry.arrival_delays else None,
        share_possible_as_played=_share_possible(run, setting, as_played=True),
    )


def _latencies(run: JournaledRun) -> dict[str, float]:
    """Per acknowledged and done record: seconds from its timestamp until it was first done."""
    first_done: dict[tuple[Tp, int], int] = {}
    for handout in run.handouts():
        if handout.done_ns is not None:
            key = (handout.tp, handout.offset)
            first_done[key] = min(handout.done_ns, first_done.get(key, handout.done_ns))
    latencies = {}
    for record in run.sent.values():
        if record.offset is not None and (record.tp, record.offset) in first_done:
            done_epoch_ns = first_done[record.tp, record.offset] + run.epoch_offset_ns
            latencies[record.record_id] = (done_epoch_ns - record.timestamp_ms * 1_000_000) / 1e9
    return latencies


def _by_second(run: JournaledRun, setting: Setting, latencies: dict[str, float]) -> list[SecondFigures]:
    of_second: defaultdict[int, list[float]] = defaultdict(list)
    counts = [[0] * setting.partitions for _ in setting.per_second]
    late: defaultdict[int, int] = defaultdict(int)
    for record in run.sent.values():
        if record.offset is None:
            continue
        second = int((record.sent_ns + run.epoch_offset_ns) / 1e9 - setting.started_at)
        second = min(max(second, 0), len(counts) - 1)
        counts[second][record.tp.partition] += 1
        latency = latencies.get(record.record_id)
        if latency is not None:
            of_second[second].append(latency)
        late[second] += latency is None or latency > setting.objective_seconds
    rows = []
    for second, by_partition in enumerate(counts):
        values = sorted(of_second[second])
        rows.append(
            SecondFigures(
                second=second,
                records=sum(by_partition),
                by_partition=tuple(by_partition),
                late=late[second],
                latency_p50=percentile(values, 0.5) if values else None,
                latency_p99=percentile(values, 0.99) if values else None,
                latency_max=values[-1] if values else None,
            )
        )
    return rows


def _summary(
    run: JournaledRun, setting: Setting, telemetry: Telemetry, verdict: CheckerVerdict, latencies: dict[str, float]
) -> RunSummary:
    values = sorted(latencies.values()) or [math.inf]
    in_time = sum(value <= setting.objective_seconds for value in values)
    begun, ended = setting.started_at, setting.ended_at
    handoffs = sorted(seconds for at, seconds in telemetry.handoffs if begun <= at <= ended + _REPORT_LAG_SECONDS)
    moves = sum(begun <= move.at <= ended for move in telemetry.moves)
    gaps = sorted(_gaps(run))
    startups = sorted(telemetry.startup_seconds)
    replica_seconds, most = _replica_seconds(setting)
    length = max(ended - begun, 1e-9)
    lives = _lives(setting.replicas)
    return RunSummary(
        source=setting.source,
        note="" if setting.comparable else NOT_THE_PAPERS,
        client=setting.client,
        policy=setting.policy,
        load_seconds=len(setting.per_second),
        records=verdict.acknowledged,
        rate_max=max(setting.per_second),
        behind_max=setting.behind_seconds_max,
        partitions=setting.partitions,
        objective_seconds=setting.objective_seconds,
        objective_share=setting.objective_share,
        busy_seconds=setting.busy_seconds,
        spent_seconds_mean=_spent_seconds(run),
        share_in_time=in_time / verdict.acknowledged,
        share_possible=_share_possible(run, setting, as_played=False),
        latency=Latency(
            p50=percentile(values, 0.5),
            p90=percentile(values, 0.9),
            p99=percentile(values, 0.99),
            p999=percentile(values, 0.999),
            max=values[-1],
            mean=math.fsum(values) / len(values),
        ),
        replica_minutes=replica_seconds / 60,
        replica_minutes_least=_replica_seconds_least(setting) / 60,
        replicas_max=most,
        replicas_mean=replica_seconds / length,
        scale_ups=sum(begun < asked < ended for asked, _ in lives),
        scale_downs=sum(begun < gone < ended for _, gone in lives),
        restarts=len(setting.replicas) - len(lives),
        startup_p50=percentile(startups, 0.5) if startups else None,
        moves=moves if telemetry.generations else sum(1 for _ in _successions(run)),
        generations=telemetry.generations,
        handoff_p50=percentile(handoffs, 0.5) if handoffs else None,
        handoff_p99=percentile(handoffs, 0.99) if handoffs else None,
        gap_p50=percentile(gaps, 0.5) if gaps else None,
        gap_p99=percentile(gaps, 0.99) if gaps else None,
        late_by_cause=telemetry.late,
        lost=len(verdict.lost),
        left_over=len(verdict.left_over),
        repeated=len(verdict.repeated),
        double_owners=len(verdict.double_owners),
        out_of_order=len(verdict.out_of_order),
        ok=verdict.ok and not verdict.left_over,
    )


def _spent_seconds(run: JournaledRun) -> float | None:
    """From one record's hand-out to the next one's, where the next followed at once."""
    count = total = 0
    for process in run.processes:
        handouts = sorted(process.handouts, key=lambda handout: handout.handed_ns)
        for handout, following in pairwise(handouts):
            if handout.done_ns is not None and following.handed_ns - handout.done_ns < _AT_ONCE_NS:
                count += 1
                total += following.handed_ns - handout.handed_ns
    return total / count / 1e9 if count else None


def _lives(replicas: Iterable[Replica]) -> list[tuple[float, float]]:
    """(first asked for, finally gone) of every instance, its restarts taken together."""
    by_name: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        by_name[replica.name].append(replica)
    return [
        (min(life.asked_at for life in lives), max(life.ended_at or math.inf for life in lives))
        for lives in by_name.values()
    ]


def _replica_seconds(setting: Setting) -> tuple[float, int]:
    """Paid for within the run, and the most that ran at once."""
    total = 0.0
    steps: list[tuple[float, int]] = []
    for replica in setting.replicas:
        ended = setting.ended_at if replica.ended_at is None else min(replica.ended_at, setting.ended_at)
        total += max(0.0, ended - max(replica.asked_at, setting.started_at))
        if replica.started_at is not None and replica.started_at < ended and ended > setting.started_at:
            steps += [(replica.started_at, 1), (ended, -1)]
    running = most = 0
    for _, change in sorted(steps):
        running += change
        most = max(most, running)
    return total, most


def _replica_seconds_least(setting: Setting) -> float:
    """Replica-seconds of a pool that starts at once and shares work without remainder, never less than one.

    A burst has the objective to be worked off; evenly spread records have the whole second.
    """
    room = 1.0 if setting.even else min(1.0, setting.objective_seconds)
    return float(sum(max(1, math.ceil(math.ceil(rate) * setting.busy_seconds / room)) for rate in setting.per_second))


def _share_possible(run: JournaledRun, setting: Setting, *, as_played: bool) -> float:
    """Return the share in time if nothing but the order within each partition held a record up.

    Args:
        run: what was sent, and done.
        setting: with the objective, and the time on a record.
        as_played: records are there when they were acknowledged, not when they were sent, and take what they took.
    """
    spent = {
        handout.record_id: (handout.done_ns - handout.handed_ns) / 1e9
        for handout in (run.handouts() if as_played else ())
        if handout.done_ns is not None
    }
    free_at: defaultdict[Tp, float] = defaultdict(float)
    acknowledged = [record for record in run.sent.values() if record.offset is not None]
    in_time = 0
    for record in sorted(acknowledged, key=lambda record: (record.tp, record.offset or 0)):
        sent = record.timestamp_ms / 1e3
        there = (record.acked_ns + run.epoch_offset_ns) / 1e9 if as_played and record.acked_ns else sent
        free_at[record.tp] = max(free_at[record.tp], there) + spent.get(record.record_id, setting.busy_seconds)
        in_time += free_at[record.tp] - sent <= setting.objective_seconds
    return in_time / len(acknowledged)


def _successions(run: JournaledRun) -> Iterable[tuple[Delivered, Delivered]]:
    """(last record before, first record after) every change of a partition's process."""
    of: defaultdict[Tp, list[Delivered]] = defaultdict(list)
    for handout in run.handouts():
        of[handout.tp].append(handout)
    for _, handouts in sorted(of.items()):
        handouts.sort(key=lambda handout: handout.handed_ns)
        for before, after in pairwise(handouts):
            if before.process != after.process:
                yield before, after


def _owner_changes(run: JournaledRun) -> list[OwnerChange]:
    """As far as the journals tell: a partition is its process's from the first record that it was handed."""
    firsts: dict[Tp, Delivered] = {}
    for handout in run.handouts():
        if handout.tp not in firsts or handout.handed_ns < firsts[handout.tp].handed_ns:
            firsts[handout.tp] = handout
    changes = [(handout, False) for handout in firsts.values()]
    changes += [(after, True) for _, after in _successions(run)]
    return [
        OwnerChange(
            at=(handout.handed_ns + run.epoch_offset_ns) / 1e9,
            partition=Partition(*handout.tp),
            instance=handout.process.rpartition("/")[0],
            moved=moved,
        )
        for handout, moved in sorted(changes, key=lambda change: change[0].handed_ns)
    ]


def _gaps(run: JournaledRun) -> Iterable[float]:
    """Seconds that a record waited at a change of owner while its new owner was idle."""
    done_before: dict[tuple[str, int], int] = {}
    for process in run.processes:
        latest = 0
        for handout in process.handouts:
            done_before[process.process, handout.handed_ns] = latest
            latest = max(latest, handout.done_ns or 0)
    for before, after in _successions(run):
        record = run.sent.get(after.record_id)
        if record is None or before.done_ns is None:
            continue
        idle_since = done_before[after.process, after.handed_ns]
        yield max(0, after.handed_ns - max(before.done_ns, record.acked_ns or record.sent_ns, idle_since)) / 1e9


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def _as_played(share: float | None) -> list[tuple[str, str]]:
    return [] if share is None else [("", f"{share:.2%} with records as late and as long as they were")]


def render(report: Report) -> str:
    """The report as a readable table."""
    s = report.summary
    who = f"{s.client}, policy {s.policy}" if s.policy else s.client
    latency = "p50 {}  p90 {}  p99 {}  p99.9 {}  max {}".format(*map(_seconds, msgspec.structs.astuple(s.latency)))
    restarts = f", {s.restarts} restarts after a crash" if s.restarts else ""
    checker = f"lost {s.lost}, repeated {s.repeated}, double owners {s.double_owners}"
    rows = [
        ("load", f"{s.records:,} records in {s.load_seconds} s, up to {s.rate_max:.0f}/s, {s.partitions} partitions"),
        ("", f"{s.source}; sent at most {_seconds(s.behind_max)} late"),
        ("service", f"{who}; {s.busy_seconds * 1e3:g} ms a record"),
        ("in time", f"{s.share_in_time:.2%} within {s.objective_seconds:g} s (wanted {s.objective_share:.1%})"),
        ("", f"{s.share_possible:.2%} with a replica for every partition, all the time"),
        *_as_played(report.share_possible_as_played),
        ("latency", latency),
        ("replica-minutes", f"{s.replica_minutes:.2f} (mean {s.replicas_mean:.2f}, at most {s.replicas_max})"),
        ("", f"{s.replica_minutes_least:.2f} for a pool that starts at once and shares bursts without remainder"),
        (
            "scaling",
            f"{s.scale_ups} replicas added, {s.scale_downs} removed{restarts}, start-up {_seconds(s.startup_p50)}",
        ),
        ("moves", f"{s.moves} in {s.generations} generations" if s.generations else f"{s.moves} changes of owner"),
        ("handoff", f"p50 {_seconds(s.handoff_p50)}  p99 {_seconds(s.handoff_p99)} as the members measured"),
        ("gap", f"p50 {_seconds(s.gap_p50)}  p99 {_seconds(s.gap_p99)} from the journals, new owner idle"),
        ("late records", ", ".join(f"{cause} {count}" for cause, count in sorted(s.late_by_cause.items())) or "-"),
        ("checker", f"{checker}, out of order {s.out_of_order}, left over {s.left_over}"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows) + (f"\n\n{s.note}" if s.note else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 nothing lost and no double owner, 1 otherwise, 2 unreadable."""
    parser = argparse.ArgumentParser(description="Sum up a run again from its directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, help="write the picture there (PNG)")
    options = parser.parse_args(arguments)
    try:
        telemetry = fold(load_entries(options.directory / CONTROL_FILE))
        report = make_report(read_run(options.directory), read_setting(options.directory), telemetry)
    except (JournalError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report.as_json().decode() if options.json else render(report))
    if options.plot:
        from demo.plot import plot

        plot(report, options.plot)
    return 0 if report.summary.ok else 1


if __name__ == "__main__":
    sys.exit(main())
