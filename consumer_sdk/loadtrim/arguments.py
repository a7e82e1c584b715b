"""The constructor's arguments: those of ``AIOKafkaConsumer``, checked and sorted by the part that uses them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener

from loadtrim_agent.common.host import process_name
from loadtrim_agent.kafka.connections import TokensOfUser, connect_seconds
from loadtrim_agent.protocol.group_config import HEARTBEATS_PER_SESSION, GroupConfig

from .settings import Settings

__all__ = ["Arguments", "check_subscription", "compiled", "loop_of"]

log = logging.getLogger("loadtrim")

HEARTBEAT_MS_MAX = 1000.0
"""Evictions are to be noticed within about a second."""

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
"""Not the fetcher's business. Deserializers run in the user's thread."""

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
    fetcher: dict[str, Any]
    """The arguments of the fetcher."""
    group_id: str
    client_id: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: float
    """The longest time between two heartbeats: at most 1 s and a third of the session timeout."""
    max_poll_interval_ms: int
    max_poll_records: int | None
    max_partition_fetch_bytes: int
    exclude_internal_topics: bool
    retry_backoff_ms: int

    @classmethod
    def read(cls, topics: tuple[str, ...], given: Mapping[str, Any], *, enabled: bool) -> Arguments:
        """Check what was given.

        Raises:
            TypeError: an argument that ``AIOKafkaConsumer`` does not have, or names that are not strings.
            ValueError: an argument that a self-managed group cannot honour.
        """
        unknown = sorted(set(given) - set(_DEFAULTS))
        if unknown:
            raise TypeError(f"Consumer() got an unexpected keyword argument {unknown[0]!r}")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError("Topics should be strings")
        every = {**_DEFAULTS, **given}
        if enabled:
            every |= _as_aiokafka_reads(every)
            _refuse(given, every)
            every["sasl_oauth_token_provider"] = _tokens(every)
        session = int(every["session_timeout_ms"])
        rebalance = int(every["rebalance_timeout_ms"] or 2 * session)
        return cls(
            kafka=every,
            fetcher={name: value for name, value in every.items() if name not in _GROUP_ARGUMENTS},
            group_id=every["group_id"] or "",
            client_id=every["client_id"],
            enable_auto_commit=every["enable_auto_commit"],
            auto_commit_interval_ms=every["auto_commit_interval_ms"],
            session_timeout_ms=session,
            rebalance_timeout_ms=max(rebalance, 2 * session),
            heartbeat_interval_ms=_heartbeat_interval_ms(given, every, session),
            max_poll_interval_ms=every["max_poll_interval_ms"],
            max_poll_records=every["max_poll_records"],
            max_partition_fetch_bytes=every["max_partition_fetch_bytes"],
            exclude_internal_topics=every["exclude_internal_topics"],
            retry_backoff_ms=every["retry_backoff_ms"],
        )

    def group_config(self, topics: tuple[str, ...], settings: Settings) -> GroupConfig:
        """Return what the group protocol must know of these and of the environment's settings."""
        return GroupConfig(
            group=self.group_id,
            topics=topics,
            session_timeout=self.session_timeout_ms / 1000,
            rebalance_timeout=self.rebalance_timeout_ms / 1000,
            heartbeat_interval=self.heartbeat_interval_ms / 1000,
            drain_seconds=settings.drain_seconds,
            auto_commit=self.enable_auto_commit,
            retry_backoff=self.retry_backoff_ms / 1000,
            instance=settings.instance,
            process=process_name(),
        )


def _as_aiokafka_reads(every: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in the form that all parts here read: no client id is the default one, and case says nothing."""
    client, reset = every["client_id"], every["auto_offset_reset"]
    return {
        "client_id": _DEFAULTS["client_id"] if client is None else client,
        "auto_offset_reset": reset.lower() if isinstance(reset, str) else reset,
    }


def _heartbeat_interval_ms(given: Mapping[str, Any], every: Mapping[str, Any], session_ms: int) -> float:
    """The argument is an upper bound, so a shorter interval keeps to it."""
    wanted = every["heartbeat_interval_ms"]
    if "heartbeat_interval_ms" in given and wanted >= session_ms:
        log.warning(
            "heartbeat_interval_ms=%d is not below session_timeout_ms=%d, so every member would be evicted between two "
            "heartbeats. They are sent every %.0f ms instead; choose a third of the session timeout or less.",
            wanted,
            session_ms,
            min(HEARTBEAT_MS_MAX, session_ms / HEARTBEATS_PER_SESSION),
        )
    return min(float(wanted), HEARTBEAT_MS_MAX, session_ms / HEARTBEATS_PER_SESSION)


def _tokens(every: Mapping[str, Any]) -> Any:
    provider = every["sasl_oauth_token_provider"]
    if not isinstance(provider, AbstractTokenProvider):
        return provider  # none, or one that aiokafka refuses
    loop = every["loop"] or asyncio.get_running_loop()
    return TokensOfUser(
        provider,
        loop,
        timeout=every["request_timeout_ms"] / 1000,
        again_after=connect_seconds(every["session_timeout_ms"] / 1000),
    )


def _refuse(given: Mapping[str, Any], every: Mapping[str, Any]) -> None:
    if not every["group_id"]:
        raise ValueError(
            "group_id is required: loadtrim manages consumer groups. Without a group use aiokafka.AIOKafkaConsumer."
        )
    if not isinstance(every["group_id"], str):
        raise TypeError(
            f"group_id={every['group_id']!r} must be a string: brokers know a group by its name. Give the name."
        )
    strategy = _DEFAULTS["partition_assignment_strategy"]
    # Frameworks pass aiokafka's default along.
    if tuple(given.get("partition_assignment_strategy", strategy)) != tuple(strategy):
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
    if not every["max_poll_interval_ms"] > 0:
        raise ValueError(
            f"max_poll_interval_ms={every['max_poll_interval_ms']!r} must be above 0: user code that asks for no "
            "record for so long is put out of the group. The default is 300000."
        )
    if every["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise ValueError(
            f"Incorrect isolation level {every['isolation_level']}: allowed are read_uncommitted and read_committed"
        )
    if every["auto_offset_reset"] not in ("earliest", "latest", "none"):
        raise ValueError(f"auto_offset_reset={every['auto_offset_reset']!r}: allowed are earliest, latest and none")


def loop_of(arguments: Mapping[str, Any]) -> asyncio.AbstractEventLoop:
    """The loop given (deprecated, as in aiokafka), else the one that runs."""
    loop: asyncio.AbstractEventLoop | None = arguments.get("loop")
    if loop is None:
        return asyncio.get_running_loop()
    warnings.warn("The loop argument is deprecated, as it is in aiokafka", DeprecationWarning, stacklevel=3)
    return loop


def check_subscription(topics: object, pattern: str | None, listener: object) -> None:
    """As ``AIOKafkaConsumer.subscribe`` does.

    Raises:
        TypeError: not topics or a pattern, or something else than these.
    """
    if not (topics or pattern):
        raise TypeError("You should provide either `topics` or `pattern`")
    if topics and pattern:
        raise TypeError("You can't provide both `topics` and `pattern`")
    if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
        raise TypeError("listener should be an instance of ConsumerRebalanceListener")
    if topics and not isinstance(topics, (tuple, set, list)):
        raise TypeError("Topics should be list of strings")
    if isinstance(topics, (tuple, set, list)) and not all(isinstance(topic, str) for topic in topics):
        raise TypeError(f"Topics should be list of strings, not {topics!r}")


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """The pattern of a subscription.

    Raises:
        ValueError: it cannot be compiled.
    """
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
