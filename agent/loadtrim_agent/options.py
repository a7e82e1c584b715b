"""What the agent's parts are set to: the settings of the environment, without their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RunOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """See :class:`loadtrim.Settings` for meaning and ranges; durations in seconds."""

    mode: str = "active"
    sla_seconds: float = 1.0
    sla_share: float = 0.999
    catchup_seconds: float = 300.0
    min_replicas: int = 1
    max_replicas: int | None = None
    policy: str = "objective"
    packer: str = "trim"
    decision_seconds: float = 1.0
    report_seconds: float = 1.0
    concurrency: float = 1.0
    instance: str = ""
    instance_type: str = ""
    scaler: str = "none"
    scaler_url: str = ""
    scaler_token: str = ""
    http: str = "127.0.0.1:0"
    requested_at: float | None = None
    """When the orchestrator was asked for this instance, seconds since the epoch."""
    shown: Mapping[str, object] = field(default_factory=dict)
    """All settings by name, for ``/status``."""
