"""The names of this process: what the orchestrator calls it, and what tells it from its siblings."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from functools import lru_cache
from pathlib import Path

from .settings import AgentSettings

__all__ = ["KUBERNETES", "REQUESTED_AT", "instance_name", "process_id", "process_name", "start_mark", "start_of"]

REQUESTED_AT = "LOADTRIM_REQUESTED_AT"
"""The setting ``requested_at``, as an orchestrator writes it into the environment."""

KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""Source: Kubernetes sets it in every container of a pod."""
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
"""Source: Docker and Podman put these into every container."""
CONTAINER_VARIABLES = (KUBERNETES, "ECS_CONTAINER_METADATA_URI_V4", "container")
"""Source: set by Kubernetes, by Amazon ECS, and by Podman."""
CONTAINER_GROUPS = re.compile(r"/(docker|libpod|crio|cri-containerd|nerdctl|garden|ecs)[-/]|/kubepods")
"""Source: names that container runtimes give to control groups (cgroup v1, and v2 without a namespace of its own)."""
CONTROL_GROUPS = Path("/proc/self/cgroup")
SYSTEMD = Path("/run/systemd/system")
"""Source: sd_booted(3): it is there exactly when systemd runs all else, as on a host."""


def instance_name(settings: AgentSettings) -> str:
    """Return the name of the instance: the setting, else the container's host name, else host name and process id.

    A container has a host name of its own, by which its orchestrator knows it. Processes of one host would share theirs
    and count as one replica.
    """
    if settings.instance:
        return settings.instance
    host = socket.gethostname()
    return host if _is_container() else f"{host}-{os.getpid()}"


def process_name() -> str:
    """Return the process id and some letters that no other process has, a fork of this one included.

    Where an orchestrator said when it asked for the process, :func:`start_mark` of that follows.
    """
    return _process_name(os.getpid())


def start_mark(requested_at: str) -> str:
    """Return what tells a start from all others, given ``LOADTRIM_REQUESTED_AT`` as the process has it."""
    return hashlib.sha256(requested_at.encode()).hexdigest()[:12]


def start_of(name: str) -> str:
    """Return the :func:`start_mark` in a :func:`process_name`; empty: there is none."""
    return name.partition("-")[2].partition("-")[2]


def process_id(name: str) -> str:
    """Return the process id in a :func:`process_name`."""
    return name.partition("-")[0]


@lru_cache(maxsize=1)
def _process_name(pid: int) -> str:
    # Process ids repeat: in two containers both are often 1.
    name, requested_at = f"{pid}-{os.urandom(3).hex()}", os.environ.get(REQUESTED_AT)
    return f"{name}-{start_mark(requested_at)}" if requested_at else name


def _is_container() -> bool:
    """Return whether an orchestrator starts and ends what runs under this host name as a whole.

    One that systemd has booted (LXC, WSL, systemd-nspawn) is a host: its services come and go one by one.
    """
    if KUBERNETES in os.environ:
        return True
    if SYSTEMD.exists():
        return False
    return (
        # Where nothing else tells: the first process of a host is never the user's.
        os.getpid() == 1
        or any(name in os.environ for name in CONTAINER_VARIABLES)
        or any(Path(name).exists() for name in CONTAINER_FILES)
        or CONTAINER_GROUPS.search(_control_groups()) is not None
    )


def _control_groups() -> str:
    try:
        return CONTROL_GROUPS.read_text(errors="replace")
    except OSError:
        return ""
