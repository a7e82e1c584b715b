"""What is said of the brokers' answers: missing only what is known to be missing, and each with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtrim.observer.checkup import GROUP_FORBIDDEN, TOPIC_FORBIDDEN, UNKNOWN_TOPIC, Finding, Needs, Verdict, checkup
from loadtrim.observer.rights import ClusterRights, Operation, Rights
from loadtrim_agent.kafka.connections import Channel
from loadtrim_agent.kafka.control_topic import topic_configs
from loadtrim_agent.kafka.fetch.channels import FetchChannel

OPERATIONS = Path(__file__).parents[4] / "docs" / "operations.md"
NEEDS = Needs(bootstrap="b:9092", group="g", topics=("t",), control="c")
ALL = frozenset(Operation)
WELL = Rights(operations=ALL, partitions=2)
START = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:NAME"


def looked(
    topic: Rights = WELL,
    group: Rights = WELL,
    control: Rights = WELL,
    cluster: Rights = WELL,
    brokers: int = 1,
    settings: dict[str, str] | None = None,
) -> dict[str, Finding]:
    rights = ClusterRights(brokers=brokers, cluster=cluster, topics={"t": topic, "c": control}, group=group)
    names = ("brokers", "topic", "group", "control", "settings")
    return dict(zip(names, checkup(NEEDS, rights, settings or topic_configs()), strict=False))


def test_where_all_is_there_nothing_is_said_to_be_done() -> None:
    found = looked()
    assert {finding.verdict for finding in found.values()} == {Verdict.OK}
    assert not any(finding.remedy for finding in found.values())
    assert len(found) == 5


@pytest.mark.parametrize(
    ("rights", "line"),
    [
        (Rights(code=TOPIC_FORBIDDEN), f"{START} --operation READ --operation DESCRIBE --topic t"),
        (Rights(operations=ALL - {Operation.READ}), f"{START} --operation READ --topic t"),
        (Rights(operations=ALL - {Operation.DESCRIBE}), f"{START} --operation DESCRIBE --topic t"),
    ],
)
def test_the_line_of_a_topic_grants_what_is_missing_and_no_more(rights: Rights, line: str) -> None:
    finding = looked(topic=rights)["topic"]
    assert (finding.verdict, finding.remedy) == (Verdict.MISSING, line)


def test_members_write_to_the_control_topic() -> None:
    finding = looked(control=Rights(operations=ALL - {Operation.WRITE}, partitions=2))["control"]
    assert (finding.verdict, finding.remedy) == (Verdict.MISSING, f"{START} --operation WRITE --topic c")


@pytest.mark.parametrize("rights", [Rights(code=GROUP_FORBIDDEN), Rights(operations=ALL - {Operation.READ})])
def test_the_group_s_line(rights: Rights) -> None:
    finding = looked(group=rights)["group"]
    assert (finding.verdict, finding.remedy) == (Verdict.MISSING, f"{START} --operation READ --group g")


def test_what_a_broker_does_not_tell_is_unknown_and_not_missing() -> None:
    silent = Rights(partitions=2)
    found = looked(topic=silent, group=silent, control=silent)
    assert [found[name].verdict for name in ("topic", "group", "control")] == [Verdict.UNKNOWN] * 3


def test_a_control_topic_that_is_not_there_is_made_by_whom_may_create_topics() -> None:
    absent = Rights(code=UNKNOWN_TOPIC)
    assert looked(control=absent)["control"].verdict is Verdict.OK
    finding = looked(control=absent, cluster=Rights(operations=ALL - {Operation.CREATE}))["control"]
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.remedy.startswith("kafka-topics.sh --bootstrap-server b:9092 --create --topic c --partitions 2 ")
    assert "--config cleanup.policy=delete" in finding.remedy
    assert "settings" not in looked(control=absent)


def test_a_control_topic_of_one_partition_is_too_small() -> None:
    finding = looked(control=Rights(operations=ALL, partitions=1))["control"]
    assert finding.verdict is Verdict.MISSING
    assert finding.remedy.endswith("--alter --topic c --partitions 2")


def test_settings_that_a_group_works_without_are_left_alone() -> None:
    configs = topic_configs() | {"retention.ms": "1"}
    assert looked(settings=configs)["settings"].verdict is Verdict.OK
    finding = looked(settings=configs | {"cleanup.policy": "compact"})["settings"]
    assert (finding.verdict, finding.detail) == (Verdict.MISSING, "cleanup.policy is compact")
    assert finding.remedy.endswith("--entity-name c --add-config cleanup.policy=delete")


def test_names_that_a_shell_would_read_are_quoted() -> None:
    needs = Needs(bootstrap="b:9092", group="g; rm -rf /", topics=(), control="c", user="CN=a b")
    rights = ClusterRights(brokers=1, cluster=WELL, topics={"c": WELL}, group=Rights(code=GROUP_FORBIDDEN))
    remedy = checkup(needs, rights, topic_configs())[2].remedy
    assert remedy.endswith("--group 'g; rm -rf /'")
    assert "'User:CN=a b'" in remedy


def test_the_connections_of_a_member_are_those_of_the_page() -> None:
    """It told 13 to one broker, which members had before they shared a pool."""
    page = OPERATIONS.read_text()
    idle, busy, most = map(
        int, re.findall(r"has (\d+) while it is idle and (\d+) under load.*?\((\d+)\)", page, re.S)[0]
    )
    told = f"a member has {idle} to {busy} connections to it, for moments up to {most}"
    assert looked()["brokers"].detail.endswith(told)
    assert len(Channel) + len(FetchChannel) < int(most), "each kind of request may have one"
    assert looked(brokers=3)["brokers"].detail.endswith("a member has up to 21 connections to them, most for moments")
