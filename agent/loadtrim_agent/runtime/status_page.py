"""The status page of an agent; :mod:`loadtrim_agent.observability.http` asks for it on threads of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from prometheus_client import CollectorRegistry

from loadtrim_agent import __version__
from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.delivery.metering_task import MeteringTask
from loadtrim_agent.delivery.slicing_task import SlicingTask
from loadtrim_agent.leader.instances import Instances
from loadtrim_agent.leader.loop import LeaderLoop
from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.reconciler import ScaleReconciler
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.observability.status import (
    AgentState,
    GroupMember,
    OwnedPartition,
    ScalerStatus,
    Status,
    shown_settings,
)
from loadtrim_agent.observability.text import counted, decision_line, untold_line
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .agent import Agent

__all__ = ["StatusPage", "StatusSources"]

STALLED_SECONDS = 10.0
"""Records wait and the agent's thread has not run for this long: unhealthy. Chosen."""


class StatusSources(msgspec.Struct, frozen=True, kw_only=True):
    """The page is made from these parts."""

    settings: AgentSettings
    group: str
    client_id: str
    agent: Agent
    metrics: Metrics
    metering: MeteringTask
    slicing: SlicingTask
    leader: LeaderLoop
    reconciler: ScaleReconciler
    errors: Counter[str]
    """What broke and was contained, by place. Still counted."""
    publisher: MetricScaler | None = None
    """Publishes the replicas for an autoscaler; None: nobody does."""
    asks: bool = True
    """The group asks an orchestrator for replicas. False: it has no say in which of its pods goes."""
    stays_ready: bool = False
    """A drained victim stays ready: its orchestrator takes the highest number, and nobody's readiness tells it more."""


class StatusPage:
    """Implements :class:`loadtrim_agent.observability.http.Provider`: each answer is from what is known now.

    Args:
        sources: what it is made from.
    """

    def __init__(self, sources: StatusSources) -> None:
        self._sources = sources
        self._victim = False
        """As the last plan said. A generation begins without one, and a victim is no less one then."""

    @property
    def registry(self) -> CollectorRegistry:
        """Return the registry that holds the metrics."""
        return self._sources.metrics.registry

    def health(self) -> tuple[bool, str]:
        agent = self._sources.agent
        if agent.condition.failure is not None:
            return False, f"the agent has failed: {agent.condition.failure!r}"
        waiting = sum(p.lag_records for p in self._sources.metering.snapshot.partitions)
        now = boot_time()
        stalled = now - agent.condition.ran_at
        if waiting and stalled > STALLED_SECONDS:
            return False, f"{waiting} records wait and the agent's thread has not run for {stalled:.0f} s"
        # A restart brings no broker back: all consumers of the group would be restarted for nothing.
        return True, self._outage(now, waiting) or "ok"

    def _outage(self, now: float, waiting: int) -> str:
        """Return what a person wants to know of a lease that is over; empty: it is not, or there has been none yet."""
        agent = self._sources.agent
        lease_until = agent.partitions.gate.lease_until
        # What waits is the last that is known: no broker tells of what comes meanwhile.
        if not lease_until or now < lease_until or agent.condition.left.is_set():
            return ""
        return (
            f"Kafka does not answer: the lease has been over for {now - lease_until:.0f} s, and nothing is "
            f"delivered until it does ({counted(waiting, 'record')} waiting, as last known)"
        )

    def ready(self) -> tuple[bool, str]:
        agent = self._sources.agent
        if agent.condition.entered.is_set() and agent.condition.failure is None and not agent.condition.left.is_set():
            return True, "ok"
        return False, "waiting for the group's generation"

    def drained(self) -> bool | None:
        group = self._sources.agent.snapshot()
        if group.plan is not None:
            self._victim = group.member in group.plan.victims
        if not self._sources.asks and not self._victim:
            return None  # A pod of two groups goes when the one that scales it says so.
        # An ordered StatefulSet waits for pods that are not ready: two drained ones would hold each other up for ever.
        return self._victim and not group.assigned and not self._sources.stays_ready

    def published(self) -> tuple[str, int] | None:
        publisher = self._sources.publisher
        replicas = publisher.published() if publisher is not None else None
        return None if replicas is None else (self._sources.group, replicas)

    def status(self) -> Status:
        agent = self._sources.agent
        group = agent.snapshot()
        seen = self._sources.metering.snapshot
        able = seen.capacity.at(seen.speed)
        last = self._sources.leader.last
        leads = group.is_leader
        members = _members(group, self._sources.leader.instances)
        return Status(
            group=self._sources.group,
            client_id=self._sources.client_id,
            at=wall_time(),
            version=__version__,
            member=group.member,
            instance=self._sources.settings.instance,
            state=self._state(agent, group),
            state_since=agent.condition.since,
            protocol=group.protocol,
            mode=self._sources.settings.mode,
            leader=group.leader,
            leads=leads,
            generation=group.generation,
            lease_seconds=max(0.0, agent.partitions.gate.lease_until - boot_time()),
            log=_log_words(agent),
            capacity=able.value,
            capacity_error=able.error,
            capacity_known=able.known,
            utilization=seen.utilization,
            slicing_off=self._sources.slicing.off().value,
            untold="" if seen.untold.latency_known else untold_line(seen.untold),
            victim=group.plan is not None and group.member in group.plan.victims,
            partitions=self._partitions(group),
            members=members,
            replicas_actual=last.replicas_actual if last and leads else None,
            replicas_wanted=last.replicas_wanted if last and leads else None,
            scaler=self._scaler_status() if leads else None,
            manual_override=group.manual_override,
            last_decision=last,
            last_decision_words=_words(last, members) if isinstance(last, DecisionRecord) else "",
            errors=dict(sorted(self._sources.errors.items())),
            settings=shown_settings(msgspec.structs.asdict(self._sources.settings)),
        )

    def _state(self, agent: Agent, group: MachineSnapshot) -> AgentState:
        if agent.condition.failure is not None:
            return AgentState.FAILED
        if agent.condition.left.is_set():
            return AgentState.STOPPED
        if not agent.condition.entered.is_set():
            return AgentState.STARTING
        if not group.stable:
            return AgentState.JOINING
        return AgentState.STABLE if group.speaks_loadtrim else AgentState.MIXED

    def _partitions(self, group: MachineSnapshot) -> tuple[OwnedPartition, ...]:
        releasing = {
            p
            for p, view in group.assigned.items()
            if view.state in (AssignedState.DRAINING, AssignedState.COMMITTING, AssignedState.TRANSFERRED)
        }
        return tuple(
            OwnedPartition(
                topic=p.partition.topic,
                partition=p.partition.partition,
                state="releasing" if p.partition in releasing else p.state.value,
                lag_records=p.lag_records,
                lag_seconds=p.lag_seconds,
                arrival_rate=p.arrival_rate,
                cost_seconds=p.cost.mean if p.cost is not None else None,
                load=p.arrival_rate * p.cost.mean if p.cost is not None else None,
                position=p.position,
                committed=p.committed,
            )
            for p in self._sources.metering.snapshot.partitions
        )

    def _scaler_status(self) -> ScalerStatus:
        view = self._sources.reconciler.view()
        return ScalerStatus(
            scaler=view.scaler,
            replicas=view.wanted.replicas if view.wanted is not None else None,
            victims=view.wanted.victims if view.wanted is not None else (),
            delivered=view.delivered,
            answer=view.answer,
            detail=view.detail,
            failures=view.failures,
        )


def _log_words(agent: Agent) -> str:
    if agent.log is None:
        return "not usable: this member makes the group a mixed one, and goes on trying"
    return "ok" if agent.log_works else "failed: it can be neither read nor written now, so that nothing moves"


def _words(decision: DecisionRecord, members: Sequence[GroupMember]) -> str:
    return decision_line(decision, {each.member: each.instance for each in members})


def _members(group: MachineSnapshot, instances: Instances) -> tuple[GroupMember, ...]:
    if group.assignment is None:
        return ()
    owned = Counter((group.owners or {}).values())
    victims = group.plan.victims if group.plan is not None else ()
    return tuple(
        GroupMember(
            member=m,
            instance=(instances.own if m == group.member else instances.of(m)) or "",
            partitions=owned[m],
            leaving=m in group.leaving,
            victim=m in victims,
        )
        for m in sorted(group.assignment.members)
    )
