"""What a record of the coordination log costs a member that it does not concern: CPU of the protocol core alone.

Members append ``load`` about twice a second, and every member reads all of it: in a group of n members each one handles
2 n records a second. Played on one machine of the protocol with synthetic records; no broker, no decoding.
"""

from __future__ import annotations

import statistics
import time

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import LOADTRIM, Code, GroupConfig
from loadtrim_agent.protocol.machine import Machine
from loadtrim_agent.wire.ownership_records import AssignmentRecord, LoadRecord, MemberEntry

from .results import Figure
from .suite import Benchmark, BenchmarkContext, Finding

__all__ = ["BENCHMARK"]

GROUP, TOPIC = "bench", "orders"
MEMBERS = (10, 100, 500)
PARTITIONS_EACH = 10
LOADS_PER_SECOND = 2.0
WARM_RECORDS = 2_000
MICROSECONDS_MAX = 25.0
"""Target of the largest group: 2.5 % of a core at 1 000 records/s."""


def member_of(count: int) -> tuple[Machine, float]:
    """Return the machine of one of ``count`` members, in a generation and with all it owns running, and its time."""
    machine, now = Machine(GroupConfig(group=GROUP, topics=(TOPIC,))), 100.0
    me, names = "m000", [f"m{index:03d}" for index in range(count)]
    machine.handle(e.StartEvent(now=now))
    machine.handle(e.CoordinatorFoundEvent(now=now))
    joined = {"now": now, "sent_at": now, "code": Code.NONE, "attempt": 1}
    machine.handle(
        e.JoinAnsweredEvent(**joined, member=me, generation=1, protocol=LOADTRIM, leader=names[-1])  # type: ignore[arg-type]
    )
    entries = {
        name: MemberEntry(
            attempt=1,
            topics=(TOPIC,),
            owns=((TOPIC, tuple(range(index * PARTITIONS_EACH, (index + 1) * PARTITIONS_EACH))),),
        )
        for index, name in enumerate(names)
    }
    assignment = AssignmentRecord(group=GROUP, member=names[-1], at=now, generation=1, members=entries)
    answer = e.GroupAnswer(assignment=assignment)
    machine.handle(e.SyncAnsweredEvent(**joined, generation=1, answer=answer))  # type: ignore[arg-type]
    mine = {Partition(TOPIC, index): 0 for index in range(PARTITIONS_EACH)}
    machine.handle(e.CommittedFetchedEvent(now=now, fetch=1, code=0, offsets=mine))
    for partition, entry in machine.snapshot().assigned.items():
        machine.handle(e.OpenedEvent(now=now, partition=partition, acquisition_id=entry.acquisition_id, position=0))
    return machine, now


def microseconds_per_record(count: int, records: int) -> float:
    """Return the mean CPU time of one ``load`` of another member, with the question for the next wake-up after it."""
    machine, now = member_of(count)
    step = 1.0 / (LOADS_PER_SECOND * count)
    spent: list[float] = []
    for number in range(records):
        now += step
        record = LoadRecord(group=GROUP, member=f"m{number % count:03d}", at=now, generation=1, slack=0.5)
        event = e.LogReadEvent(now=now, offset=number, record=record)
        begun = time.thread_time_ns()
        machine.handle(event)
        due = machine.wakeup()
        spent.append((time.thread_time_ns() - begun) / 1000)
        if due <= now:
            machine.handle(e.TickEvent(now=now))
    return statistics.fmean(spent)


async def run(context: BenchmarkContext) -> Finding:
    """Measure the cost per record for groups of several sizes."""
    records = 2_000 if context.quick else 20_000
    microseconds_per_record(MEMBERS[0], WARM_RECORDS)  # the interpreter specializes code that it has run often
    measured = {count: microseconds_per_record(count, records) for count in MEMBERS}
    figures = tuple(
        Figure(
            name=f"a load record of another member, {count} members",
            value=microseconds,
            unit="us",
            at_most=MICROSECONDS_MAX,
            peer=f"{microseconds * LOADS_PER_SECOND * count / 1e4:.2f} % of a core",
        )
        for count, microseconds in measured.items()
    )
    setting = (
        f"{LOADS_PER_SECOND:.0f} load records/s of each member, {PARTITIONS_EACH} partitions each. Thrown away: "
        f"{WARM_RECORDS:,} records before all others."
    )
    return Finding(figures=figures, setting=setting)


BENCHMARK = Benchmark(
    name="log-records", title="Records of the coordination log that concern others", run=run, seconds=5,
    quick_seconds=2, needs_kafka=False, measures=("agent/loadtrim_agent/protocol", "agent/loadtrim_agent/wire"),
)  # fmt: skip
