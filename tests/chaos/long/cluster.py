"""Three brokers whose members connect through proxies and need rights; tests connect directly and may do all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from loadtrim.testing import LocalKafka
from loadtrim.testing.ports import free_ports, port_is_free
from loadtrim_agent.wire.topic_names import control_topic

from .proxy import Proxies

__all__ = ["ChaosCluster", "Right", "chaos_cluster"]

BROKERS = 3
HEAP_MB = 256
USER, PASSWORD = "members", "a secret"
LISTENER = "MEMBERS"
ADMIN_SECONDS = 30.0

PROPERTIES = {
    f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "500",
    # Members of KIP-848 hear of a new assignment within half a second.
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    # The cleaner must never come to the evidence: all commits of an hour stay in one segment.
    "offsets.topic.segment.bytes": str(2**31 - 1),
    "log.cleaner.backoff.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Right:
    """What the members may do with one resource."""

    kind: ResourceType
    name: str
    operation: AclOperation

    def binding(self) -> AclBinding:
        return AclBinding(
            self.kind, self.name, ResourcePatternType.LITERAL, f"User:{USER}", "*", self.operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip

    def filter(self) -> AclBindingFilter:
        return AclBindingFilter(
            self.kind, self.name, ResourcePatternType.LITERAL, f"User:{USER}", "*", self.operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip


class ChaosCluster:
    """The brokers, what lies before them, and what an administrator does to them. Its methods block."""

    def __init__(self, kafka: LocalKafka, proxies: Proxies) -> None:
        self.kafka = kafka
        self.proxies = proxies
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    @property
    def member_options(self) -> dict[str, Any]:
        """How members connect: keyword arguments of their consumers."""
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    def rights(self, group: str, topics: tuple[str, ...]) -> dict[str, list[Right]]:
        """Return what members need, by what it is for (docs/security.md)."""
        control = control_topic(group)
        topic, read, describe = ResourceType.TOPIC, AclOperation.READ, AclOperation.DESCRIBE
        return {
            "data": [Right(topic, name, read) for name in topics],
            "names": [Right(topic, name, describe) for name in topics],
            "group": [Right(ResourceType.GROUP, group, read)],
            "control": [Right(topic, control, each) for each in (read, AclOperation.WRITE, describe)],
            "create": [Right(topic, control, AclOperation.CREATE)],
        }

    def grant(self, rights: list[Right]) -> None:
        for done in self.admin.create_acls([right.binding() for right in rights]).values():
            done.result(ADMIN_SECONDS)

    def revoke(self, rights: list[Right]) -> None:
        for done in self.admin.delete_acls([right.filter() for right in rights]).values():
            done.result(ADMIN_SECONDS)

    def delete_topic(self, name: str) -> None:
        for done in self.admin.delete_topics([name], operation_timeout=ADMIN_SECONDS).values():
            done.result(ADMIN_SECONDS)

    def configure(self, topic: str, **settings: str) -> None:
        """Set a topic's configuration; dots are written as two underscores."""
        entries = [
            ConfigEntry(name.replace("__", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([asked]).values():
            done.result(ADMIN_SECONDS)


@contextlib.contextmanager
def chaos_cluster(logs: Path) -> Iterator[ChaosCluster]:
    """The cluster, gone afterwards however this process ends."""
    near = dict(zip(range(1, BROKERS + 1), free_ports(BROKERS), strict=True))
    targets: dict[int, int] = {}
    with Proxies(near, targets) as proxies:
        # The proxies have their ports by now, so that no broker takes one of them.
        first = _three_ports()

        def properties(broker: int) -> dict[str, str]:
            plain = f"PLAINTEXT://127.0.0.1:{first + broker - 1}"
            return {**PROPERTIES, "advertised.listeners": f"{plain},{LISTENER}://127.0.0.1:{near[broker]}"}

        kafka = LocalKafka(
            brokers=BROKERS,
            properties=properties,
            listeners={LISTENER: "SASL_PLAINTEXT"},
            port=first,
            heap_mb=HEAP_MB,
            log_dir=logs,
            short_run=True,
        )
        with kafka:
            targets.update({broker.id: broker.further_ports[LISTENER] for broker in kafka.brokers})
            yield ChaosCluster(kafka, proxies)


def _three_ports() -> int:
    """The first of three ports in a row that are free."""
    while True:
        (first,) = free_ports(1)
        if all(port_is_free(first + more) for more in range(1, BROKERS)):
            return first
