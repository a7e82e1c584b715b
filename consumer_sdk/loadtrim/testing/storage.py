"""The brokers' directories, formatted without the JVM that Kafka's own tool would need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from loadtrim.testing.distribution import Distribution
from loadtrim.testing.errors import LocalKafkaError
from loadtrim.testing.properties import new_kafka_id

__all__ = ["format_cluster"]

_DESCRIPTION = "cluster.json"


def format_cluster(directory: Path, brokers: int, kafka: Distribution) -> None:
    """Formats ``directory/broker-N/data`` of every broker; a cluster found there is left as it is.

    Writes what ``kafka-storage format`` writes: the same features on every node (copied from a storage which that
    tool formatted), and in ``meta.properties`` the cluster's id and an id of each node's directory.

    Raises:
        LocalKafkaError: what is there is a cluster of another size, or of a newer Kafka.
    """
    description = directory / _DESCRIPTION
    wanted = {"brokers": brokers, "version": kafka.version}
    if description.exists():
        _check(json.loads(description.read_text(encoding="utf-8")), wanted, directory)
        description.write_text(json.dumps(wanted), encoding="utf-8")
        return
    cluster_id = new_kafka_id()
    for node_id in range(1, brokers + 1):
        data = directory / f"broker-{node_id}" / "data"
        data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kafka.bootstrap, data / "bootstrap.checkpoint")
        data.joinpath("meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_kafka_id()}\n",
            encoding="utf-8",
        )
    description.write_text(json.dumps(wanted), encoding="utf-8")


def _check(found: dict[str, object], wanted: dict[str, object], directory: Path) -> None:
    what = f"{directory} holds a cluster of {found.get('brokers')} broker(s), Kafka {found.get('version')}"
    if found.get("brokers") != wanted["brokers"]:
        raise LocalKafkaError(
            f"{what}, and {wanted['brokers']} are asked for: ask for as many, or give another directory"
        )
    if _numbers(str(found.get("version"))) > _numbers(str(wanted["version"])):
        raise LocalKafkaError(
            f"{what}, and Kafka {wanted['version']} cannot read what a newer one wrote: "
            "ask for that version, or give another directory"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdigit())
