"""``loadtrim doctor``: what a group's members need of the brokers and have not."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from loadtrim.errors import EXIT_DONE, EXIT_FAILED
from loadtrim.observer.checkup import Finding, Needs, Verdict, checkup, unreachable
from loadtrim.observer.cluster_checkup import look_at_cluster
from loadtrim.observer.connection import CLIENT_LOG, Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import topic_of
from loadtrim.observer.rights import ask_rights
from loadtrim.settings import Settings
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.target import target_of
from loadtrim_agent.observability.text import printable

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "run"]


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``doctor`` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="what a group's members need of the brokers and have not",
        description="Asks the brokers, as the principal of --config, what members of a group need: its topics, the "
        "group, its control topic with its settings; in a pod with LOADTRIM_SCALER=kubernetes the API server for its "
        "rights, too. Prints what is missing with the line that grants it. Makes and "
        "changes nothing. Exit code 0: nothing is missing; 1: something is.",
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="a topic that it consumes")
    parser.add_argument("--json", action="store_true", help="print a JSON list of what was found")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; returns the exit code."""
    connection = connection_from(args)
    needs = Needs(
        bootstrap=connection.bootstrap,
        group=args.group,
        topics=tuple(dict.fromkeys(args.topics)),
        control=topic_of(args.group),
        user=str(connection.options.get("sasl_plain_username", "NAME")),
    )
    settings = Settings.from_env()
    found = asyncio.run(_look(connection, needs))
    if settings.scaler == "kubernetes":
        target = target_of(settings.kubernetes_target, instance_name(settings))
        found += asyncio.run(look_at_cluster(ClusterApi(settings.kubernetes_namespace), target, args.group))
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n".join(line for finding in found for line in _lines(finding)))
    return EXIT_FAILED if any(finding.verdict is Verdict.MISSING for finding in found) else EXIT_DONE


async def _look(connection: Connection, needs: Needs) -> list[Finding]:
    try:
        rights = await ask_rights(connection.client_options(), needs.group, (*needs.topics, needs.control))
    except (KafkaError, OSError) as error:
        return [unreachable(connection.bootstrap, CLIENT_LOG.last or f"{type(error).__name__}: {error}")]
    settings = await _settings(connection, needs.control) if rights.topics[needs.control].code == 0 else None
    return checkup(needs, rights, settings)


async def _settings(connection: Connection, topic: str) -> dict[str, str] | None:
    """Return the topic's settings by name; None: they may not be read."""
    admin = AIOKafkaAdminClient(**connection.client_options())
    try:
        await admin.start()
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    except (KafkaError, OSError):
        return None
    finally:
        await admin.close()
    for answer in answers:
        for code, _, _, _, entries in answer.resources:
            if not code:
                return {entry[0]: entry[1] for entry in entries}
    return None


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.verdict.value:<8} {printable(finding.what)}: {printable(finding.detail)}"]
    if finding.remedy:
        lines.append(f"         {printable(finding.remedy)}")
    return lines
