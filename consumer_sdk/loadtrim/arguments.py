"""The constructor's arguments: those of ``AIOKafkaConsumer``, checked and sorted by who uses them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer

__all__ = ["Arguments"]

_GROUP_ARGUMENTS = (
    "group_id",
    "group_instance_id",
    "enable_auto_commit",
    "auto_commit_interval_ms",
    "partition_assignment_strategy",
    "max_poll_interval_ms",
    "rebalance_timeout_ms",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_records",
    "exclude_internal_topics",
    "consumer_timeout_ms",
    "key_deserializer",
    "value_deserializer",
    "api_version",
    "loop",
)
"""Not the data plane's business. Deserializers run in the user's thread."""

_DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(AIOKafkaConsumer.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """See the module's text. Durations as aiokafka has them, milliseconds."""

    kafka: dict[str, Any]
    """All, with aiokafka's defaults."""
    plane: dict[str, Any]
    """Those of the data plane."""
    group_id: str
    client_id: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int | None
    max_partition_fetch_bytes: int
    exclude_internal_topics: bool
    retry_backoff_ms: int

    @classmethod
    def read(cls, topics: tuple[str, ...], given: Mapping[str, Any], *, enabled: bool) -> Arguments:
        """Check what was given.

        Raises:
            TypeError: an argument that ``AIOKafkaConsumer`` does not have, or topics that are not names.
            ValueError: an argument that a self-managed group cannot honour.
        """
        unknown = sorted(set(given) - set(_DEFAULTS))
        if unknown:
            raise TypeError(f"Consumer() got an unexpected keyword argument {unknown[0]!r}")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError("Topics should be strings")
        every = {**_DEFAULTS, **given}
        if enabled:
            _refuse(given, every)
        session = int(every["session_timeout_ms"])
        rebalance = int(every["rebalance_timeout_ms"] or 2 * session)
        return cls(
            kafka=every,
            plane={name: value for name, value in every.items() if name not in _GROUP_ARGUMENTS},
            group_id=every["group_id"] or "",
            client_id=every["client_id"],
            enable_auto_commit=every["enable_auto_commit"],
            auto_commit_interval_ms=every["auto_commit_interval_ms"],
            session_timeout_ms=session,
            rebalance_timeout_ms=max(rebalance, 2 * session),
            heartbeat_interval_ms=every["heartbeat_interval_ms"],
            max_poll_interval_ms=every["max_poll_interval_ms"],
            max_poll_records=every["max_poll_records"],
            max_partition_fetch_bytes=every["max_partition_fetch_bytes"],
            exclude_internal_topics=every["exclude_internal_topics"],
            retry_backoff_ms=every["retry_backoff_ms"],
        )


def _refuse(given: Mapping[str, Any], every: Mapping[str, Any]) -> None:
    if not every["group_id"]:
        raise ValueError(
            "group_id is required: loadtrim manages consumer groups. Without a group use aiokafka.AIOKafkaConsumer."
        )
    if "partition_assignment_strategy" in given:
        raise ValueError(
            "partition_assignment_strategy cannot be chosen: loadtrim decides who owns what (LOADTRIM_POLICY, "
            "LOADTRIM_PACKER). Leave it out, or set LOADTRIM_ENABLED=false for a plain aiokafka group."
        )
    if given.get("group_instance_id") is not None:
        raise ValueError(
            "group_instance_id (static membership) is not supported, and not needed: a restart hands its partitions "
            "over in milliseconds and stops nobody. Leave it out."
        )
    records = every["max_poll_records"]
    if records is not None and (not isinstance(records, int) or records < 1):
        raise ValueError("`max_poll_records` should be positive Integer")
    if every["auto_offset_reset"] not in ("earliest", "latest", "none"):
        raise ValueError(f"auto_offset_reset={every['auto_offset_reset']!r}: allowed are earliest, latest and none")
