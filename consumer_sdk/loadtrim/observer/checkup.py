"""A checkup tells what a group's members need of the brokers and have not, with the line that grants it. Pure."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping, Sequence

import msgspec
from aiokafka.errors import for_code

from loadtrim_agent.kafka.control_topic import topic_configs

from .rights import ClusterRights, Operation, Rights

__all__ = ["CONTROL_PARTITIONS", "Finding", "Needs", "Verdict", "checkup", "unreachable"]

UNKNOWN_TOPIC = 3
TOPIC_FORBIDDEN = 29
GROUP_FORBIDDEN = 30
CONTROL_PARTITIONS = 2
_CHECKED = ("cleanup.policy", "message.timestamp.type")
"""Settings of the control topic without which a group does not work; the others may be chosen."""
_COORDINATOR, _CONTROL, _METADATA, _EACH = 4, 5, 3, 3
"""Connections that a member has at most, by what is asked for. The last are to each broker, for what is fetched.
Derived: one for each kind of request, since one waits for no other."""
_IDLE, _BUSY = 3, 5
"""Connections of a member to the only broker of a cluster. Measured: docs/decisions/control-topic.md."""


class Verdict(enum.StrEnum):
    """A verdict is one of these."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """Nothing tells; members may have it all the same."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding is about one thing that members need."""

    what: str
    verdict: Verdict
    detail: str
    remedy: str = ""
    """A command that grants or makes it; empty: there is none, or nothing is missing."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The group is looked at by these names."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    control: str
    """Control topic of the group."""
    user: str = "NAME"
    """Principal of the members, for the lines."""

    def grant(self, *words: str) -> str:
        """Return the command that adds an ACL."""
        return self.command("kafka-acls.sh", "--add", "--allow-principal", f"User:{self.user}", *words)

    def command(self, tool: str, *words: str) -> str:
        """Return the command line of one of Kafka's own tools."""
        return shlex.join((tool, "--bootstrap-server", self.bootstrap, *words))

    def on_topic(self, topic: str, operations: Sequence[Operation]) -> str:
        """Return the command that lets the principal do this with a topic."""
        return self.grant(*(word for each in operations for word in ("--operation", each.name)), "--topic", topic)


def unreachable(bootstrap: str, why: str) -> Finding:
    """Return what there is to say where no broker answers: nothing else can be looked at."""
    check = "check the address (--bootstrap), and the settings for TLS and SASL (--config)"
    return Finding(what="brokers", verdict=Verdict.MISSING, detail=f"nothing answers at {bootstrap} ({why}): {check}")


def checkup(needs: Needs, rights: ClusterRights, settings: Mapping[str, str] | None) -> list[Finding]:
    """Return what was found, in the order in which a member needs it.

    Args:
        needs: the group.
        rights: the brokers' answers, about ``needs.topics`` and ``needs.control``.
        settings: of the control topic; None: they may not be read, or it is not there.
    """
    found = [_brokers(needs, rights), *(_topic(needs, topic, rights.topics[topic]) for topic in needs.topics)]
    if not needs.topics:
        found.append(Finding(what="topics", verdict=Verdict.UNKNOWN, detail="none was given to look at"))
    found += [_group(needs, rights.group), _control(needs, rights)]
    if rights.topics[needs.control].code == 0:
        found.append(_settings(needs, settings))
    return found


def _brokers(needs: Needs, rights: ClusterRights) -> Finding:
    count = rights.brokers
    most = _COORDINATOR + _CONTROL + _METADATA + _EACH * count
    what = "1 broker answers" if count == 1 else f"{count} brokers answer"
    number = (
        f"{_IDLE} to {_BUSY} connections to it, for moments up to {most}"
        if count == 1
        else f"up to {most} connections to them, most for moments"
    )
    detail = f"{what} at {needs.bootstrap}; a member has {number}"
    return Finding(what="brokers", verdict=Verdict.OK, detail=detail)


def _topic(needs: Needs, topic: str, rights: Rights) -> Finding:
    what, wanted = f"topic {topic}", (Operation.READ, Operation.DESCRIBE)
    if rights.code == UNKNOWN_TOPIC:
        return Finding(
            what=what, verdict=Verdict.MISSING, detail="there is none of this name: check it, or make the topic"
        )
    return _rights(needs, what, topic, rights, wanted) or Finding(
        what=what,
        verdict=Verdict.OK,
        detail=f"may be read; {rights.partitions} partitions, so at most as many replicas",
    )


def _rights(needs: Needs, what: str, topic: str, rights: Rights, wanted: tuple[Operation, ...]) -> Finding | None:
    """Return what is wrong with the rights on a topic that is there; None: nothing is."""
    lacks = wanted if rights.code == TOPIC_FORBIDDEN else rights.lacks(*wanted)
    if lacks:
        detail = f"this principal lacks {_listed(lacks)}"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=needs.on_topic(topic, lacks))
    if rights.code:
        return Finding(what=what, verdict=Verdict.UNKNOWN, detail=for_code(rights.code).__name__)
    if rights.operations is None:
        return Finding(
            what=what, verdict=Verdict.UNKNOWN, detail="it is there; the broker does not tell what is allowed"
        )
    return None


def _group(needs: Needs, rights: Rights) -> Finding:
    what = f"group {needs.group}"
    if rights.code == GROUP_FORBIDDEN or rights.lacks(Operation.READ):
        remedy = needs.grant("--operation", "READ", "--group", needs.group)
        return Finding(what=what, verdict=Verdict.MISSING, detail="this principal lacks READ", remedy=remedy)
    if rights.code or rights.operations is None:
        told = for_code(rights.code).__name__ if rights.code else "the broker does not tell what is allowed"
        return Finding(what=what, verdict=Verdict.UNKNOWN, detail=told)
    return Finding(what=what, verdict=Verdict.OK, detail="may be joined")


def _control(needs: Needs, rights: ClusterRights) -> Finding:
    what, there = f"control topic {needs.control}", rights.topics[needs.control]
    if there.code == UNKNOWN_TOPIC:
        if Operation.CREATE in (rights.cluster.operations or ()):
            return Finding(what=what, verdict=Verdict.OK, detail="the first member makes it")
        detail = "it is not there, and nothing tells whether members may make it"
        return Finding(what=what, verdict=Verdict.UNKNOWN, detail=detail, remedy=_create(needs))
    wanted = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
    if wrong := _rights(needs, what, needs.control, there, wanted):
        return wrong
    if there.partitions < CONTROL_PARTITIONS:
        detail = f"it has {there.partitions} partition, and {CONTROL_PARTITIONS} are needed"
        words = ("--alter", "--topic", needs.control, "--partitions", str(CONTROL_PARTITIONS))
        remedy = needs.command("kafka-topics.sh", *words)
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=remedy)
    return Finding(what=what, verdict=Verdict.OK, detail="may be read and written")


def _settings(needs: Needs, settings: Mapping[str, str] | None) -> Finding:
    what = "its settings"
    if settings is None:
        return Finding(what=what, verdict=Verdict.UNKNOWN, detail="they may not be read (DESCRIBE_CONFIGS)")
    wanted = {name: value for name, value in topic_configs().items() if name in _CHECKED}
    wrong = {name: value for name, value in wanted.items() if settings.get(name) != value}
    if not wrong:
        return Finding(what=what, verdict=Verdict.OK, detail="as they have to be")
    has = ", ".join(f"{name} is {settings.get(name)}" for name in wrong)
    added = ",".join(f"{name}={value}" for name, value in wrong.items())
    words = ("--alter", "--entity-type", "topics", "--entity-name", needs.control, "--add-config", added)
    remedy = needs.command("kafka-configs.sh", *words)
    return Finding(what=what, verdict=Verdict.MISSING, detail=has, remedy=remedy)


def _create(needs: Needs) -> str:
    configs = (word for name, value in topic_configs().items() for word in ("--config", f"{name}={value}"))
    words = ("--create", "--topic", needs.control, "--partitions", str(CONTROL_PARTITIONS))
    return needs.command("kafka-topics.sh", *words, *configs)


def _listed(operations: Sequence[Operation]) -> str:
    return " and ".join(each.name for each in operations)
