"""``python -m fuzz --records N --seed S``: throw records, print a table of what became of them, fail for any crash."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .inputs import Live, make_record
from .targets import Decoders, Leader, Member, Reader

BATCH = 50
"""Records between two seconds of the group."""
WARM_SHARE = 0.25
"""After this share of the records memory is to grow no more."""
RECORDS_A_LOOK = 1_000
"""At least so many between two looks at the memory, for each collects all garbage: a second in a large process."""
GROWTH_MAX = 40_000_000
"""Bytes that it may grow by after that: caches and the allocator's own ways."""
CRASHES_SHOWN = 5
POLICIES = ("objective", "closer24", "keda", "hpa_cpu", "flas", "li_ku")


@dataclass
class Outcome:
    """What became of the records."""

    records: int = 0
    made: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    others: dict[str, Counter[str]] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    decisions: int = 0
    generations: int = 0
    wanted_max: int = 0
    memory: list[int] = field(default_factory=list)
    """Bytes resident, at equal distances."""

    @property
    def grown(self) -> int:
        """Bytes by which memory grew after it was warm."""
        warm = self.memory[int(len(self.memory) * WARM_SHARE)]
        return self.memory[-1] - warm


def throw(records: int, seed: int, *, seconds: float = float("inf"), tell: bool = False) -> Outcome:
    """Make so many records, or as many as there is time for, and throw each at everything that reads records."""
    rng, outcome = Random(seed), Outcome()
    decoders, reader, now = Decoders(), Reader(), 1_800_000_000.0
    live = Live("payments-service", ("c-1", "c-2", "c-3"), "payments", 8, now)
    member = Member(live)
    leaders = [Leader(policy) for policy in POLICIES]
    began = time.monotonic()
    for number in range(records):
        leader = leaders[number // BATCH % len(leaders)]
        try:
            aim = leader.live if rng.random() < 0.5 else live
            made, data = make_record(rng, aim)
            outcome.made[made] += 1
            record, reason = decoders.record(data)
            if record is None:
                outcome.refused[reason] += 1
            else:
                outcome.accepted[type(record).__name__] += 1
                leader.hear(record)
                reader.hear(record, live.now)
                member.read(record)
            if number % 10 == 0:
                _count(outcome, "baselines", decoders.baseline(rng, live) or "taken in")
                _count(outcome, "group protocol", decoders.group_protocol(rng, live) or "read")
            if number % BATCH == BATCH - 1:
                live.now += 1.0
                leader.expect(rng)
                leader.second(rng)
                member.check()
                reader.show(live.now)
        except Exception:
            outcome.crashes.append(f"record {number}: {data[:300]!r}\n{traceback.format_exc(limit=-6)}")
            if len(outcome.crashes) == CRASHES_SHOWN:
                break
            member = Member(live)
        if time.monotonic() - began > seconds:
            break
        if number % max(RECORDS_A_LOOK, records // 50) == 0:
            gc.collect()
            outcome.memory.append(_resident())
            if tell:
                speed = (number + 1) / (time.monotonic() - began)
                print(f"\r{number} of {records}, {speed:.0f}/s, {outcome.memory[-1] >> 20} MB", end="", file=sys.stderr)
    outcome.records = number + 1
    outcome.memory.append(_resident())
    outcome.others["machine"] = member.counted
    outcome.generations = member.generations
    for leader in leaders:
        outcome.others.setdefault("planner", Counter()).update(leader.counted)
        outcome.others.setdefault("planner broke", Counter()).update(leader.broken)
        outcome.decisions += leader.decisions
        outcome.wanted_max = max(outcome.wanted_max, leader.wanted_max)
    assert sum(outcome.refused.values()) == decoders.unreadable, "every record that is refused is counted"
    return outcome


def _count(outcome: Outcome, where: str, what: str) -> None:
    outcome.others.setdefault(where, Counter())[what] += 1


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def table(outcome: Outcome, seconds: float) -> str:
    """Return the outcome as a Markdown table."""
    refused = sum(outcome.refused.values())
    rows = [
        ("made", outcome.made),
        (f"decoder: {refused} refused", outcome.refused),
        (f"decoder: {sum(outcome.accepted.values())} read", outcome.accepted),
        *outcome.others.items(),
    ]
    lines = ["| where | what became of them |", "|---|---|"]
    for where, counts in rows:
        told = ", ".join(f"{what} {count}" for what, count in counts.most_common()) or "none"
        lines.append(f"| {where} | {told} |")
    asked = f"at most {outcome.wanted_max} replicas asked for (maximum {Leader.MAX_REPLICAS})"
    resident = f"{outcome.memory[0] >> 20} MB at the start, {outcome.memory[-1] >> 20} MB at the end"
    lines += [
        f"| group | {outcome.decisions} decisions, {asked}, {outcome.generations} generations |",
        f"| memory | {resident}, {outcome.grown / 1e6:+.1f} MB after a quarter |",
        f"| crashes | {len(outcome.crashes)} |",
        "",
        f"{outcome.records} records in {seconds:.0f} s.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Return the exit code: 1 for a crash, a planner that broke, or memory that grew."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)

    async def run() -> Outcome:
        return throw(args.records, args.seed, seconds=args.seconds, tell=sys.stderr.isatty() or args.records >= 100_000)

    began = time.monotonic()
    outcome = asyncio.run(run())
    print("\n" + table(outcome, time.monotonic() - began))
    for crash in outcome.crashes:
        print(f"\n{crash}", file=sys.stderr)
    broke = outcome.others["planner broke"].total()
    return 1 if outcome.crashes or broke or outcome.grown > GROWTH_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
