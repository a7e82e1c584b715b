"""``loadtrim doctor`` against a broker with ACLs: the lines that it prints are carried out until nothing is missing."""

from __future__ import annotations

import json
import re
import shlex
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from loadtrim.cli import main
from loadtrim.testing import LocalKafka
from loadtrim.testing.ports import free_ports
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.telemetry_records import ReportRecord
from loadtrim_agent.wire.topic_names import control_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
USER, PASSWORD = "payments", "payments-secret"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)
BROKER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plain.plain.sasl.jaas.config": LOGIN,
}
WAIT_SECONDS = 30.0


class Clinic:
    """A broker with ACLs, whose administrator carries out the lines that are printed."""

    def __init__(self, kafka: LocalKafka, directory: Path) -> None:
        self.bootstrap = kafka.bootstrap_at("PLAIN")
        self.admin_config = {"bootstrap.servers": kafka.bootstrap}
        self.admin = AdminClient(self.admin_config)
        self.config = directory / "client.properties"
        self.config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={USER}\nsasl.password={PASSWORD}\n"
        )

    def create(self, topic: str, partitions: int, **config: str) -> None:
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(WAIT_SECONDS)

    def carry_out(self, line: str) -> None:
        """Do what a line says, as Kafka's own tool would."""
        program, *words = shlex.split(line)
        given: dict[str, list[str]] = {}
        for at, word in enumerate(words[:-1]):
            if word.startswith("--") and not words[at + 1].startswith("--"):
                given.setdefault(word, []).append(words[at + 1])
        {"kafka-acls.sh": self._grant, "kafka-topics.sh": self._topic, "kafka-configs.sh": self._configure}[program](
            given
        )

    def _grant(self, given: dict[str, list[str]]) -> None:
        kind, (name,) = (
            (ResourceType.TOPIC, given["--topic"]) if "--topic" in given else (ResourceType.GROUP, given["--group"])
        )
        (principal,) = given["--allow-principal"]
        for operation in given["--operation"]:
            self._allow(kind, name, principal, AclOperation[operation])

    def _allow(self, kind: ResourceType, name: str, principal: str, operation: AclOperation) -> None:
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)
        self.admin.create_acls([acl])[acl].result(WAIT_SECONDS)

    def allow_settings(self, topic: str) -> None:
        self._allow(ResourceType.TOPIC, topic, f"User:{USER}", AclOperation.DESCRIBE_CONFIGS)

    def report(self, control: str, group: str, instance: str, ahead_seconds: float) -> None:
        """Write a member's report, whose clock is ahead by so much."""
        record = ReportRecord(
            group=group, member=instance, at=time.time() + ahead_seconds, sequence=1, generation=1, instance=instance
        )
        producer = Producer(self.admin_config)
        producer.produce(control, encode(record), partition=TELEMETRY)
        assert producer.flush(WAIT_SECONDS) == 0

    def _topic(self, given: dict[str, list[str]]) -> None:
        (topic,), (partitions,) = given["--topic"], given["--partitions"]
        if "--config" in given:
            self.create(topic, int(partitions), **dict(pair.split("=", 1) for pair in given["--config"]))
        else:
            self.admin.create_partitions([NewPartitions(topic, int(partitions))])[topic].result(WAIT_SECONDS)

    def _configure(self, given: dict[str, list[str]]) -> None:
        (topic,), (pairs,) = given["--entity-name"], given["--add-config"]
        entries = [
            ConfigEntry(*pair.split("=", 1), incremental_operation=AlterConfigOpType.SET) for pair in pairs.split(",")
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    with LocalKafka(properties=BROKER, listeners={"PLAIN": "SASL_PLAINTEXT"}, short_run=True) as kafka:
        yield Clinic(kafka, tmp_path_factory.mktemp("clinic"))


def doctor(clinic: Clinic, capsys: pytest.CaptureFixture[str], group: str, *topics: str) -> tuple[int, list[Any]]:
    code = main(["doctor", group, *topics, "--json", "--bootstrap", clinic.bootstrap, "--config", str(clinic.config)])
    return code, json.loads(capsys.readouterr().out)


def verdicts(found: list[Any]) -> list[str]:
    return [finding["verdict"] for finding in found]


def test_what_is_missing_is_granted_by_the_lines(clinic: Clinic, capsys: pytest.CaptureFixture[str]) -> None:
    group, topic = f"g-{uuid.uuid4().hex[:8]}", f"t-{uuid.uuid4().hex[:8]}"
    control = control_topic(group)
    clinic.create(topic, 3)
    clinic.create(control, 1, **{"cleanup.policy": "compact"})
    code, found = doctor(clinic, capsys, group, topic)
    assert code == 1
    assert verdicts(found) == ["ok", "missing", "missing", "missing"]
    assert found[2]["remedy"] == (
        f"kafka-acls.sh --bootstrap-server {clinic.bootstrap} --add --allow-principal User:{USER} --operation READ "
        f"--group {group}"
    )
    for finding in found[1:]:
        clinic.carry_out(finding["remedy"])
    code, found = doctor(clinic, capsys, group, topic)
    assert verdicts(found) == ["ok", "ok", "ok", "missing", "unknown"], found
    assert "3 partitions" in found[1]["detail"]
    assert "it has 1 partition" in found[3]["detail"]
    clinic.carry_out(found[3]["remedy"])
    code, found = doctor(clinic, capsys, group, topic)
    assert (code, verdicts(found)) == (0, ["ok", "ok", "ok", "ok", "unknown", "unknown"]), found
    clinic.allow_settings(control)
    code, found = doctor(clinic, capsys, group, topic)
    assert (code, verdicts(found)) == (1, ["ok", "ok", "ok", "ok", "missing", "unknown"]), found
    assert found[4]["detail"] == "cleanup.policy is compact, message.timestamp.type is CreateTime"
    clinic.carry_out(found[4]["remedy"])
    code, found = doctor(clinic, capsys, group, topic)
    assert (code, verdicts(found)) == (0, [*["ok"] * 5, "unknown"]), found
    assert found[5]["detail"] == "no member has reported in the last minute"
    clinic.report(control, group, "well", 0.3)
    assert doctor(clinic, capsys, group, topic)[1][5]["verdict"] == "ok"
    clinic.report(control, group, "fast", 7.0)
    code, found = doctor(clinic, capsys, group, topic)
    assert (code, found[5]["verdict"]) == (1, "missing")
    # What lies between its writing and its appending, on a busy machine some tenths of a second, counts against it.
    assert re.match(r"fast is (7\.0|6\.\d) s ahead of the brokers' clock", found[5]["detail"]), found[5]


def test_a_right_that_is_half_there_is_granted_by_the_other_half(
    clinic: Clinic, capsys: pytest.CaptureFixture[str]
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    control = control_topic(group)
    clinic.create(control, 2)
    clinic.carry_out(
        f"kafka-acls.sh --add --allow-principal User:{USER} --operation READ --operation DESCRIBE --topic {control}"
    )
    _, found = doctor(clinic, capsys, group)
    assert found[3]["detail"] == "this principal lacks WRITE"
    clinic.carry_out(found[3]["remedy"])
    _, found = doctor(clinic, capsys, group)
    assert found[3]["verdict"] == "ok"


def test_topics_that_are_not_there(clinic: Clinic, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the administrator, whom the broker tells that a topic is not there; others learn that they may not see it."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    bootstrap = clinic.admin.list_topics(timeout=WAIT_SECONDS).brokers
    address = next(f"{broker.host}:{broker.port}" for broker in bootstrap.values())
    assert main(["doctor", group, "nothing-here", "--bootstrap", address]) == 1
    out = capsys.readouterr().out
    assert "missing  topic nothing-here: there is none of this name" in out
    assert f"ok       control topic {control_topic(group)}: the first member makes it" in out


def test_a_broker_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    assert main(["doctor", "g", "--bootstrap", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().out.startswith(f"missing  brokers: nothing answers at 127.0.0.1:{port} (")
    assert main(["doctor"]) == 2
