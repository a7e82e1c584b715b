"""What runs beside membership: measuring, metrics, leading, HTTP. Put together here, and nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from loadtrim_agent import __version__
from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.delivery.metering_task import MeteringTask, process_started_at
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.leader.loop import LeaderLoop
from loadtrim_agent.leader.ports import LeaderOptions
from loadtrim_agent.leader.scaling.none import NoneScaler
from loadtrim_agent.leader.scaling.port import ScaleOutcome, Scaler, ScaleRequest
from loadtrim_agent.leader.scaling.reconciler import ScaleReconciler
from loadtrim_agent.leader.scaling.webhook import WebhookScaler
from loadtrim_agent.metering.readings import MeterConfig
from loadtrim_agent.observability.http import HttpServer, Registration, parse_address
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.observability.status import (
    AgentState,
    GroupMember,
    OwnedPartition,
    ScalerStatus,
    Status,
    shown_settings,
)
from loadtrim_agent.observability.text import decision_line
from loadtrim_agent.planning.rate_source import REPORTS
from loadtrim_agent.planning.registry import make_packer, make_policy, unmonitored
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.protocol.commands import EnteredCommand
from loadtrim_agent.protocol.counters import ProtocolCount, Severity
from loadtrim_agent.protocol.ownership import AssignedState
from loadtrim_agent.protocol.snapshot import MachineSnapshot
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import LeavingRecord, PlanRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .agent import Agent
from .observer import AgentObserver

__all__ = ["Services"]

log = logging.getLogger("loadtrim")

STALLED_SECONDS = 10.0
"""Records wait and no lease lets them be handed out for this long: unhealthy."""


class Services(AgentObserver):
    """The companion of a real consumer.

    Args:
        options: the settings; all of them are shown by ``/status``.
        group: group id. client_id: of the consumer.
        registry: Prometheus registry; None: the default one.

    Raises:
        UnknownNameError: no policy or packer has that name. ParameterError: a parameter of one is out of its range.
        SimulatorOnlyError: the packer is none for a group. ValueError: an address or URL cannot be used.
    """

    def __init__(
        self, options: AgentSettings, *, group: str, client_id: str, registry: CollectorRegistry | None
    ) -> None:
        self._options = options
        self._group = group
        self._client_id = client_id
        make_policy(options.policy)
        make_packer(options.packer, in_group=True)
        if options.monitor != REPORTS and (limits := unmonitored(options.policy, options.monitor)):
            log.warning("%s", limits)
        parse_address(options.http)
        self._scaler = _make_scaler(options)
        self.metrics = Metrics(registry, group, client_id, options.sla_seconds, clock=boot_time)
        started_at = options.requested_at or process_started_at()
        self.metering = MeteringTask(
            MeterConfig(
                group=group,
                objective_seconds=options.sla_seconds,
                instance=instance_name(options),
                instance_type=options.instance_type,
                concurrency=options.concurrency,
                started_at=started_at,
            ),
            self.metrics,
            report_seconds=options.report_seconds,
        )
        self._agent: Agent | None = None
        self._leader_loop: LeaderLoop | None = None
        self._reconciler: ScaleReconciler | None = None
        self._registration: Registration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._errors: Counter[str] = Counter()
        self._state_since = wall_time()

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self, agent: Agent) -> None:
        self._agent = agent
        self.metering.attach(agent.buffer, agent.fetcher)
        self._reconciler = ScaleReconciler(self._scaler, on_outcome=self._scaled, on_error=self.error)
        options = self._options
        self._leader_loop = LeaderLoop(
            LeaderOptions(
                plan=PlanConfig.of(options, self._group, can_scale=self._scaler.scales),
                instance=agent.options.config.instance,
                connection=agent.options.settings,
                scales=self._scaler.scales and options.mode == "active",
                baseline_topic=options.baseline_topic,
                time_zone=options.time_zone,
            ),
            agent,
            self.metrics,
            self._reconciler,
            agent.boundary,
        )
        self._run("gathering", self.metering.run_gathering())
        self._run("reports", self.metering.run_reports(self._who, self._committed, self._publish))
        self._run("loads", self.metering.run_loads(self._who, self._write))
        self._run("scaler", self._reconciler.run())
        server = HttpServer.shared(self._options.http)
        self._registration = server.register(f"{self._group}/{self._client_id}", self, self.metrics.agent_error)

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"loadtrim-{name}")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s broke and is off from now on; the consumer goes on.", task.get_name(), exc_info=error)
            self.error(task.get_name().removeprefix("loadtrim-"))

    async def leaving(self, member: str, generation: int) -> None:
        """What was done since the last report: the leader would take its absence for less load."""
        await self.metering.report(member, generation, self._publish)

    async def stop(self) -> None:
        if self._leader_loop is not None:
            await self._leader_loop.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._reconciler is not None:
            await self._reconciler.close()
        if self._registration is not None:
            self._registration.close()
        self.metrics.close()

    def _who(self) -> tuple[str, int]:
        now = self._need_agent().snapshot()
        return now.member, now.generation

    def _committed(self) -> dict[Partition, int]:
        assigned = self._need_agent().snapshot().assigned
        return {p: view.committed for p, view in assigned.items() if view.committed is not None}

    async def _publish(self, record: Record, sequence: int) -> bool:
        control = self._need_agent().log
        return control is not None and await control.publish(record, sequence=sequence)

    async def _write(self, record: Record) -> bool:
        control = self._need_agent().log
        return control is not None and await control.write(record)

    def _need_agent(self) -> Agent:
        assert self._agent is not None, "start() gives the agent"
        return self._agent

    # -- what the agent tells ------------------------------------------------------------------------------------

    def entered(self, command: EnteredCommand) -> None:
        self._state_since = wall_time()
        self.metrics.generation(command.generation)
        if self._leader_loop is not None:
            leads = command.leader == command.member and self._need_agent().snapshot().assignment is not None
            self._leader_loop.set_leader(leads)

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        self.metering.fetched(stream, chunk, end_offset)

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        self.metering.acquired(stream, seconds)
        log.debug("%s is handed out here from offset %d on", stream.partition, stream.position)

    def released(self, partition: Partition, seconds: float) -> None:
        self.metrics.handoff("release", seconds)
        self.metrics.move("done")
        log.debug("%s was handed over in %.1f ms", partition, seconds * 1000)

    def lost(self, stream: Stream) -> None:
        self.metering.lost(stream)

    def sought(self, stream: Stream, offset: int) -> None:
        self.metering.sought(stream, offset)

    def paused(self, stream: Stream, paused: bool) -> None:
        self.metering.paused(stream, paused)

    def heartbeat(self, sent_at: float) -> None:
        self.metrics.heartbeat_age(boot_time() - sent_at)

    def read(self, record: Record) -> None:
        if isinstance(record, LeavingRecord | PlanRecord):
            log.debug("read %s", record)

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        self.metering.meter.clock_offset(seconds, round_trip_seconds)

    def count(self, what: ProtocolCount, partition: Partition | None) -> None:
        if what.severity is Severity.MOVE:
            self.metrics.move(what.outcome)
        elif what.severity is Severity.ERROR:
            self.error(what.label)

    def error(self, where: str) -> None:
        self._errors[where] += 1
        self.metrics.agent_error(where)

    def _scaled(self, request: ScaleRequest, outcome: ScaleOutcome) -> None:
        self.metrics.scaler_request(outcome.answer.value)

    # -- what the HTTP server asks, on its own threads -----------------------------------------------------------

    @property
    def registry(self) -> CollectorRegistry:
        return self.metrics.registry

    def health(self) -> tuple[bool, str]:
        agent = self._need_agent()
        if agent.failure is not None:
            return False, f"the agent has failed: {agent.failure!r}"
        waiting = sum(p.lag_records for p in self.metering.snapshot.partitions)
        expired = boot_time() - agent.buffer.lease_until
        if waiting and expired > STALLED_SECONDS:
            return (
                False,
                f"{waiting} records wait and there has been no lease for {expired:.0f} s: Kafka does not answer",
            )
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        agent = self._need_agent()
        if agent.entered.is_set() and agent.failure is None and not agent.left.is_set():
            return True, "ok"
        return False, "waiting for the group's generation"

    def status(self) -> Status:
        agent = self._need_agent()
        group = agent.snapshot()
        seen = self.metering.snapshot
        last = self._leader_loop.last if self._leader_loop is not None else None
        leads = group.is_leader
        return Status(
            group=self._group,
            client_id=self._client_id,
            at=wall_time(),
            version=__version__,
            member=group.member,
            instance=instance_name(self._options),
            state=self._state(agent, group),
            state_since=self._state_since,
            protocol=group.protocol,
            mode=self._options.mode,
            leader=group.leader,
            leads=leads,
            generation=group.generation,
            lease_seconds=max(0.0, agent.buffer.lease_until - boot_time()),
            log="ok" if agent.log is not None else "not usable",
            concurrency=self._options.concurrency,
            utilization=seen.utilization,
            victim=group.plan is not None and group.member in group.plan.victims,
            partitions=self._partitions(group),
            members=_members(group),
            replicas_actual=last.replicas_actual if last and leads else None,
            replicas_wanted=last.replicas_wanted if last and leads else None,
            scaler=self._scaler_status() if leads else None,
            manual_override=group.manual_override,
            last_decision=last,
            last_decision_words=decision_line(last) if isinstance(last, DecisionRecord) else "",
            errors=dict(sorted(self._errors.items())),
            settings=shown_settings(msgspec.structs.asdict(self._options)),
        )

    def _state(self, agent: Agent, group: MachineSnapshot) -> AgentState:
        if agent.failure is not None:
            return AgentState.FAILED
        if agent.left.is_set():
            return AgentState.STOPPED
        if not agent.entered.is_set():
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
            for p in self.metering.snapshot.partitions
        )

    def _scaler_status(self) -> ScalerStatus:
        view = self._reconciler.view() if self._reconciler is not None else None
        if view is None:
            return ScalerStatus()
        return ScalerStatus(
            scaler=view.scaler,
            replicas=view.wanted.replicas if view.wanted is not None else None,
            victims=view.wanted.victims if view.wanted is not None else (),
            delivered=view.delivered,
            answer=view.answer,
            detail=view.detail,
            failures=view.failures,
        )


def _members(group: MachineSnapshot) -> tuple[GroupMember, ...]:
    if group.assignment is None:
        return ()
    owned = Counter((group.owners or {}).values())
    victims = group.plan.victims if group.plan is not None else ()
    return tuple(
        GroupMember(member=m, partitions=owned[m], leaving=m in group.leaving, victim=m in victims)
        for m in sorted(group.assignment.members)
    )


def _make_scaler(options: AgentSettings) -> Scaler:
    if options.scaler == "webhook":
        return WebhookScaler(options.scaler_url, options.scaler_token or None)
    return NoneScaler()
