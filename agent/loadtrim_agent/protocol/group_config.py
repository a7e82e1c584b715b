"""Settings of the protocol and the answers of the broker that it tells apart."""

from __future__ import annotations

import enum

import msgspec

from loadtrim_agent.common.settings import DEFAULTS

__all__ = ["BROKER_ASSIGNS", "HEARTBEATS_PER_SESSION", "LOADTRIM", "STANDARD_PROTOCOLS", "Code", "GroupConfig"]

LOADTRIM = "loadtrim"
"""Name of our protocol in JoinGroup; a group speaks it when every member offers it."""

STANDARD_PROTOCOLS = ("roundrobin", "range")
"""Protocols that we offer beside it, so that members without the agent can share the group (mixed group).

The first one is what members without a control topic speak. It is all that aiokafka offers by default, and all that a
coordinator knows of them that took over: by it plain consumers still get in.
"""

BROKER_ASSIGNS = "KIP-848"
"""Our name for the protocol of a group with a member of Kafka's consumer protocol: there no member leads."""

HEARTBEATS_PER_SESSION = 3
"""Source: Kafka's advice for ``heartbeat.interval.ms``."""


class Code(enum.IntEnum):
    """Kafka's error codes that the protocol acts upon, plus :attr:`DISCONNECTED` for 'no answer'."""

    DISCONNECTED = -1000
    """Ours: the connection broke or the request timed out. Whether it was carried out is unknown."""
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    GROUP_AUTHORIZATION_FAILED = 30
    MEMBER_ID_REQUIRED = 79
    FENCED_INSTANCE_ID = 82
    UNSTABLE_OFFSET_COMMIT = 88


COORDINATOR_MOVED = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR, Code.DISCONNECTED})
"""Answers after which the coordinator is looked up again."""

RETRIABLE = COORDINATOR_MOVED | {Code.COORDINATOR_LOAD_IN_PROGRESS}
"""Answers after which the same request may simply be sent again."""

REFUSED_FOR_GOOD = frozenset({Code.INVALID_GROUP_ID, Code.GROUP_AUTHORIZATION_FAILED, Code.FENCED_INSTANCE_ID})
"""Answers after which the member has no place in the group; user code is told. Source: what aiokafka raises."""


TOO_LARGE = frozenset({Code.UNKNOWN_SERVER_ERROR, Code.MESSAGE_TOO_LARGE})
"""Answers to a SyncGroup whose assignments do not fit into a record of the broker; Kafka tells the first of them."""


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the protocol. Durations in seconds."""

    group: str
    topics: tuple[str, ...]
    """Subscribed topics at the start, sorted."""
    session_timeout: float = 10.0
    rebalance_timeout: float = 20.0
    """At least twice the session timeout: a barrier with a dead member ends with that member's session (rule 12)."""
    heartbeat_interval: float = 1.0
    """Upper bound, at most a third of the session timeout: two may go amiss. Heartbeats are sent at once when the log
    tells of a rebalance, and every 0.25 s when a member is overdue."""
    drain_seconds: float = DEFAULTS.drain_seconds
    """Time for which user code may keep the record in hand before a move is given up."""
    auto_commit: bool = True
    retry_backoff: float = 0.1
    instance: str = ""
    process: str = ""
    """As :func:`~loadtrim_agent.common.host.process_name` has it."""
    log_usable: bool = True
    """False: this member could not read or write the control topic when it started; it offers the standard protocols
    only, and so makes the group a mixed one."""
    inline_limit_bytes: int = 400_000
    """Largest sum of inline maps in one SyncGroup: the broker stores all of them in one record (1 MB by default)."""

    def __post_init__(self) -> None:
        if self.rebalance_timeout < 2 * self.session_timeout:
            raise ValueError("rebalance_timeout must be at least twice session_timeout")
        if self.heartbeat_interval * HEARTBEATS_PER_SESSION > self.session_timeout + 1e-6:
            raise ValueError("heartbeat_interval must be at most a third of session_timeout")
