"""Errors of a local Kafka: the outside is wrong, the text says what to do."""

from __future__ import annotations

from loadtrim_agent.common.errors import LoadtrimError

__all__ = ["BrokerError", "DistributionError", "LocalKafkaError", "ToolMissingError"]


class LocalKafkaError(LoadtrimError):
    """Root of the errors of a local Kafka. The command line prints it and exits with 1; a fixture lets it through."""


class ToolMissingError(LocalKafkaError):
    """Java or Maven is missing, or Java is too old. The text names what to install."""


class DistributionError(LocalKafkaError):
    """Maven could not fetch this version of Kafka, or the storage could not be formatted."""


class BrokerError(LocalKafkaError):
    """A broker did not come up, ended by itself, or did not stop in time. The text ends with its log's tail."""
