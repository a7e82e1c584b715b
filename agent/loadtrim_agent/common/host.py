"""The name of this process where the user gives it none."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from .settings import AgentSettings

__all__ = ["instance_name"]

CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
"""Source: Docker and Podman put these into every container."""
CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "ECS_CONTAINER_METADATA_URI_V4", "container")
"""Source: set by Kubernetes, by Amazon ECS, and by Podman and systemd-nspawn."""


def instance_name(settings: AgentSettings) -> str:
    """Return the name of the instance: the setting, else the container's host name, else host name and process id.

    A container has a host name of its own, by which its orchestrator knows it. Processes of one host would share theirs
    and count as one replica.
    """
    if settings.instance:
        return settings.instance
    host = socket.gethostname()
    return host if _is_container() else f"{host}-{os.getpid()}"


def _is_container() -> bool:
    """Return whether this process runs in a container; where nothing else tells, the first process is the user's."""
    return (
        os.getpid() == 1
        or any(name in os.environ for name in CONTAINER_VARIABLES)
        or any(Path(name).exists() for name in CONTAINER_FILES)
    )
