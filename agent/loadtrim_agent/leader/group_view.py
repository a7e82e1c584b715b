"""The group as its leader sees it: the snapshot, the reports, and what was asked for lately."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.values import GroupState, MemberState, Rates
from loadtrim_agent.wire.baseline_records import Baselines
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

from .ports import LedGroup

__all__ = ["GroupView"]

IN_FLIGHT_SECONDS = 5.0
"""An advised move that has not happened after this long is planned anew."""
UNOWNED_LOOK_SECONDS = 5.0
"""How often the broker is asked about partitions without an owner. Chosen."""


class GroupView:
    """Everything that the planner is told about the group, but for the reports themselves.

    Args:
        group: the group as this member's agent knows it.
        instance: the orchestrator's name of this member's process.
    """

    def __init__(self, group: LedGroup, instance: str) -> None:
        self._group = group
        self._instance = instance
        self._instances: dict[str, str] = {}
        """Member id -> instance, as its reports say."""
        self._joined_at: dict[str, float] = {}
        self._in_flight: dict[Partition, tuple[str, float]] = {}
        """Partition -> (target, when its move was advised, boot clock)."""
        self.requested: int | None = None
        """Replicas asked for last; None: none in this leadership."""
        self._unowned: dict[Partition, int] = {}
        """Records that wait in partitions without an owner."""
        self._unowned_looked_at = 0.0
        self.weights: dict[Partition, float] = {}
        """Work per partition, seconds per second."""

    def observe(self, report: ReportRecord) -> None:
        """Take in a member's report."""
        self._instances[report.member] = report.instance
        self._weigh(report)

    def advised(self, decision: DecisionRecord) -> None:
        """The members are told to make these moves."""
        for move in decision.moves:
            self._in_flight[Partition(move.topic, move.partition)] = (move.target, boot_time())

    def generation_changed(self) -> None:
        """Advice of the generation before does not count any more."""
        self._in_flight.clear()

    def _weigh(self, report: ReportRecord) -> None:
        """Keep work per partition as reported last, for placing unclaimed partitions at the next rebalance."""
        for p in report.partitions:
            if p.cost_mean is not None and report.interval > 0:
                self.weights[Partition(p.topic, p.partition)] = p.arrived / report.interval * p.cost_mean

    def state(self, baselines: Baselines, rates: Rates | None) -> GroupState:
        """Return the group as it is now, for the planner.

        Args:
            baselines: what the history expects.
            rates: arrival rates of a rate source; None: the reports tell them.
        """
        group = self._group.snapshot()
        entries = group.assignment.members if group.assignment is not None else {}
        now = wall_time()
        self._joined_at = {m: self._joined_at.get(m, now) for m in entries}
        owners = self.owners()
        self._in_flight = {
            p: (target, at)
            for p, (target, at) in self._in_flight.items()
            if owners.get(p) != target and target in entries and boot_time() - at < IN_FLIGHT_SECONDS
        }
        return GroupState(
            generation=group.generation,
            leader=group.member,
            members={
                member: MemberState(
                    instance=self._instance_of(member),
                    topics=frozenset(entry.topics),
                    leaving=member in group.leaving,
                    joined_at=self._joined_at[member],
                )
                for member, entry in sorted(entries.items())
            },
            owners=owners if group.owners is not None else {},
            unowned_lag=self._unowned,
            in_flight={p: target for p, (target, _) in sorted(self._in_flight.items())},
            manual_override=group.manual_override,
            replicas_requested=self.requested,
            rates=rates,
            expected=baselines.curves(now),
            startup_expected_seconds=baselines.startup_seconds,
        )

    def _instance_of(self, member: str) -> str:
        if member == self._group.snapshot().member:
            return self._instance
        return self._instances.get(member, "")

    def owners(self) -> dict[Partition, str | None]:
        """Return the owner of each of the group's partitions; None: it has none now."""
        group = self._group.snapshot()
        entries = group.assignment.members if group.assignment is not None else {}
        owners = group.owners or {}
        topics = sorted({topic for entry in entries.values() for topic in entry.topics})
        return {
            partition: owners.get(partition)
            for topic in topics
            for partition in (Partition(topic, index) for index in range(group.partition_counts.get(topic, 0)))
        }

    async def look_at_unowned(self) -> None:
        """Ask the broker how much waits where there is no owner, every now and then."""
        unowned = [p for p, owner in self.owners().items() if owner is None]
        if not unowned:
            self._unowned = {}
        elif boot_time() - self._unowned_looked_at > UNOWNED_LOOK_SECONDS:
            self._unowned_looked_at = boot_time()
            code, committed, _ = await self._group.requests.committed(unowned, stable=False)
            if code == 0:
                ends = await self._group.queries.end_offsets([TopicPartition(*p) for p in unowned])
                self._unowned = {
                    p: max(0, int(ends[TopicPartition(*p)]) - offset) for p, offset in committed.items() if offset >= 0
                }
