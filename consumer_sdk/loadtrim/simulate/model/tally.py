"""The counts of one run: of records, of replicas and of moves, second by second of the load."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .outcome import Curves, Outcome

__all__ = ["Tally"]


@dataclass(slots=True)
class _Second:
    late: int = 0
    """Records that were done in it, too late."""
    late_arrived: int = 0
    """Records that arrived in it and were done too late, or not at all."""
    latency_max: float = 0.0


class Tally:
    """The counts of a run while it is played; :meth:`outcome` says what came of it."""

    def __init__(self, partitions: int) -> None:
        self.latencies = array("d")
        self.done_by_partition = [0] * partitions
        self.late_by_cause: Counter[str] = Counter()
        self.moves: Counter[int] = Counter()
        """By second of the load; so are those that follow."""
        self.slices: Counter[int] = Counter()
        """Of these moves, those that members made on their own initiative."""
        self.rebalances: Counter[int] = Counter()
        self._seconds: defaultdict[int, _Second] = defaultdict(_Second)
        self.arrived_until = [0]
        """Records that have arrived when the load begins, and at the end of each of its seconds."""
        self.capacity: list[float] = []
        self.replicas: list[int] = []
        self.replicas_wanted: list[int] = []
        self.waiting: list[int] = []
        self.replica_seconds = 0.0
        self.replicas_max = 0
        self.decisions: list[tuple[float, DecisionRecord]] = []

    @property
    def not_done(self) -> int:
        """Records that arrived and are not done."""
        return self.arrived_until[-1] - sum(self.done_by_partition)

    def arrive(self, records: int) -> None:
        """Count what arrives in the next second of the load."""
        self.arrived_until.append(self.arrived_until[-1] + records)

    def done(self, second: int, index: int, latencies: list[float], objective_seconds: float) -> bool:
        """Count records of one partition that were done in a second of the load.

        Returns:
            True: one of them was late.
        """
        self.latencies.extend(latencies)
        self.done_by_partition[index] += len(latencies)
        longest = max(latencies)
        entry = self._seconds[second]
        entry.latency_max = max(entry.latency_max, longest)
        if longest > objective_seconds:
            entry.late += sum(map(float(objective_seconds).__lt__, latencies))
            return True
        return False

    def late(self, arrived_in: Iterable[int]) -> None:
        """Count late records by the second of the load in which each arrived."""
        for second in arrived_in:
            self._seconds[second].late_arrived += 1

    def outcome(
        self,
        *,
        seconds: int,
        partitions: Iterable[Partition],
        waited: Iterable[float],
        objective_seconds: float,
        cost_seconds: float,
    ) -> Outcome:
        """Return what came of the run.

        Args:
            seconds: of the load; moves and rebalances behind it do not count.
            partitions: sorted.
            waited: of each record that is not done, seconds since it arrived.
            objective_seconds: W.
            cost_seconds: of a record, on average.
        """

        def until_end(by_second: Mapping[int, int]) -> int:
            return sum(count for second, count in by_second.items() if second < seconds)

        played = range(len(self.replicas))
        entries = [self._seconds[second] for second in played]
        arrived = [end - begin for begin, end in pairwise(self.arrived_until)]
        arrived += [0] * (len(played) - len(arrived))
        return Outcome(
            arrived=self.arrived_until[-1],
            latencies=sorted(self.latencies),
            waited=sorted(waited),
            objective_seconds=objective_seconds,
            replica_minutes=self.replica_seconds / 60.0,
            replicas_max=self.replicas_max,
            moves=until_end(self.moves),
            slices=until_end(self.slices),
            rebalances=until_end(self.rebalances),
            late_by_cause=dict(sorted(self.late_by_cause.items())),
            decisions=tuple(self.decisions),
            curves=Curves(
                arrived=tuple(arrived),
                work=tuple(count * cost_seconds for count in arrived),
                capacity=tuple(self.capacity),
                replicas=tuple(self.replicas),
                wanted=tuple(self.replicas_wanted),
                late=tuple(entry.late for entry in entries),
                latency_max=tuple(entry.latency_max for entry in entries),
                moves=tuple(self.moves[second] for second in played),
                waiting=tuple(self.waiting),
            ),
            seconds=seconds,
            late_by_arrival=tuple(self._seconds[second].late_arrived for second in range(seconds)),
            done_by_partition={
                str(partition): done for partition, done in zip(partitions, self.done_by_partition, strict=True)
            },
        )
