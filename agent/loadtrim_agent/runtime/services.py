"""The composition root of what runs beside membership: metering, metrics, the leader loop, HTTP."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from loadtrim_agent import __version__
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.host import process_name
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import AgentSettings, MemberSettings
from loadtrim_agent.delivery.loads_task import LoadsTask
from loadtrim_agent.delivery.metering_task import MeteringTask, process_started_at
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.slicing_task import SlicingTask
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.leader.instances import Instances
from loadtrim_agent.leader.loop import LeaderLoop
from loadtrim_agent.leader.scaling.kubernetes.pod_reader import PodReader
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.port import ScaleOutcome, ScaleRequest
from loadtrim_agent.leader.scaling.reconciler import ScaleReconciler
from loadtrim_agent.metering.readings import MeterConfig
from loadtrim_agent.observability.address import parse_address
from loadtrim_agent.observability.http import HttpServer, Registration
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.planning.rate_source import REPORTS
from loadtrim_agent.planning.registry import make_packer, make_policy, unmonitored
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.protocol.commands import EnteredCommand
from loadtrim_agent.protocol.commits import failure_of
from loadtrim_agent.protocol.counters import ProtocolCount, Severity
from loadtrim_agent.protocol.group_config import BROKER_ASSIGNS, LOADTRIM
from loadtrim_agent.wire.codec import Record
from loadtrim_agent.wire.ownership_records import (
    HelloRecord,
    LeavingRecord,
    LoadRecord,
    ManualOverrideRecord,
    PlanRecord,
    PromiseRecord,
    ReleaseRecord,
)

from .agent import Agent
from .ended_pods import EndedPods, pod_of
from .member_reports import MemberReports
from .observer import AgentObserver
from .scaling import LeaseFence, make_scaler, numbered, templated
from .status_page import StatusPage, StatusSources

__all__ = ["Services"]

log = logging.getLogger("loadtrim")

_PROTOCOLS = {LOADTRIM: "loadtrim", BROKER_ASSIGNS: "consumer"}
"""Protocol of a generation -> what the metric calls it; any other one is a mixed group's."""


class _Identity(NamedTuple):
    group: str
    client_id: str


class Services(AgentObserver):
    """Metering, metrics, planning and HTTP of a real consumer.

    Args:
        settings: of the user, with the name of this instance; all of them are shown by ``/status``.
        group: group id. client_id: of the consumer.
        registry: Prometheus registry; None: the default one.

    Raises:
        UnknownNameError: no policy or packer has that name. ParameterError: a parameter of one is out of its range.
        ValueError: an address or URL cannot be used.
    """

    def __init__(
        self, settings: MemberSettings, *, group: str, client_id: str, registry: CollectorRegistry | None
    ) -> None:
        self._settings = settings
        self._identity = _Identity(group, client_id)
        make_policy(settings.policy)
        make_packer(settings.packer)
        if settings.monitor != REPORTS and (limits := unmonitored(settings.policy, settings.monitor)):
            log.warning("%s", limits)
        parse_address(settings.http)
        self._fence = LeaseFence()
        self._instances = Instances(settings.instance)
        self._scaler = make_scaler(settings, self._fence, self._instances)
        self.metrics = Metrics(registry, group, client_id, settings.sla_seconds, clock=boot_time)
        self.metrics.about(
            version=__version__,
            policy=settings.policy,
            packer=settings.packer,
            mode=settings.mode,
            share=settings.sla_share,
        )
        if isinstance(self._scaler, MetricScaler):
            self.metrics.requested(self._scaler.published)
        started_at = settings.requested_at or process_started_at()
        given = {name: getattr(settings, name) for name in AgentSettings.__struct_fields__}
        self.metering = MeteringTask(
            MeterConfig(**given, group=group, process=process_name(), started_at=started_at), self.metrics
        )
        self.slicing = SlicingTask(settings, self.metering, LoadsTask(self.metering))
        self._agent: Agent | None = None
        self._reports: MemberReports | None = None
        self._leader: LeaderLoop | None = None
        self._reconciler: ScaleReconciler | None = None
        self._registration: Registration | None = None
        self._ended_pods: EndedPods | None = None
        self._errors: Counter[str] = Counter()

    # -- life cycle ----------------------------------------------------------------------------------------------

    async def start(self, agent: Agent) -> None:
        settings = self._settings
        self._agent = agent
        server = HttpServer.shared(settings.http)
        self._reports = reports = MemberReports(
            agent, server.probes, self.slicing, pod_of(settings.instance, settings.kubernetes_pod_uid)
        )
        self._fence.watch(agent.partitions.gate, agent)
        self.metering.attach(agent.buffer, agent.fetcher)
        self.slicing.attach(agent, agent.listener, agent.buffer, agent.fetcher)
        self._reconciler = reconciler = ScaleReconciler(self._scaler, observer=self)
        config = PlanConfig.of(
            settings,
            self._identity.group,
            can_scale=self._scaler.scales,
            numbered=numbered(settings),
            templated=templated(settings),
        )
        self._leader = leader = LeaderLoop(
            config,
            agent.connections.pool,
            agent,
            self._instances,
            self.metrics,
            reconciler,
            agent.boundary,
            agent.tasks,
        )
        agent.tasks.spawn_contained(self.metering.run_gathering(), "gathering")
        agent.tasks.spawn_contained(self.metering.run_reports(reports), "reports")
        agent.tasks.spawn_contained(self.slicing.loads.run(reports), "loads")
        agent.tasks.spawn_contained(self.slicing.run(), "slicing")
        agent.tasks.spawn_contained(reconciler.run(), "scaler")
        agent.tasks.spawn_contained(agent.condition.watch_loop(), "watch")
        if isinstance(self._scaler, KubernetesScaler) and self._scaler.lease is not None:
            agent.tasks.spawn_contained(self._scaler.lease.run(), "Lease")
        if settings.kubernetes_pod_uid:
            reader = PodReader(selector=settings.kubernetes_pod_selector)
            self._ended_pods = EndedPods(reader, agent, self._fence)
            agent.tasks.spawn_contained(self._ended_pods.run(), "ended pods")
            agent.tasks.spawn_contained(self._ended_pods.keep_watch(), "watch of pods")
        sources = StatusSources(
            settings=settings,
            group=self._identity.group,
            client_id=self._identity.client_id,
            agent=agent,
            metrics=self.metrics,
            metering=self.metering,
            slicing=self.slicing,
            leader=leader,
            reconciler=reconciler,
            errors=self._errors,
            asks=config.asks,
            stays_ready=bool(numbered(settings)),
            publisher=self._scaler if isinstance(self._scaler, MetricScaler) else None,
        )
        self._registration = server.register("/".join(self._identity), StatusPage(sources), self.metrics.agent_error)

    async def leaving(self, member: str, generation: int) -> None:
        """Report what was done since the last report: the leader would take its absence for less load."""
        assert self._reports is not None, "no member leaves before the start"
        if self._leader is not None:
            self._leader.stop()  # another member leads now, and asks for replicas
        await self.metering.report(member, generation, self._reports)

    async def stop(self) -> None:
        if self._leader is not None:
            self._leader.stop()
        if self._reconciler is not None:
            await self._reconciler.close()
        if self._registration is not None:
            self._registration.close()
        self.metrics.close()

    # -- what the agent tells ------------------------------------------------------------------------------------

    def entered(self, command: EnteredCommand) -> None:
        self.metrics.entered(command.generation, _PROTOCOLS.get(command.protocol, "mixed"))
        self._show_override()
        self.slicing.entered()
        if self._leader is not None:
            self._leader.set_leader(command.leader == command.member)

    def fetched(self, stream: Stream, chunk: Chunk, end_offset: int | None) -> None:
        self.metering.fetched(stream, chunk, end_offset)
        self.slicing.fetched(stream, chunk, end_offset)

    def acquired(self, stream: Stream, seconds: float | None) -> None:
        self.metering.acquired(stream, seconds, self.slicing.work_rate_of(stream.partition))
        self.slicing.acquired(stream, seconds)
        log.debug("%s is handed out here from offset %d on", stream.partition, stream.position)

    def released(self, partition: Partition, seconds: float) -> None:
        self.metrics.handoff("release", seconds)
        self.metrics.move("done")
        log.debug("%s was handed over in %.1f ms", partition, seconds * 1000)

    def lost(self, stream: Stream) -> None:
        self.metering.lost(stream)
        self.slicing.lost(stream)

    def sought(self, stream: Stream, offset: int) -> None:
        self.metering.sought(stream, offset)

    def paused(self, stream: Stream, paused: bool) -> None:
        self.metering.paused(stream, paused)

    def heartbeat(self, sent_at: float) -> None:
        self.metrics.heartbeat_age(boot_time() - sent_at)

    def commit_answered(self, codes: Collection[int]) -> None:
        failure = failure_of(codes)
        if failure is not None:
            self.metrics.commit_failed(failure.value)

    def read(self, record: Record) -> None:
        if self._leader is not None and isinstance(record, HelloRecord):
            self._leader.instances.hear(record.member, record.instance, record.process)
        if isinstance(record, LoadRecord):
            self.slicing.loaded(record)
            if self._ended_pods is not None:
                self._ended_pods.note_load(record)
        elif isinstance(record, PromiseRecord):
            self.slicing.promised(record)
        elif isinstance(record, ReleaseRecord):
            self.slicing.released(record.key, record.target)
        if isinstance(record, LeavingRecord | PlanRecord):
            log.debug("read %s", record)
        elif isinstance(record, ManualOverrideRecord):
            self._show_override()

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        self.metering.meter.clock_offset(seconds, round_trip_seconds)

    def count(self, what: ProtocolCount, partition: Partition | None) -> None:
        if what.severity is Severity.MOVE:
            self.metrics.move(what.outcome)
        elif what.severity is Severity.SLICE:
            self.metrics.move(what.outcome, slice_=True)
        elif what.severity is Severity.ERROR:
            self.error(what.label)

    def error(self, where: str) -> None:
        self._errors[where] += 1
        self.metrics.agent_error(where)

    def scaled(self, request: ScaleRequest, outcome: ScaleOutcome) -> None:
        self.metrics.scaler_request(outcome.answer.value)

    def _show_override(self) -> None:
        """Show the command line's order as this member has read it, or was told of it with the assignment."""
        order = self._agent.snapshot().manual_override if self._agent is not None else None
        self.metrics.manual_override(order.action if order is not None and order.action != "resume" else None)
