"""aiokafka's tests that ``loadtrim.Consumer`` does not pass, and why; docs/compatibility.md explains each reason."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["BASELINE", "DIFFERENCES", "Difference", "Kind"]


class Kind(enum.Enum):
    """Why a test fails."""

    REFUSED = "refused"
    """What it does is refused: the error says what to do instead."""
    DIFFERENT = "different"
    """It asserts what our contract says otherwise."""
    PRIVATE = "private"
    """It reads or replaces private parts of ``AIOKafkaConsumer``, which are not here."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One expected failure."""

    kind: Kind
    why: str
    may_pass: bool = False
    """It depends on the tests that ran before."""


def _refused(why: str) -> Difference:
    return Difference(Kind.REFUSED, why)


def _different(why: str) -> Difference:
    return Difference(Kind.DIFFERENT, why)


def _private(why: str) -> Difference:
    return Difference(Kind.PRIVATE, why)


_ASSIGN = _refused("assign(): who owns what is the group's to decide")
_NO_GROUP = _refused("a consumer without group_id")
_CHANGES_ONLY = _different("no change, no call of a listener; a second member gets its share later")
_ALL_THAT_CAME = Difference(
    Kind.DIFFERENT, "getmany() returns what has come by then, here sometimes two fetches", may_pass=True
)
_COUNTS = _private("fetcher.PartitionRecords is replaced, or its uses are counted")

BASELINE = {
    "test_kip_345_enabled": Difference(
        Kind.DIFFERENT, "passes alone, not after test_kip_345_disabled, whose group it shares", may_pass=True
    ),
}
"""What ``AIOKafkaConsumer`` itself does not pass."""

DIFFERENCES: dict[str, Difference] = {
    "test_none_group": _NO_GROUP,
    "test_consumer_commit_no_group": _NO_GROUP,
    "test_subscribe_manual": _ASSIGN,
    "test_consumer_manual_assignment_with_group": _ASSIGN,
    "test_consumer_manual_assignment_no_group_after_start": _ASSIGN,
    "test_consumer_manual_assignment_no_group_before_start": _ASSIGN,
    "test_consumer_seek_on_unassigned": _ASSIGN,
    "test_kip_345_enabled": _refused("group_instance_id"),
    "test_kip_345_disabled": _CHANGES_ONLY,
    "test_rebalance_listener_with_coroutines": _CHANGES_ONLY,
    "test_offset_behavior__resuming_behavior": _different("the record in hand at stop() is not done: handed out again"),
    "test_large_messages_getmany": _ALL_THAT_CAME,
    "test_consumer_context_manager": _private("_fetcher"),
    "test_consumer_cleanup_unassigned_data_getone": _private("_fetcher._records"),
    "test_consumer_cleanup_unassigned_data_getmany": _private("_fetcher._records"),
    "test_consumer_compacted_topic": _COUNTS,
    "test_consumer_seek_backward": _COUNTS,
    "test_consumer_seek_forward_getone": _COUNTS,
    "test_consumer_seek_forward_getmany": _COUNTS,
    "test_consumer_compressed_returns_older_msgs": _private("_client.send is replaced"),
    "test_consumer_invalid_crc_in_records": _private("_client.send is replaced"),
    "test_consumer_position": _private("_subscription.wait_for_assignment"),
    "test_consumer_propagates_coordinator_errors": _private("_coordinator._send_req is replaced"),
    "test_consumer_propagates_heartbeat_errors": _private("_coordinator._do_heartbeat is replaced"),
    "test_consumer_propagates_commit_refresh_errors": _private("_coordinator._do_fetch_commit_offsets is replaced"),
    "test_kafka_consumer_sets_coordinator_values": _private("_coordinator"),
}
