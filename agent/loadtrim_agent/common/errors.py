"""The root of loadtrim's errors."""

from __future__ import annotations

__all__ = ["InvariantError", "LoadtrimError"]


class LoadtrimError(Exception):
    """Root of the errors that loadtrim raises itself. Kafka's own errors are raised as aiokafka raises them."""


class InvariantError(LoadtrimError):
    """The agent found its own state contradicting itself.

    Caught by the agent's shell: it stops deciding and releasing, counts it
    (``loadtrim_agent_errors_total{where="invariant"}``) and lets the host consumer go on.

    Attributes:
        what: the contradiction.
        item: what it is about: a partition, or None for the membership.
        history: what had happened to it, oldest first, a line each. The error's text ends with it.
    """

    def __init__(self, what: str, *, item: object = None, history: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.item = item
        self.history = history

    def __str__(self) -> str:
        return "\n  ".join((self.what, *self.history))
