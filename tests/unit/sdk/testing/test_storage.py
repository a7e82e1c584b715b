"""Formatting the brokers' directories, and finding them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtrim.testing.distribution import Distribution
from loadtrim.testing.errors import LocalKafkaError
from loadtrim.testing.storage import format_cluster


@pytest.fixture
def kafka(tmp_path: Path) -> Distribution:
    bootstrap = tmp_path / "bootstrap.checkpoint"
    bootstrap.write_bytes(b"features")
    return Distribution("4.1.1", (), bootstrap, tmp_path)


def meta(directory: Path, node_id: int) -> dict[str, str]:
    text = directory.joinpath(f"broker-{node_id}", "data", "meta.properties").read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.splitlines())


def test_nodes_share_the_cluster_and_its_features_and_have_directories_of_their_own(
    tmp_path: Path, kafka: Distribution
) -> None:
    format_cluster(tmp_path / "data", 3, kafka)

    found = [meta(tmp_path / "data", node_id) for node_id in (1, 2, 3)]
    assert [each["node.id"] for each in found] == ["1", "2", "3"]
    assert {each["version"] for each in found} == {"1"}
    assert len({each["cluster.id"] for each in found}) == 1
    assert len({each["directory.id"] for each in found}) == 3
    for node_id in (1, 2, 3):
        checkpoint = tmp_path / "data" / f"broker-{node_id}" / "data" / "bootstrap.checkpoint"
        assert checkpoint.read_bytes() == b"features"


def test_a_cluster_found_there_is_left_as_it_is(tmp_path: Path, kafka: Distribution) -> None:
    format_cluster(tmp_path / "data", 1, kafka)
    before = meta(tmp_path / "data", 1)

    format_cluster(tmp_path / "data", 1, kafka)
    format_cluster(tmp_path / "data", 1, replace(kafka, version="4.2.0"))

    assert meta(tmp_path / "data", 1) == before


def test_a_cluster_of_another_size_is_refused(tmp_path: Path, kafka: Distribution) -> None:
    format_cluster(tmp_path / "data", 3, kafka)

    with pytest.raises(LocalKafkaError, match=r"holds a cluster of 3 broker\(s\), Kafka 4\.1\.1, and 1 are asked for"):
        format_cluster(tmp_path / "data", 1, kafka)


def test_what_a_newer_kafka_wrote_is_refused(tmp_path: Path, kafka: Distribution) -> None:
    format_cluster(tmp_path / "data", 1, replace(kafka, version="4.10.0"))

    with pytest.raises(LocalKafkaError, match="cannot read what a newer one wrote"):
        format_cluster(tmp_path / "data", 1, replace(kafka, version="4.9.1"))
