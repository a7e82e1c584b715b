"""The brokers' configuration: quick, strict, and the user's word is the last."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from loadtrim.testing.properties import (
    Listener,
    Node,
    broker_properties,
    logging_configuration,
    new_kafka_id,
    properties_text,
)

ONE = (Node(id=1, port=20_001, controller_port=20_002),)
THREE = tuple(Node(id=index, port=20_000 + index, controller_port=21_000 + index) for index in (1, 2, 3))
DATA = Path("/data")


def test_one_broker_replicates_nothing_and_lets_the_first_member_join_at_once() -> None:
    found = broker_properties(ONE[0], ONE, DATA, {})

    assert found["group.initial.rebalance.delay.ms"] == "0"
    assert found["auto.create.topics.enable"] == "false"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:20002"
    assert {found[name] for name in found if name.endswith("replication.factor")} == {"1"}
    assert found["min.insync.replicas"] == "1"


def test_three_brokers_vote_together_and_survive_one() -> None:
    found = broker_properties(THREE[1], THREE, DATA, {})

    assert found["node.id"] == "2"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20002"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"
    assert {found[name] for name in found if name.endswith("replication.factor")} == {"3"}
    assert found["min.insync.replicas"] == "2"


def test_further_listeners_are_told_to_clients_with_their_protocols() -> None:
    secure = Listener(name="SECURE", protocol="SASL_SSL", port=20_003)
    node = Node(id=1, port=20_001, controller_port=20_002, further=(secure,))
    found = broker_properties(node, (node,), DATA, {})

    assert found["listeners"].endswith(",SECURE://127.0.0.1:20003")
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,SECURE://127.0.0.1:20003"
    assert found["listener.security.protocol.map"].endswith(",SECURE:SASL_SSL")


@pytest.mark.parametrize("name", sorted(broker_properties(ONE[0], ONE, DATA, {})))
def test_any_property_can_be_overridden(name: str) -> None:
    assert broker_properties(ONE[0], ONE, DATA, {name: "mine"})[name] == "mine"


def test_a_property_of_the_users_own_is_added() -> None:
    assert broker_properties(ONE[0], ONE, DATA, {"log.retention.ms": "60000"})["log.retention.ms"] == "60000"


def test_text_is_sorted_and_escaped_as_java_reads_it() -> None:
    text = properties_text({"b": "C:\\data\nx", "a": " leading", "odd key": "x=y"})

    assert text == "a=\\ leading\nb=C:\\\\data\\nx\nodd\\ key=x=y\n"


def test_ids_are_uuids_in_kafkas_writing_and_never_look_like_an_option() -> None:
    ids = {new_kafka_id() for _ in range(500)}

    assert len(ids) == 500
    for kafka_id in ids:
        assert len(base64.urlsafe_b64decode(kafka_id + "==")) == 16
        assert not kafka_id.startswith("-")


@pytest.mark.parametrize(
    ("major", "setting", "name"),
    [(3, "log4j.configuration", "log4j.properties"), (4, "log4j2.configurationFile", "log4j2.xml")],
)
def test_each_major_version_logs_with_its_own_backend(major: int, setting: str, name: str) -> None:
    found_setting, found_name, text = logging_configuration(major, "INFO")

    assert (found_setting, found_name) == (setting, name)
    assert "INFO" in text
