"""What the agent's parts are set to."""

from __future__ import annotations

import socket
from typing import Annotated, Literal

import msgspec

from loadtrim_agent.wire.topic_names import BASELINE_TOPIC

__all__ = ["Count", "Mode", "Positive", "RunOptions", "ScalerName", "Share"]

Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0.5, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Mode = Literal["active", "shadow"]
ScalerName = Literal["none", "webhook", "kubernetes"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the agent works by. :class:`loadtrim.Settings` adds those of the consumer, reads the
    environment and checks ranges. Durations in seconds."""

    mode: Mode = "active"
    """``shadow``: plans are made, logged and counted; nothing is scaled."""
    sla_seconds: Positive = 1.0
    """The objective W: from a record's timestamp until it is done."""
    sla_share: Share = 0.999
    """Share of the records that must meet the objective."""
    catchup_seconds: Positive = 300.0
    """A backlog that is already late is to be worked off within this time."""
    min_replicas: Count = 1
    max_replicas: Count | None = None
    """None: as many as there are partitions."""
    policy: str = "objective"
    packer: str = "trim"
    monitor: str = "reports"
    """Where arrival rates come from (:class:`~loadtrim_agent.planning.rate_source.MonitorName`)."""
    decision_seconds: Positive = 1.0
    report_seconds: Positive = 1.0
    concurrency: Positive = 1.0
    """Busy seconds per second that this member can give."""
    instance: str = ""
    """What the orchestrator calls this process; empty: the host's name."""
    instance_type: str = ""
    """Members of one type have one speed."""
    scaler: ScalerName = "none"
    scaler_url: str = ""
    scaler_token: str = ""
    http: str = "127.0.0.1:0"
    """Address of /metrics, /healthz, /readyz, /status; port 0: any free one; ``off``."""
    time_zone: str = "UTC"
    """IANA name of the zone whose weeks baselines follow that do not name theirs."""
    baseline_topic: str = BASELINE_TOPIC
    requested_at: float | None = None
    """When the orchestrator was asked for this instance, seconds since the epoch (``loadtrim up`` sets it): the start
    of the measured start-up time; else the process's start."""

    @property
    def instance_name(self) -> str:
        return self.instance or socket.gethostname()
