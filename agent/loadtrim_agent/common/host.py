"""What this process is called where the user gives it no name."""

from __future__ import annotations

import socket

from .settings import AgentSettings

__all__ = ["instance_name"]


def instance_name(settings: AgentSettings) -> str:
    """Return the name of the instance that this process belongs to: the setting, else the host's name."""
    return settings.instance or socket.gethostname()
