"""The leader's shell: hears the members' reports, lets the planner decide, tells the members and the orchestrator.

Every member has one; it works only while its member leads a group that speaks ``loadtrim``. What breaks here stops
planning and scaling, never consuming (I8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition
from msgspec import structs

from loadtrim_agent.common.clock import boot_time, seconds_to_beat, wall_time
from loadtrim_agent.common.daemon_call import call_in_daemon
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.local_week import LocalWeek
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import may_pause
from loadtrim_agent.common.tasks import AgentTasks
from loadtrim_agent.kafka.baselines import BaselineReader
from loadtrim_agent.kafka.connections import UNREACHABLE
from loadtrim_agent.kafka.control_log import ControlLog, TelemetryEntry, TelemetryTail
from loadtrim_agent.kafka.pool import ConnectionPool
from loadtrim_agent.kafka.rate_sources import make_rate_source
from loadtrim_agent.observability.metrics import Metrics
from loadtrim_agent.observability.text import decision_line
from loadtrim_agent.planning.baseline import Ignored
from loadtrim_agent.planning.inputs import most_replicas
from loadtrim_agent.planning.planner import scale_request
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import DECISION_PHASE, GroupState, MemberState, PlanConfig, Rates
from loadtrim_agent.protocol.events import WeightsEvent
from loadtrim_agent.wire.baseline_records import Baselines, TopicCurve
from loadtrim_agent.wire.ownership_records import PlanRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

from .broker_rates import BrokerRates
from .instances import Instances
from .ports import LedGroup
from .request import request_of
from .scaling.reconciler import ScaleReconciler
from .turns import taking_turns

__all__ = ["LeaderLoop"]

log = logging.getLogger("loadtrim")

REPLAY_SECONDS = 300.0
"""How much telemetry a new leader reads, so that a leader's death forgets nothing."""
LISTEN_SECONDS_MAX = 3.0
"""How long a decision waits for what was reported, the first one for all of that; what is left is taken in before the
next. It takes milliseconds."""
BASELINE_SECONDS_MAX = 3.0
"""The same for what the history expects, which is read from another topic beside it."""
THINKING_SECONDS_MAX = 1.0
"""A plan that takes longer is complained about."""
SLOW = (
    "A plan took %.1f s: the group went on as it was meanwhile. Fewer partitions or members, or another packer "
    "(LOADTRIM_PACKER), plan faster. Said once until plans have been quick for a minute, counted from now on."
)
IN_FLIGHT_SECONDS = 5.0
"""An advised move that has not happened after this long is planned anew."""
UNOWNED_LOOK_SECONDS = 5.0
"""The broker is asked this often about partitions without an owner. Chosen."""
UNOWNED_SECONDS_MAX = 1.0
"""A decision waits for this long, then it counts what was known before. Chosen: it takes milliseconds."""
TELL_SECONDS_MAX = 2.0
"""The next decision waits for this long until a record of this one is in the control topic. It takes milliseconds;
where a broker is away it is tried for 40 s. Chosen."""
CLOCK_STEP_SECONDS = 5.0
"""A wall clock that moves by more than this against the boot clock was set. Chosen: above what is corrected slowly."""
CLOCK_PAUSE_SECONDS = 3.0
"""Planning begins again after this. Chosen: by then the broker's clock was compared with it anew."""


class _Advised(NamedTuple):
    """A move that members were told to make."""

    source: str
    target: str
    at: float
    """Boot clock."""


class PlannerThread:
    """The planner in a thread of its own, so that a slow plan costs neither heartbeats nor handoffs.

    Records that come while it thinks wait for the next decision.
    """

    def __init__(self, config: PlanConfig) -> None:
        self._planner = make_planner(config)
        self._pending: list[TelemetryEntry] = []
        self._counted: Counter[str] = Counter()
        """State of the counters at the last call."""
        self._broken = 0
        """Records at which the planner broke. Written by the planner's thread only."""

    def observe(self, entry: TelemetryEntry) -> None:
        """Take in a report, or a decision of an earlier leader."""
        self._pending.append(entry)

    def left_out(self) -> Counter[str]:
        """Return what counted for nothing since the last call, by the names of the error counter."""
        now = Counter(planner_record=self._broken)
        now.update({f"report_{why}": count for why, count in self._planner.history.left_out.items()})
        new, self._counted = now - self._counted, now
        return new

    async def decide(self, now: float, state: GroupState) -> DecisionRecord:
        """Make one decision at a time; wait for it however long it takes."""
        pending, self._pending = self._pending, list[TelemetryEntry]()
        return await call_in_daemon(lambda: self._decide(pending, now, state), "planner")

    def _decide(self, pending: list[TelemetryEntry], now: float, state: GroupState) -> DecisionRecord:
        with taking_turns():
            for entry in pending:
                may_pause()
                self._take_in(entry)
            return self._planner.decide(now, state)

    def _take_in(self, entry: TelemetryEntry) -> None:
        try:
            self._take(entry)
        except Exception:
            # One record must not cost the group its plans: the next leader would read it again, too.
            self._broken += 1
            log.debug("The planner broke at a record, which is skipped: %r", entry.record, exc_info=True)

    def _take(self, entry: TelemetryEntry) -> None:
        if isinstance(entry.record, ReportRecord):
            self._planner.observe(entry.record, entry.received_at, entry.logged_at)
        elif isinstance(entry.record, DecisionRecord):
            self._planner.remember(entry.record)


class GroupView:
    """The planner is told all of this about the group, besides the reports themselves.

    Args:
        group: the group as this member's agent knows it.
        instances: the members' instances.
    """

    def __init__(self, group: LedGroup, instances: Instances) -> None:
        self._group = group
        self.instances = instances
        self._joined_at: dict[str, float] = {}
        self._in_flight: dict[Partition, _Advised] = {}
        self.requested: int | None = None
        """Replicas asked for last; None: none in this leadership."""
        self.standing: int | None = None
        """Replicas that the scaler leaves as somebody else set them; None: there are none."""
        self._unowned: dict[Partition, int] = {}
        """Records that wait in partitions without an owner."""
        self._unowned_looked_at = 0.0
        self.weights: dict[Partition, float] = {}
        """Work per partition, seconds per second."""

    def observe(self, report: ReportRecord) -> None:
        """Take in a member's report."""
        self.instances.hear(report.member, report.instance, report.process)
        self.instances.hear_readiness(report.instance, unready=report.unready)
        self._weigh(report)

    def advised(self, decision: DecisionRecord) -> None:
        """The members are told to make these moves."""
        for move in decision.moves:
            self._in_flight[Partition(move.topic, move.partition)] = _Advised(move.source, move.target, boot_time())

    def generation_changed(self) -> None:
        """Advice of the generation before does not count any more."""
        self._in_flight.clear()

    def clock_set(self) -> None:
        """Take the members to have joined now, by the clock that was set."""
        self._joined_at.clear()

    def _weigh(self, report: ReportRecord) -> None:
        """Keep work per partition as reported last, for placing unclaimed partitions at the next rebalance."""
        for p in report.partitions:
            if p.cost_mean is not None and report.interval > 0:
                self.weights[Partition(p.topic, p.partition)] = p.arrived / report.interval * p.cost_mean

    def state(self, expected: Mapping[str, TopicCurve], startup: float | None, rates: Rates | None) -> GroupState:
        """Return the group as it is now, for the planner.

        Args:
            expected: topic -> what the history expects.
            startup: start-up time that the history tells of, seconds; None: of none.
            rates: arrival rates of a rate source; None: the reports tell them.
        """
        group = self._group.snapshot()
        entries = group.assignment.members if group.assignment is not None else {}
        now = wall_time()
        self._joined_at = {m: self._joined_at.get(m, now) for m in entries}
        owners = self.owners()
        # Names in reports are anybody's: what is no part of the group would pile up.
        self.instances.forget_others(entries.keys())
        self.weights = {p: weight for p, weight in self.weights.items() if p in owners}
        # What its owner has given to another member by its own decision does not come to the advised one.
        self._in_flight = {
            p: move
            for p, move in self._in_flight.items()
            if owners.get(p) == move.source and move.target in entries and boot_time() - move.at < IN_FLIGHT_SECONDS
        }
        promised = {p: promise.target for p, promise in group.slices.promises.items()}
        advised = {p: move.target for p, move in self._in_flight.items()}
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
            in_flight=dict(sorted((advised | promised).items())),
            manual_override=group.manual_override,
            replicas_requested=self.requested,
            replicas_standing=self.standing,
            rates=rates,
            expected=expected,
            startup_expected_seconds=startup,
        )

    def _instance_of(self, member: str) -> str | None:
        return self.instances.own if member == self._group.snapshot().member else self.instances.of(member)

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
            try:
                async with asyncio.timeout(UNOWNED_SECONDS_MAX):
                    self._unowned = await self._waiting(unowned)
            except UNREACHABLE as error:
                log.debug("What waits in partitions without an owner is not known (%r); deciding without.", error)

    async def _waiting(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Ask the broker how many records wait in these.

        Raises:
            KafkaError, OSError, TimeoutError: it cannot be told now.
        """
        fetched = await self._group.requests.committed(partitions, stable=False)
        if fetched.code:
            raise for_code(fetched.code)(f"committed offsets of {len(partitions)} partitions")
        ends = await self._group.queries.end_offsets([TopicPartition(*p) for p in partitions])
        return {
            p: max(0, int(ends[at]) - offset)
            for p, offset in fetched.offsets.items()
            if offset >= 0 and (at := TopicPartition(*p)) in ends
        }


class LeaderLoop:
    """One member's leadership, on and off.

    Args:
        config: what it is set to.
        pool: connections and their settings, for the baseline topic.
        group: the group as this member's agent knows it.
        instances: the members' instances.
        metrics: where plans are counted.
        reconciler: asks the orchestrator; run and closed by the composition root.
        boundary: counts what broke here.
        tasks: owns the leadership's task.
    """

    def __init__(
        self,
        config: PlanConfig,
        pool: ConnectionPool,
        group: LedGroup,
        instances: Instances,
        metrics: Metrics,
        reconciler: ScaleReconciler,
        boundary: ErrorBoundary,
        tasks: AgentTasks,
    ) -> None:
        self._config = config
        self._pool = pool
        self._group = group
        self._metrics = metrics
        self._reconciler = reconciler
        self._boundary = boundary
        self._tasks = tasks
        self._baselines = Baselines(config.group, LocalWeek(config.time_zone).slots)
        self._view = GroupView(group, instances)
        self._rates = BrokerRates(config, None, boundary)
        self._task: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()
        """Set when a generation begins: members that came or went are planned for without waiting for the next tick."""
        self._victims: tuple[str, ...] | None = None
        """Named in the last plan of this generation that got through; None: there is none."""
        self.last: DecisionRecord | None = None
        self._replay_since = 0.0
        """Telemetry before this (epoch) is not read again: planning broke on it."""

    @property
    def instances(self) -> Instances:
        """The members' instances, as far as they have told them; a member hears before it leads, too."""
        return self._view.instances

    def set_leader(self, named: bool) -> None:
        """A generation began: lead, go on leading, or stop.

        Args:
            named: the group's coordinator names this member its leader. It leads where there is an assignment of ours.
        """
        leads = named and self._group.snapshot().assignment is not None
        self._metrics.leader(leads)
        self._view.generation_changed()
        self._at_once.set()
        # Members drop plans of an older generation, so what was told in one has to be told again.
        self._victims = None
        if leads and self._task is None:
            self.last, self._replay_since = None, 0.0  # of an earlier leadership, which was long ago perhaps
            self._task = self._tasks.spawn_contained(self._guarded(), "leading")
        elif not leads:
            self.stop()

    def stop(self) -> None:
        """Lead no longer. The connections of the leadership are closed by its task, which ends soon."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._metrics.leader(False)
            self._withdraw()

    def _withdraw(self) -> None:
        self._view.requested = None
        self._reconciler.want(None)

    async def _guarded(self) -> None:
        while True:
            try:
                await self._lead()
                await asyncio.sleep(CLOCK_PAUSE_SECONDS)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._boundary.contain(
                    "planning",
                    error,
                    "Planning broke; the group goes on as it is, and planning starts again every 10 s, without what "
                    "was reported until then. Said once for each kind of error, counted from now on.",
                )
                self._replay_since = wall_time()
                await asyncio.sleep(10.0)

    async def _lead(self) -> None:
        """Plan until this member's clock is set: all that the planner knows has its times by that clock."""
        control = self._group.log
        assert control is not None, "no map of ours without the log"
        telemetry = control.telemetry(max(wall_time() - REPLAY_SECONDS, self._replay_since))
        planner = PlannerThread(self._config)
        listen = partial(self._listen, telemetry, planner, decisions=self.last is None)
        if self.last is not None:
            # The members heed no lower sequence, and the policy goes on from what it wanted.
            planner.observe(TelemetryEntry(self.last, self.last.at, replayed=True))
        source = make_rate_source(self._config.monitor, self._group.queries, self._config.decision_seconds)
        self._rates = BrokerRates(self._config, source, self._boundary)
        async with asyncio.TaskGroup() as tasks:
            expecting = asyncio.Event()
            reading = tasks.create_task(self._read_baselines(expecting), name="loadtrim-baselines")
            await listen()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BASELINE_SECONDS_MAX):
                    await expecting.wait()
            await self._decide_while_clock_runs(control, listen, planner)
            reading.cancel()

    async def _listen(self, telemetry: TelemetryTail, planner: PlannerThread, *, decisions: bool = True) -> None:
        """Take in what was reported since the last time, as far as it can be read soon.

        The planner knows how old everything is, and holds where too much is missing.

        Args:
            telemetry: is read on.
            planner: takes it in.
            decisions: of earlier leaders too. Otherwise it goes on from a later one, of this member's own.
        """

        def hear(entry: TelemetryEntry) -> None:
            record = entry.record
            if record.group != self._config.group:
                return
            if isinstance(record, ReportRecord):
                self._view.observe(record)
                planner.observe(entry)
            elif isinstance(record, DecisionRecord) and entry.replayed and decisions:
                planner.observe(entry)

        try:
            async with asyncio.timeout(LISTEN_SECONDS_MAX):
                await telemetry.read(hear)
        except UNREACHABLE as error:
            log.debug("The telemetry could not be read to its end (%r); deciding with what is there.", error)

    async def _read_baselines(self, caught_up: asyncio.Event) -> None:
        """Know what the history expects, for as long as this member leads."""
        try:
            if topic := self._config.baseline_topic:
                reader = BaselineReader(self._pool.settings, topic, self._baselines, self._boundary, self._pool)
                await reader.run(caught_up)
        except Exception as error:
            self._boundary.contain("baselines", error, "Reading baselines broke; the group is planned without them.")
        finally:
            self._baselines.clear()
            caught_up.set()

    async def _decide_while_clock_runs(
        self, control: ControlLog, listen: Callable[[], Awaitable[None]], planner: PlannerThread
    ) -> None:
        set_to = wall_time() - boot_time()
        while True:
            if abs(moved := wall_time() - boot_time() - set_to) > CLOCK_STEP_SECONDS:
                self._clock_set(moved)
                return
            if self._group.snapshot().is_leader:
                await listen()
                await self._view.look_at_unowned()
                await self._rates.look(self._view.owners)
                began = time.perf_counter()
                self._view.standing = self._reconciler.standing
                state = self._view.state(self._expected(), self._baselines.startup_seconds, self._rates.rates)
                decision = await planner.decide(wall_time(), state)
                self._count(planner, decision)
                took = time.perf_counter() - began
                if took > THINKING_SECONDS_MAX:
                    self._boundary.complain("slow_planning", SLOW, took)
                self._metrics.plan(decision.outcome, took)
                if state.generation == self._group.snapshot().generation:
                    await self._act(control, decision, state)
                self._group.feed(WeightsEvent(now=boot_time(), weights=dict(self._view.weights)))
            every = self._config.decision_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds_to_beat(wall_time(), every, DECISION_PHASE * every)):
                    await self._at_once.wait()
            self._at_once.clear()

    def _clock_set(self, moved: float) -> None:
        """Forget what is known by the clock that was set."""
        log.warning(
            "The clock was set by %+.0f s. Planning begins anew with what was reported lately; the group goes on as it "
            "is meanwhile.",
            moved,
        )
        self._view.clock_set()
        if self.last is not None:
            self.last = _without_times(self.last)

    def _expected(self) -> Mapping[str, TopicCurve]:
        """Return what the history expects now; nothing where that cannot be worked out."""
        try:
            return self._baselines.curves(wall_time())
        except Exception:
            log.debug("Baselines cannot be reckoned with; the group is planned without them.", exc_info=True)
            self._boundary.broke("baselines")
            return {}

    def _count(self, planner: PlannerThread, decision: DecisionRecord) -> None:
        """Count what this decision could not use."""
        for where, count in planner.left_out().items():
            for _ in range(count):
                self._boundary.broke(where)
        if decision.baseline is not None and decision.baseline.reason_code == Ignored.UNUSABLE:
            self._boundary.broke("baselines")

    # -- what is done --------------------------------------------------------------------------------------------

    async def _act(self, control: ControlLog, decision: DecisionRecord, state: GroupState) -> None:
        self._log(decision, state)
        self.last = decision
        self._show(decision, state)
        if self._config.asks:
            self._ask(decision, state)
        await self._within_time(lambda: control.publish(decision, sequence=decision.sequence), "publish")
        if self._is_current(decision) and (decision.moves or decision.victims or self._victims != ()):
            # Also where nobody is to go any more: members keep draining until they are told, by an earlier leader too.
            self._view.advised(decision)
            written = await self._within_time(lambda: control.write(_plan_record(decision)), "write-plan")
            if self._is_current(decision):
                self._victims = decision.victims if written else None

    def _is_current(self, decision: DecisionRecord) -> bool:
        """Return whether it is of this generation: members drop plans of an older one."""
        return decision.generation == self._group.snapshot().generation

    async def _within_time(self, write: Callable[[], Awaitable[bool]], name: str) -> bool:
        """Write something, and return whether it is known to be there; the write may go on after this."""
        outcome: list[bool] = []

        async def note() -> None:
            try:
                outcome.append(await write())
            except Exception as error:
                self._boundary.contain(
                    "planning", error, "A decision could not be written (%s); the next one is tried.", name
                )

        task = self._tasks.spawn_contained(note(), name)
        if task is not None:
            try:
                await asyncio.wait({task}, timeout=TELL_SECONDS_MAX)
            except asyncio.CancelledError:
                task.cancel()
                raise
        return outcome == [True]

    def _show(self, decision: DecisionRecord, state: GroupState) -> None:
        self._metrics.replicas("wanted", decision.replicas_wanted)
        self._metrics.replicas("actual", decision.replicas_actual)
        self._metrics.replicas("max", most_replicas(state, self._config))
        self._metrics.unowned(sum(owner is None for owner in state.owners.values()))

    def _ask(self, decision: DecisionRecord, state: GroupState) -> None:
        wish = scale_request(decision, state, self._config)
        if wish.withdrawn:
            self._withdraw()
        if not wish.ask:
            return
        self._view.requested = decision.replicas_wanted
        request, instances = request_of(decision, wish, state, self._config.templated)
        self.instances.stay(request.staying)
        self._reconciler.observed(len(instances), instances)
        self._reconciler.want(request)

    def _log(self, decision: DecisionRecord, state: GroupState) -> None:
        """Log a decision, louder when it differs from the one before in what it wants."""
        repeated = self.last is not None and _gist(decision) == _gist(self.last)
        level = logging.INFO if not repeated and decision.outcome != "none" else logging.DEBUG
        log.log(level, "Plan %d: %s", decision.sequence, decision_line(decision, state.instances))
        for complaint in self.instances.new_complaints(state.members, self._config.templated):
            log.warning("%s: %s", decision.group, complaint)


def _without_times(decision: DecisionRecord) -> DecisionRecord:
    """Return a decision without what it remembers by a clock that was set since: what the policy wanted stays."""
    state = {name: value for name, value in decision.state.items() if name == "wanted"}
    return structs.replace(decision, at=wall_time(), state=state, baseline=None)


def _plan_record(decision: DecisionRecord) -> PlanRecord:
    return PlanRecord(
        group=decision.group,
        member=decision.member,
        at=decision.at,
        generation=decision.generation,
        sequence=decision.sequence,
        moves=decision.moves,
        victims=decision.victims,
    )


def _gist(decision: DecisionRecord) -> tuple[object, ...]:
    return decision.outcome, decision.replicas_wanted, decision.moves, decision.victims
