"""An orchestrator knows of a process that is to go by its readiness probe, and not before it has asked often enough."""

from __future__ import annotations

from typing import Final

from loadtrim_agent.common.clock import boot_time

__all__ = ["Probes"]

UNREADY_PROBES: Final = 3
"""Answers of 503 in a row after which an orchestrator has seen the process not ready. Source: the
``failureThreshold`` of a Kubernetes probe that sets none."""
UNREADY_SECONDS: Final = 1.0
"""From the last of these answers until its controllers know. Measured: 22 to 188 ms where the machine is idle; chosen:
five times that."""


class Probes:
    """The answers that readiness probes got. The server's threads write; a torn count is one probe less or more.

    Args:
        in_pod: only a kubelet's probes count, from the first on.
    """

    def __init__(self, *, in_pod: bool = False) -> None:
        self._count = 0
        self._kubelet = in_pod
        """Flag of a process that a kubelet asks: what others ask as well tells its controllers nothing."""
        self._since: float | None = None
        """Time (boot clock) of the answer by which an orchestrator has seen it; None: there were fewer in a row."""

    def answered(self, *, drained: bool, kubelet: bool = False) -> None:
        """A probe, of a kubelet or of anybody else, was told that the process may go, or not."""
        self._kubelet = self._kubelet or kubelet
        if self._kubelet and not kubelet:
            return
        self._count = self._count + 1 if drained else 0
        if self._count < UNREADY_PROBES:
            self._since = None
        elif self._since is None:
            self._since = boot_time()

    @property
    def known_unready(self) -> bool:
        """Return whether an orchestrator knows."""
        since = self._since
        return since is not None and boot_time() - since >= UNREADY_SECONDS
