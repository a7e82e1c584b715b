"""Refusals of the group's coordinator, as errors for user code."""

from __future__ import annotations

from aiokafka.errors import KafkaError, for_code

from loadtrim_agent.protocol.group_config import LOADTRIM, STANDARD_PROTOCOLS, Code, GroupConfig

__all__ = ["broker_assigns_text", "group_error"]


def broker_assigns_text(group: str) -> str:
    """Return what is said to user code's log when a member of the consumer protocol is in the group."""
    return (
        f"Group {group} has a member of the consumer protocol (KIP-848), so that the broker assigns its partitions. "
        "This member consumes what the broker gives it; loadtrim neither moves partitions nor scales meanwhile. "
        "Run all members with group.protocol=classic, or give the other members another group_id."
    )


def group_error(code: int, config: GroupConfig, *, spoken: str = "") -> KafkaError:
    """Return what aiokafka would raise for a JoinGroup refused with ``code``, in words that say what to do.

    Args:
        code: the broker's.
        config: what this member asked for.
        spoken: the assignment protocol that the group's members use, where it is known.
    """
    kind = for_code(code)
    if code == Code.INCONSISTENT_GROUP_PROTOCOL:
        offered = (LOADTRIM, *STANDARD_PROTOCOLS) if config.log_usable else STANDARD_PROTOCOLS
        return kind(
            f"Group {config.group} refused this member: it offers the assignment protocols {', '.join(offered)}, "
            f"and the group's members share none of them: they use {spoken or 'another one, or the KIP-848 protocol'}. "
            "Run the other members with range or roundrobin among their strategies, or give this consumer another "
            "group_id."
        )
    if code == Code.INVALID_SESSION_TIMEOUT:
        return kind(
            f"Group {config.group} refused this member: session_timeout_ms={config.session_timeout * 1000:.0f} is "
            "outside the broker's group.min.session.timeout.ms .. group.max.session.timeout.ms. Choose one inside."
        )
    if code == Code.GROUP_AUTHORIZATION_FAILED:
        return kind(f"This principal may not use group {config.group}: allow it READ on the group.")
    return kind(
        f"Group {config.group} refused this member (error {code}, {kind.__name__}). It takes no part in the group any "
        "more, and the other members get its partitions. The broker's log says why; then start it again."
    )
