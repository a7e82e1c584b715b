"""Value types shared by the whole core."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["InvariantError", "LoadtrimError", "Partition"]


class Partition(NamedTuple):
    """One partition of one topic.

    Equal to, and hashed like, ``aiokafka.TopicPartition`` (both are plain tuples), so the shell passes either.
    Sorting by it is the order in which every decision of the core looks at partitions.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LoadtrimError(Exception):
    """Root of the errors that loadtrim raises itself. Kafka's own errors are raised as aiokafka raises them."""


class InvariantError(LoadtrimError):
    """The agent found its own state contradicting itself.

    Caught by the agent's shell: it stops deciding and releasing, counts it
    (``loadtrim_agent_errors_total{where="invariant"}``) and lets the host consumer go on.
    """
