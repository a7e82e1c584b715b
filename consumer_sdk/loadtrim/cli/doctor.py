"""``loadtrim doctor``: what a group's members need of the brokers and have not."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from loadtrim.errors import EXIT_DONE, EXIT_FAILED, CommandError, UsageError
from loadtrim.observer.checkup import CONTROL_PARTITIONS, Finding, Needs, Verdict, checkup, unreachable
from loadtrim.observer.clock_checkup import clock_offsets, clocks
from loadtrim.observer.cluster_checkup import (
    NAMED_ELSEWHERE,
    NAMED_IN_POD,
    look_at_cluster,
    look_at_executor,
    look_at_lease,
    look_at_pods,
    published_where,
)
from loadtrim.observer.connection import CLIENT_LOG, Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import ControlTopic, refused_settings, topic_of
from loadtrim.observer.kubeconfig import KubeconfigApi
from loadtrim.observer.rights import Operation, ask_rights
from loadtrim.settings import Settings
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.leader.scaling.kubernetes.api import WorkloadApi
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target, target_of
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
        "group, its control topic with its settings, and compares the members' clocks with the brokers'. In a pod with "
        "LOADTRIM_SCALER=kubernetes or metric, or elsewhere with --kubeconfig, it asks the API server, too. Prints "
        "what is missing with the line that grants it. Makes and changes nothing. Exit code 0: nothing is missing; 1: "
        "something is.",
    )
    parser.add_argument("group", metavar="GROUP", help="the consumer group's id")
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="a topic that it consumes")
    parser.add_argument("--json", action="store_true", help="print a JSON list of what was found")
    add_arguments(parser)
    cluster = parser.add_argument_group("a Kubernetes cluster, from elsewhere than a pod")
    cluster.add_argument("--kubeconfig", metavar="FILE", help="ask its cluster, as kubectl does")
    cluster.add_argument("--context", default="", metavar="NAME", help="of the file (the current one)")
    cluster.add_argument("--namespace", default="", metavar="NAME", help="of the workload (the context's)")
    cluster.add_argument("--workload", default="", metavar="KIND/NAME", help="that the group's pods are of")
    cluster.add_argument(
        "--service-account", default="", metavar="NAME", help="of these pods, whose rights count (default)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; returns the exit code."""
    connection = connection_from(args)
    settings = Settings.from_env()
    _check_workload(args, settings)
    needs = Needs(
        bootstrap=connection.bootstrap,
        group=args.group,
        topics=tuple(dict.fromkeys(args.topics)),
        control=topic_of(args.group),
        user=str(connection.options.get("sasl_plain_username", "NAME")),
    )
    found = asyncio.run(_look(connection, needs))
    found += asyncio.run(_look_at_orchestrator(args, settings))
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n".join(line for finding in found for line in _lines(finding)))
    return EXIT_FAILED if any(finding.verdict is Verdict.MISSING for finding in found) else EXIT_DONE


def _check_workload(args: argparse.Namespace, settings: Settings) -> None:
    try:
        if args.workload:
            parse_target(args.workload)
    except ValueError as error:
        raise UsageError(f"--workload: {error}", "Nothing was asked.", "Name it as deployment/payments, say.") from None
    if args.kubeconfig is not None:
        return
    if args.context or args.namespace or args.service_account:
        raise UsageError(
            "--context, --namespace and --service-account are of a kubeconfig.",
            "Nothing was asked.",
            "Give --kubeconfig FILE, too.",
        )
    if args.workload and settings.scaler not in ("kubernetes", "metric"):
        raise UsageError(
            f"--workload was given, and LOADTRIM_SCALER={settings.scaler} has none.",
            "No cluster would be asked about it, so nothing was asked.",
            "Give --kubeconfig FILE, too, or run it in a pod with LOADTRIM_SCALER=kubernetes or metric.",
        )


async def _look_at_orchestrator(args: argparse.Namespace, settings: Settings) -> list[Finding]:
    """Return what a pod needs of its cluster; nothing where neither a pod nor a kubeconfig says that there is one."""
    named = args.workload or settings.kubernetes_target
    api: WorkloadApi
    if args.kubeconfig is None:
        api, target = ClusterApi(settings.kubernetes_namespace), target_of(named, instance_name(settings))
    else:
        api = KubeconfigApi(args.kubeconfig, args.context, args.namespace, args.service_account or "default")
        target = parse_target(named) if named else None
    named_by = NAMED_IN_POD if args.kubeconfig is None else NAMED_ELSEWHERE
    found = []
    if settings.scaler == "metric":
        found += [published_where(settings.http), *await look_at_executor(api, target, named_by=named_by)]
    elif settings.scaler == "kubernetes" or args.kubeconfig is not None:
        found += await look_at_cluster(api, target, args.group, named_by=named_by)
    if settings.kubernetes_lease:
        found += await look_at_lease(api, settings.kubernetes_lease, args.group)
    if settings.kubernetes_pod_uid:
        found += await look_at_pods(api, watched=bool(settings.kubernetes_pod_selector))
    return found


async def _look(connection: Connection, needs: Needs) -> list[Finding]:
    try:
        with refused_settings(connection):
            rights = await ask_rights(connection.client_options(), needs.group, (*needs.topics, needs.control))
    except (KafkaError, OSError) as error:
        return [unreachable(connection.bootstrap, CLIENT_LOG.last or f"{type(error).__name__}: {error}")]
    control = rights.topics[needs.control]
    if control.code:
        return checkup(needs, rights, None)
    found = checkup(needs, rights, await _settings(connection, needs.control))
    # A topic that is too small has no telemetry to read, and the read would wait for its partition until it times out.
    if control.lacks(Operation.READ) or control.partitions < CONTROL_PARTITIONS:
        return found
    return [*found, await _clocks(connection, needs.group)]


async def _clocks(connection: Connection, group: str) -> Finding:
    try:
        async with ControlTopic(connection, group) as topic:
            recent = await topic.recent(scan_seconds=0.0)
    except CommandError as error:
        return Finding(what="clocks", verdict=Verdict.UNKNOWN, detail=error.happened)
    return clocks(clock_offsets(recent.telemetry, group))


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
