"""One run: the service under a local orchestrator, a load, and everything that is written down about both.

:func:`run` is what the demo, its tests and benchmarks share. It leaves a directory from which
:mod:`demo.report` makes report and picture, also later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from demo.follow import Follower
from demo.journal import SupervisorJournal, read_run
from demo.load import LoadOptions, LoadRates, Progress, TooLateError, play
from demo.report import CONTROL_FILE, SETTING_FILE, Replica, Report, Setting, make_report
from demo.telemetry import control_topic_ends, fold, read_control_topic, save_entries
from loadtrim import Settings
from loadtrim.observer.control_topic import topic_of
from loadtrim.orchestrator.instances import EventKind, OrchestratorEvent, OrchestratorOptions
from loadtrim.orchestrator.orchestrator import LocalOrchestrator
from loadtrim_agent.common.settings import DEFAULTS
from payments.clients import KIP_848, described

__all__ = ["Live", "RunFailedError", "RunOptions", "check_names", "run"]

SERVICE = Path(__file__).resolve().parents[1] / "payments" / "service.py"
GROUP = "payments-service"
POLL_SECONDS = 0.1
START_FAILURES_MAX = 3


class RunFailedError(Exception):
    """The run did not come to its end. The message says what happened and where to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What to run. Durations in seconds."""

    bootstrap: str
    topic: str
    rates: LoadRates
    shares: tuple[float, ...]
    directory: Path
    """Of the run: journals, logs, setting, control topic. It must be empty or not there."""
    group: str = GROUP
    even: bool = False
    objective_seconds: float = 0.5
    objective_share: float = DEFAULTS.sla_share
    busy_seconds: float = 0.0059
    policy: str = ""
    """Empty: the agent's default."""
    client: str = "loadtrim"
    service: Path = SERVICE
    """What is run: it writes journals and takes the variables of examples/payments/service.py."""
    events: Callable[[str, float], tuple[int, bytes]] | None = None
    """What is sent; None: payments (see ``LoadOptions``)."""
    replicas: int = 1
    """At the start; with clients other than ``loadtrim``, nobody asks for more, but ``replicas_at``."""
    replicas_at: tuple[tuple[float, int], ...] = ()
    """(seconds of the load, replicas from then on): who scales where no leader does."""
    replicas_max: int | None = None
    """None: the number of partitions."""
    startup_delay_seconds: float = 0.0
    begin_at: float | None = None
    """When the load begins, seconds since the epoch; None: as soon as the group is ready."""
    ready_seconds: float = 60.0
    """Longest wait for the group's first members."""
    finish_seconds: float = 60.0
    """Longest wait, after the load, for the last record to be done."""
    comparable: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    """More for the service's environment."""


@dataclass(slots=True)
class Live:
    """The run as it is now, for whoever shows it."""

    options: RunOptions
    orchestrator: LocalOrchestrator
    progress: Progress
    follower: Follower
    events: list[OrchestratorEvent]
    phase: str = "starting"


@dataclass(slots=True)
class _Recorder:
    """Notes the life of every replica, for the report and for the checker."""

    supervisor: SupervisorJournal
    events: list[OrchestratorEvent] = field(default_factory=list)
    ended: list[Replica] = field(default_factory=list)
    running: dict[str, Replica] = field(default_factory=dict)
    asked_at: Callable[[str], float | None] = lambda _: None

    def __call__(self, event: OrchestratorEvent) -> None:
        self.events.append(event)
        match event.kind:
            case EventKind.WAITING:
                self.running[event.instance] = Replica(name=event.instance, asked_at=event.at)
            case EventKind.STARTED:
                waited = self.running.get(event.instance)
                asked_at = waited.asked_at if waited else self.asked_at(event.instance)
                self.running[event.instance] = Replica(
                    name=event.instance, asked_at=event.at if asked_at is None else asked_at, started_at=event.at
                )
            case EventKind.EXITED | EventKind.DROPPED:
                if event.process_id is not None:
                    self.supervisor.exited(event.process_id)
                replica = self.running.pop(event.instance, Replica(name=event.instance, asked_at=event.at))
                self.ended.append(msgspec.structs.replace(replica, ended_at=event.at))

    def replicas(self) -> tuple[Replica, ...]:
        return tuple(sorted([*self.ended, *self.running.values()], key=lambda r: (r.asked_at, r.name)))


def check_names(options: RunOptions) -> None:
    """Look the policy and the packer up as the service will, before anything is started for them.

    Raises:
        ValueError: one of them cannot be used; the message has the nearest name.
    """
    env = _environment(options)
    Settings.from_env({name: env[name] for name in ("LOADTRIM_POLICY", "LOADTRIM_PACKER") if name in env})


async def run(
    options: RunOptions, show: Callable[[Live], contextlib.AbstractAsyncContextManager[None]] | None = None
) -> Report:
    """Start the service, play the load, wait until everything is done, stop, and sum up.

    Args:
        options: see there.
        show: a context entered while it runs, for a live view.

    Returns:
        The report. Records that were not done within ``finish_seconds`` are in it as left over or lost.

    Raises:
        RunFailedError: the group did not come up, or not before ``begin_at``.
    """
    options.directory.mkdir(parents=True, exist_ok=True)
    if any(options.directory.glob("*.journal")):
        raise RunFailedError(f"{options.directory} has the journals of another run; remove it or name another one")
    # A group may have a history, which is no part of the run.
    before = await control_topic_ends(options.bootstrap, topic_of(options.group))
    recorder = _Recorder(SupervisorJournal(options.directory))
    follower = Follower(options.directory)
    progress = Progress(options.rates.records, len(options.rates.per_second))
    command = [sys.executable, str(options.service)]
    async with LocalOrchestrator(command, _orchestrator_options(options), recorder) as up:
        recorder.asked_at = lambda name: next((each.asked_at for each in up.instances if each.name == name), None)
        live = Live(options, up, progress, follower, recorder.events)
        async with show(live) if show else contextlib.nullcontext():
            await _until_ready(live)
            live.phase = "load"
            await _play_and_follow(options, live)
            live.phase = "stopping"
    return await _sum_up(options, recorder, follower, progress, before)


def _environment(options: RunOptions) -> dict[str, str]:
    """The service's."""
    return {
        **os.environ,
        "LOADTRIM_SLA_SECONDS": f"{options.objective_seconds:g}",
        "LOADTRIM_SLA_SHARE": f"{options.objective_share:g}",
        "PAYMENTS_BOOTSTRAP": options.bootstrap,
        "PAYMENTS_TOPIC": options.topic,
        "PAYMENTS_GROUP": options.group,
        "PAYMENTS_BUSY_SECONDS": f"{options.busy_seconds:g}",
        "PAYMENTS_CLIENT": options.client,
        "PAYMENTS_JOURNAL": str(options.directory.resolve()),
        **({"LOADTRIM_POLICY": options.policy} if options.policy else {}),
        **options.env,
    }


def _orchestrator_options(options: RunOptions) -> OrchestratorOptions:
    return OrchestratorOptions(
        replicas=options.replicas,
        name="payments",
        replicas_max=options.replicas_max or len(options.shares),
        startup_delay_seconds=options.startup_delay_seconds,
        env=_environment(options),
        log_directory=options.directory / "logs",
    )


@contextlib.asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _until_ready(live: Live) -> None:
    """Wait until Kafka itself says that the group is stable with everybody in it, and all partitions taken up."""
    options, up = live.options, live.orchestrator
    deadline = time.monotonic() + options.ready_seconds
    async with _admin(options.bootstrap) as admin:
        while True:
            state, members = await _group_state(admin, options)
            if state == "Stable" and members >= options.replicas and await _taken_up(admin, options):
                return
            if up.failing(START_FAILURES_MAX):
                ended = next(event for event in reversed(live.events) if event.kind is EventKind.EXITED)
                raise RunFailedError(f"the service does not start: {ended.words}; see {up.log_directory}")
            if time.monotonic() > deadline:
                raise RunFailedError(
                    f"after {options.ready_seconds:g} s the group {options.group} is {state or 'unknown'} with "
                    f"{members} members instead of {options.replicas}; see {up.log_directory}"
                )
            await asyncio.sleep(POLL_SECONDS)


async def _taken_up(admin: AIOKafkaAdminClient, options: RunOptions) -> bool:
    """Whether every partition has an owner that is ready: loadtrim commits where it will start before it starts."""
    if options.client != "loadtrim":
        return True
    committed = await admin.list_consumer_group_offsets(options.group)
    ready = [tp for tp, found in committed.items() if tp.topic == options.topic and found.offset >= 0]
    return len(ready) == len(options.shares)


async def _group_state(admin: AIOKafkaAdminClient, options: RunOptions) -> tuple[str, int]:
    if options.client == KIP_848:
        return await asyncio.to_thread(described, options.bootstrap, options.group)
    try:
        (answer,) = await admin.describe_consumer_groups([options.group])
    except KafkaError:
        return "", 0  # a fresh broker makes its offsets topic first
    _code, _group, state, _type, _protocol, members, *_ = answer.groups[0]
    return state, len(members)


async def _play_and_follow(options: RunOptions, live: Live) -> None:
    load = LoadOptions(
        bootstrap=options.bootstrap,
        topic=options.topic,
        rates=options.rates,
        shares=options.shares,
        journal=options.directory,
        even=options.even,
        events=options.events,
        begin_at=options.begin_at,
    )
    due = deque(options.replicas_at)
    playing = asyncio.create_task(play(load, live.progress), name="load")
    try:
        while not playing.done():
            await asyncio.wait({playing}, timeout=POLL_SECONDS)
            live.follower.poll()
            while due and live.progress.started_ns is not None and due[0][0] <= live.progress.second:
                live.orchestrator.scale(due.popleft()[1])
        try:
            await playing
        except TooLateError as error:
            raise RunFailedError(str(error)) from error
        live.phase = "finishing"
        deadline = time.monotonic() + options.finish_seconds
        while len(live.follower.done) < live.progress.acknowledged and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            live.follower.poll()
    finally:
        playing.cancel()


async def _sum_up(
    options: RunOptions, recorder: _Recorder, follower: Follower, progress: Progress, before: Mapping[int, int]
) -> Report:
    await _note_committed(options, recorder.supervisor)
    recorder.supervisor.close()
    control = await read_control_topic(options.bootstrap, topic_of(options.group), before)
    save_entries(options.directory / CONTROL_FILE, control)
    journals = read_run(options.directory)
    epoch_offset = journals.epoch_offset_ns / 1e9
    assert progress.started_ns is not None
    setting = Setting(
        source=options.rates.source,
        per_second=options.rates.per_second,
        partitions=len(options.shares),
        shares=options.shares,
        even=options.even,
        objective_seconds=options.objective_seconds,
        objective_share=options.objective_share,
        busy_seconds=options.busy_seconds,
        policy=options.policy,
        client=options.client,
        started_at=progress.started_ns / 1e9 + epoch_offset,
        ended_at=max(follower.done_last_ns, progress.started_ns) / 1e9 + epoch_offset,
        replicas=recorder.replicas(),
        behind_seconds_max=progress.behind_seconds_max,
        comparable=options.comparable,
    )
    (options.directory / SETTING_FILE).write_bytes(msgspec.json.encode(setting))
    return make_report(journals, setting, fold(control))


async def _note_committed(options: RunOptions, supervisor: SupervisorJournal) -> None:
    """Ask the broker for the group's committed offsets: what is above them is not lost."""
    async with _admin(options.bootstrap) as admin:
        for tp, committed in sorted((await admin.list_consumer_group_offsets(options.group)).items()):
            if tp.topic == options.topic and committed.offset >= 0:
                supervisor.committed(tp.topic, tp.partition, committed.offset)
