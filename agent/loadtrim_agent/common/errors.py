"""The root of loadtrim's errors."""

from __future__ import annotations

__all__ = ["InvariantError", "LoadtrimError"]


class LoadtrimError(Exception):
    """Root of the errors that loadtrim raises itself. Kafka's own errors are raised as aiokafka raises them."""


class InvariantError(LoadtrimError):
    """The agent found its own state contradicting itself.

    Caught by the agent's shell: it stops deciding and releasing, counts it
    (``loadtrim_agent_errors_total{where="invariant"}``) and lets the host consumer go on.
    """
