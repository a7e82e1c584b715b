"""The constructor's arguments that become something else."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from loadtrim import Settings
from loadtrim.arguments import Arguments, check_subscription
from loadtrim_agent.common.host import process_name
from loadtrim_agent.protocol.group_config import GroupConfig


@pytest.mark.parametrize(
    ("given", "wanted_ms", "warned"),
    [
        ({}, 1000.0, False),
        ({"heartbeat_interval_ms": 250}, 250.0, False),
        ({"session_timeout_ms": 1_500}, 500.0, False),
        ({"session_timeout_ms": 6_000, "heartbeat_interval_ms": 5_000}, 1000.0, False),
        ({"session_timeout_ms": 1_800, "heartbeat_interval_ms": 1_800}, 600.0, True),
    ],
)
def test_several_heartbeats_fit_into_a_session(
    given: dict[str, Any], wanted_ms: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="loadtrim")
    arguments = Arguments.read(("orders",), {"group_id": "g", **given}, enabled=True)
    assert arguments.heartbeat_interval_ms == wanted_ms
    assert ("heartbeat_interval_ms" in caplog.text) is warned
    GroupConfig(
        group="g",
        topics=("orders",),
        session_timeout=arguments.session_timeout_ms / 1000,
        rebalance_timeout=arguments.rebalance_timeout_ms / 1000,
        heartbeat_interval=arguments.heartbeat_interval_ms / 1000,
    )


def test_too_few_heartbeats_are_refused_by_the_protocol() -> None:
    with pytest.raises(ValueError, match="third of session_timeout"):
        GroupConfig(group="g", topics=(), session_timeout=2.0, rebalance_timeout=4.0, heartbeat_interval=1.0)


def read(**given: Any) -> Arguments:
    return Arguments.read(("orders",), {"group_id": "g", **given}, enabled=True)


THEIRS = {
    name: each.default
    for name, each in inspect.signature(AIOKafkaConsumer.__init__).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
DIFFERENT = {"group_id", "sasl_oauth_token_provider"}
"""Required; and a provider of tokens is asked in the loop of user code."""


def test_arguments_are_aiokafkas_with_its_defaults() -> None:
    assert len(THEIRS) > 30
    assert {name: value for name, value in read().kafka.items() if name not in DIFFERENT} == {
        name: value for name, value in THEIRS.items() if name not in DIFFERENT
    }
    as_given = read(**{name: value for name, value in THEIRS.items() if name not in DIFFERENT})
    assert as_given == read(), "a default that is given is the default"
    with pytest.raises(TypeError, match="unexpected keyword argument 'retries'"):
        read(retries=1)


def test_the_protocol_is_told_seconds_and_everything_that_was_given() -> None:
    arguments = read(
        session_timeout_ms=9_000,
        rebalance_timeout_ms=30_000,
        heartbeat_interval_ms=700,
        retry_backoff_ms=250,
        enable_auto_commit=False,
    )
    config = arguments.group_config(("orders",), Settings(drain_seconds=7.0, instance="pod-1"))
    assert config == GroupConfig(
        group="g",
        topics=("orders",),
        session_timeout=9.0,
        rebalance_timeout=30.0,
        heartbeat_interval=0.7,
        drain_seconds=7.0,
        auto_commit=False,
        retry_backoff=0.25,
        instance="pod-1",
        process=process_name(),
    )


@pytest.mark.parametrize(("given", "wanted"), [(None, 20_000), (15_000, 20_000), (25_000, 25_000)])
def test_a_rebalance_outlasts_two_sessions(given: int | None, wanted: int) -> None:
    assert read(session_timeout_ms=10_000, rebalance_timeout_ms=given).rebalance_timeout_ms == wanted


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"group_id": None}, "group_id is required"),
        ({"group_instance_id": "pod-1"}, "static membership"),
        ({"partition_assignment_strategy": ()}, "loadtrim decides who owns what"),
        ({"max_poll_records": 0}, "positive Integer"),
        ({"max_poll_interval_ms": 0}, "must be above 0"),
        ({"isolation_level": "read_comitted"}, "Incorrect isolation level read_comitted"),
        ({"auto_offset_reset": "erliest"}, "allowed are earliest, latest and none"),
        ({"auto_offset_reset": 0}, "allowed are earliest, latest and none"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_a_group_of_ours_cannot_honour_is_refused(given: dict[str, Any], says: str) -> None:
    """Taken in silence it would be heeded by nobody."""
    with pytest.raises(ValueError, match=says):
        read(**given)


def test_what_aiokafka_takes_for_a_default_or_in_another_case_is_taken_too() -> None:
    """Without a client id there was no HTTP page at all, and EARLIEST was refused."""
    arguments = read(client_id=None, auto_offset_reset="EARLIEST")
    assert arguments.client_id == arguments.kafka["client_id"] == arguments.fetcher["client_id"] == THEIRS["client_id"]
    assert arguments.kafka["auto_offset_reset"] == arguments.fetcher["auto_offset_reset"] == "earliest"


def test_a_group_without_a_name_in_letters_is_refused() -> None:
    """It was an AttributeError about an escape."""
    with pytest.raises(TypeError, match="group_id=5 must be a string"):
        read(group_id=5)


@pytest.mark.parametrize("topics", [[1], ["orders", None], ({},)])
def test_what_is_no_name_of_a_topic_is_refused_at_once(topics: Any) -> None:
    """It broke the agent: `stop()` did not come to its end."""
    with pytest.raises(TypeError, match="list of strings"):
        check_subscription(topics, None, None)
