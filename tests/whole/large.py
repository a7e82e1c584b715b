"""``python -m whole.large [MEMBERS ...]``: what a member of a large group asks of the broker, on virtual time.

The counterpart of ``python -m benchmarks large`` for groups that two cores cannot run in real time. CPU is that of the
simulation, the model of the broker included.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass

from .member import GROUP, threads_in_charge
from .requests import API
from .world import Member, Options, World

__all__ = ["LargeGroup", "Row"]

MEMBERS = (10, 30, 100, 300)
PARTITIONS_EACH = 10
WAVES = 4
"""A rolling deploy replaces all members, a quarter at a time."""
POD_START_SECONDS = 0.5
"""The pods of a wave start within so long, and its old ones stop within so long. Chosen."""
SETTLE_SECONDS_MAX = 120.0
START_SECONDS = 6.0
"""The first members start within so long: members that all begin at one instant tell their loads at one instant too,
which one read answers. As long as :data:`loadtrim_agent.protocol.pace.LOAD_SECONDS_MAX`."""
WARM_SECONDS, QUIET_SECONDS = 9.0, 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a group of one size asks."""

    members: int
    started_seconds: float
    """Virtual seconds from the last start until every partition has one owner."""
    fetches: float
    """Per second and member of a quiet group."""
    requests: float
    """Of all kinds, per second and member of a quiet group."""
    bytes_per_second: float
    """Answers to all members of a quiet group."""
    barrier_seconds: float
    """From the start of one more member until the group is settled again."""
    deploy_seconds: float
    deploy_barriers: int
    cpu_seconds: float
    """Of the simulation of a quiet second."""


class LargeGroup:
    """A group without faults; use within ``kernel.in_charge()`` and ``threads_in_charge()``."""

    def __init__(self, members: int, *, partitions_each: int = PARTITIONS_EACH) -> None:
        options = Options(
            members=members,
            members_max=2 * members,
            partitions=partitions_each * members,
            session_timeout_seconds=10.0,
            drift_max=0.0,
            moves_per_second=0.0,
            metadata_max_age_seconds=300.0,
        )
        self.world = World(1, options)
        self.world.faulty = False

    @property
    def generation(self) -> int:
        return self.world.cluster.group(GROUP).generation

    def start(self, count: int, within_seconds: float = 0.0) -> None:
        for _ in range(count):
            self.world.join("iterates")
            self.world.kernel.run(within_seconds / count)

    def stop(self, some: list[Member], within_seconds: float) -> None:
        for member in some:
            member.end()
            self.world.kernel.run(within_seconds / len(some))

    def settle(self) -> float:
        """Return how many virtual seconds it took until every partition has one owner, in one generation.

        Raises:
            TimeoutError: it did not.
        """
        begun = self.world.kernel.now
        if not self.world.kernel.run_until(self._is_settled, seconds=SETTLE_SECONDS_MAX):
            raise TimeoutError(f"{len(self.world.alive)} members have not settled within {SETTLE_SECONDS_MAX:g} s")
        return self.world.kernel.now - begun

    def _is_settled(self) -> bool:
        alive = self.world.alive
        snapshots = [member.agent.snapshot() for member in alive if member.agent is not None]
        if len(snapshots) < len(alive):
            return False
        owned = Counter(partition for member in alive for partition in member.delivers)
        return (
            all(snapshot.stable and snapshot.generation == self.generation for snapshot in snapshots)
            and len(owned) == self.world.options.partitions
            and owned.total() == len(owned)
        )

    def deploy(self) -> tuple[float, int]:
        """Replace every member in waves, and return how many seconds and rebalances that took."""
        begun, generation = self.world.kernel.now, self.generation
        old = list(self.world.alive)
        for wave in range(WAVES):
            some = old[wave * len(old) // WAVES : (wave + 1) * len(old) // WAVES]
            self.start(len(some), POD_START_SECONDS)
            self.stop(some, POD_START_SECONDS)
        self.settle()
        return self.world.kernel.now - begun, self.generation - generation

    def asked(self) -> Counter[int]:
        """Return the requests so far, by API key."""
        return Counter(self.world.cluster.counts)


def measure(members: int) -> Row:
    """Play one group, and return what it asked."""
    group = LargeGroup(members)
    kernel, network = group.world.kernel, group.world.network
    with kernel.in_charge(), threads_in_charge():
        group.start(members, START_SECONDS)
        started = group.settle()
        kernel.run(WARM_SECONDS)
        before, bytes_before, cpu = group.asked(), network.answered_bytes, time.process_time()
        kernel.run(QUIET_SECONDS)
        cpu = time.process_time() - cpu
        quiet = group.asked() - before
        answered = network.answered_bytes - bytes_before
        group.start(1)
        barrier = group.settle()
        deploy_seconds, barriers = group.deploy()
    each = QUIET_SECONDS * members
    return Row(
        members=members,
        started_seconds=started,
        fetches=quiet[API.FETCH] / each,
        requests=quiet.total() / each,
        bytes_per_second=answered / QUIET_SECONDS,
        barrier_seconds=barrier,
        deploy_seconds=deploy_seconds,
        deploy_barriers=barriers,
        cpu_seconds=cpu / QUIET_SECONDS,
    )


def main(arguments: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    print("| members | started, s | requests | fetches | kB/s | join, s | deploy, s | rebalances | CPU, s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for members in map(int, arguments or MEMBERS):
        row = measure(members)
        print(
            f"| {row.members} | {row.started_seconds:.1f} | {row.requests:.1f} | {row.fetches:.1f} "
            f"| {row.bytes_per_second / 1000:,.0f} | {row.barrier_seconds:.2f} | {row.deploy_seconds:.1f} "
            f"| {row.deploy_barriers} | {row.cpu_seconds:.2f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
