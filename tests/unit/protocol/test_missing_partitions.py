"""What members own and metadata does not show."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.events import JoinedMember
from loadtrim_agent.protocol.missing_partitions import ASK_SECONDS, GONE_SECONDS, NEVER, MissingPartitions

MEMBERS = (
    JoinedMember(member="a", topics=("orders",), owned=(Partition("orders", 3), Partition("refunds", 7))),
    JoinedMember(member="b", topics=("orders",), owned=(Partition("orders", 1),)),
)


def test_what_is_owned_is_believed_for_a_while() -> None:
    missing = MissingPartitions()
    assert missing.believed(100.0, MEMBERS, {"orders": 2}) == {"orders": 4}, "and nothing of a topic not subscribed"
    assert missing.ask_at == 100.0 + ASK_SECONDS
    assert missing.believed(100.0 + GONE_SECONDS - 0.1, MEMBERS, {"orders": 2}) == {"orders": 4}
    assert missing.believed(100.0 + GONE_SECONDS, MEMBERS, {"orders": 2}) == {"orders": 2}


def test_what_is_shown_again_is_missing_anew_the_next_time() -> None:
    missing = MissingPartitions()
    missing.believed(100.0, MEMBERS, {})
    assert missing.believed(105.0, MEMBERS, {"orders": 4}) == {"orders": 4}
    assert missing.ask_at == NEVER
    assert missing.believed(100.0 + GONE_SECONDS, MEMBERS, {}) == {"orders": 4}


def test_more_partitions_are_believed_at_once_and_fewer_after_a_while() -> None:
    missing = MissingPartitions()
    assert missing.changed(100.0, {"orders": 4}, {"orders": 5})
    assert not missing.changed(100.0, {"orders": 4}, {"orders": 3})
    assert missing.asked(101.0) == ("orders",)
    assert not missing.changed(100.0 + GONE_SECONDS - 0.1, {"orders": 4}, {})
    assert missing.changed(100.0 + GONE_SECONDS, {"orders": 4}, {})


def test_a_subscribed_topic_of_which_nothing_is_there_is_asked_for_again_for_a_while() -> None:
    """A broker that lags shows none of it: it was nobody's until the next refresh, five minutes later."""
    missing = MissingPartitions()
    members = (JoinedMember(member="a", topics=("orders", "refunds")),)
    assert missing.believed(100.0, members, {"orders": 4, "refunds": 0}) == {"orders": 4, "refunds": 0}
    assert missing.ask_at == 100.0 + ASK_SECONDS
    assert missing.asked(101.0) == ("refunds",)
    assert not missing.changed(101.5, {"orders": 4, "refunds": 0}, {"orders": 4})
    assert missing.ask_at < NEVER
    assert missing.changed(102.0, {"orders": 4, "refunds": 0}, {"orders": 4, "refunds": 3})
    assert not missing.changed(100.0 + GONE_SECONDS, {"orders": 4, "refunds": 0}, {"orders": 4})
    assert missing.ask_at == NEVER, "it may be made years later: the usual refresh sees it"
