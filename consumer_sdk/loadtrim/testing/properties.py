"""The configuration of a local broker: small, quick to start, and strict where tests should be."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Listener", "Node", "broker_properties", "logging_configuration", "new_kafka_id", "properties_text"]

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A further address of one broker: for clients that encrypt or authenticate."""

    name: str
    protocol: str
    """As Kafka names them: "SSL", "SASL_PLAINTEXT", "SASL_SSL"."""
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where one broker listens, for clients and for the other controllers. Ids count from 1."""

    id: int
    port: int
    controller_port: int
    further: tuple[Listener, ...] = field(default=())


def broker_properties(node: Node, nodes: Sequence[Node], data: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of one node, in KRaft's combined mode (each is broker and controller).

    Args:
        node: the one they are for.
        nodes: all of the cluster.
        data: where it keeps its log.
        overrides: win over everything here.
    """
    replicas = str(min(3, len(nodes)))
    in_sync = "2" if len(nodes) >= 3 else "1"
    further = [f"{each.name}://{HOST}:{each.port}" for each in node.further]
    protocols = [f"{each.name}:{each.protocol}" for each in node.further]
    defaults = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in nodes),
        "listeners": ",".join(
            [f"PLAINTEXT://{HOST}:{node.port}", f"CONTROLLER://{HOST}:{node.controller_port}", *further]
        ),
        "advertised.listeners": ",".join([f"PLAINTEXT://{HOST}:{node.port}", *further]),
        "listener.security.protocol.map": ",".join(["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *protocols]),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        # A mistyped topic should fail a test, not make a topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Internal topics are made when the first group or transaction asks: fewer partitions, a sooner first join.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.num.partitions": "8",
        # By default the first join of a group waits 3 s for others.
        "group.initial.rebalance.delay.ms": "0",
        # A new broker serves at the first heartbeat after it caught up: by default these are 2 s apart.
        "broker.heartbeat.interval.ms": "200",
        # A killed broker is let in again when its session has ended: by default after 9 s.
        "broker.session.timeout.ms": "3000",
        # 128 MB of heap by default.
        "log.cleaner.dedupe.buffer.size": "8388608",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    return defaults | dict(overrides)


def properties_text(properties: Mapping[str, str]) -> str:
    """Write properties as Java reads them, sorted by name."""
    return "".join(f"{_escaped(name, key=True)}={_escaped(properties[name])}\n" for name in sorted(properties))


def new_kafka_id() -> str:
    """Return a random id as Kafka writes them (a UUID in unpadded URL-safe base 64, not starting with a dash)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def logging_configuration(major: int, level: str) -> tuple[str, str, str]:
    """Return the JVM property that names a logging configuration, the file's name, and its text.

    Everything goes to standard output, which the guard appends to the broker's log.

    Args:
        major: Kafka's major version: 3 logs with log4j 1, later ones with log4j 2.
        level: "WARN", "INFO", ...
    """
    if major < 4:
        text = (
            f"log4j.rootLogger={level}, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c: %m%n\n"
        )
        return "log4j.configuration", "log4j.properties", text
    text = f"""\
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c: %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
    return "log4j2.configurationFile", "log4j2.xml", text


def _escaped(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if key:
        for character in "=: ":
            escaped = escaped.replace(character, "\\" + character)
    return "\\" + escaped if escaped.startswith((" ", "#", "!")) else escaped
