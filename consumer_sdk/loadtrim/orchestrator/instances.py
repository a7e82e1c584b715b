"""The input and output of the local orchestrator: options, events, instances."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtrim_agent.common.errors import LoadtrimError

from .supervisor import Phase

__all__ = [
    "CommandNotFoundError",
    "EventKind",
    "InstanceInfo",
    "LogDirectoryError",
    "LogDirectoryTakenError",
    "OrchestratorEvent",
    "OrchestratorOptions",
]


class CommandNotFoundError(LoadtrimError):
    """The command to run is not there: the caller is wrong. The command line exits with 2."""


class LogDirectoryError(LoadtrimError):
    """No directory for the instances' logs can be made, so nothing is started."""


class LogDirectoryTakenError(LogDirectoryError):
    """Another orchestrator keeps its logs in the directory: both would write into files of the same names."""


class EventKind(enum.Enum):
    """The kinds of :class:`OrchestratorEvent`."""

    PLAN = "plan"
    """A plan that asks for something new was accepted."""
    STALE = "stale"
    """A plan older than the newest one was refused."""
    WAITING = "waiting"
    """An instance will be started in a while."""
    DROPPED = "dropped"
    """An instance that waited is not started after all."""
    STARTED = "started"
    STOPPING = "stopping"
    """Asked to end (SIGTERM)."""
    KILLED = "killed"
    """SIGKILL: it did not end in time, or everything was to end at once."""
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorEvent:
    """Something happened to an instance, or a plan came in."""

    at: float
    """Seconds since the epoch."""
    kind: EventKind
    text: str
    """In words, without the instance's name."""
    instance: str = ""
    process_id: int | None = None
    exit_code: int | None = None
    """With EXITED: negative for a signal; None: it could not be started."""
    start: str = ""
    """With EXITED: :func:`~loadtrim_agent.common.host.start_mark` of the process; empty: it could not be started."""

    @property
    def words(self) -> str:
        """The event as a sentence."""
        return f"{self.instance} {self.text}" if self.instance else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorOptions:
    """The way in which a command is run. Durations in seconds."""

    replicas: int = 1
    """Wanted until the first plan."""
    name: str = "replica"
    """Instances are called ``name-1``, ``name-2``, ... and never by the same name twice."""
    replicas_min: int | None = None
    """The least until the first plan. Passed on as ``LOADTRIM_MIN_REPLICAS``, which plans keep unless forced."""
    replicas_max: int | None = None
    """The most, whatever a plan asks for. Passed on as ``LOADTRIM_MAX_REPLICAS``."""
    startup_delay_seconds: float = 0.0
    """Waited before every start but the first ones."""
    stop_seconds: float | None = None
    """From SIGTERM to SIGKILL; None: ``LOADTRIM_DRAIN_SECONDS`` (20), ``LOADTRIM_EXIT_SECONDS`` (5) and 5 s more."""
    surplus_seconds: float = 30.0
    """An instance more than wanted that no plan names is ended after this time."""
    backoff_seconds: float = 0.5
    """First pause before an instance that ended by itself is started again; doubles up to 30 s."""
    orphan_seconds: float = 3.0
    """The grace when the orchestrator itself was killed: from the instances' SIGTERM to their SIGKILL."""
    env: Mapping[str, str] | None = None
    """Environment of the instances before ``LOADTRIM_...`` is added; None: this process's."""
    directory: Path | None = None
    """The directory in which they run; None: this one."""
    log_directory: Path | None = None
    """One file per instance, appended to and never rotated. No other orchestrator may use it at the same time.
    None: a new temporary directory (none is made when lines go to ``on_line``)."""
    on_line: Callable[[str, str], None] | None = None
    """Called with (instance, line) for what instances print; None: it goes to the log files only."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.name):
            raise ValueError(
                f"instances cannot be called {self.name!r}: letters, digits, . _ and - name their logs too"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInfo:
    """One instance as it is now."""

    name: str
    phase: Phase
    asked_at: float
    """Seconds since the epoch."""
    started_at: float | None = None
    process_id: int | None = None
    due_at: float | None = None
    """WAITING: when it starts; STOPPING: when it is killed. Seconds since the epoch."""
    log: Path | None = None
    failures: int = 0
    """The number of starts in a row that ended by themselves within 10 s."""
