"""Fetching Kafka: what Maven is asked for, what a failure says, what is left behind."""

from __future__ import annotations

import os
import threading
import xml.etree.ElementTree
from pathlib import Path

import pytest

from loadtrim.testing import distribution
from loadtrim.testing.errors import BrokerError, DistributionError, ToolMissingError
from loadtrim.testing.tools import Java

from .test_tools import script

SPACE = {"m": "http://maven.apache.org/POM/4.0.0"}
JAVA_17 = "17.0.15"

FAKE_MAVEN = """
echo run >> "$RUNS"
for argument; do case "$argument" in -DoutputDirectory=*) jars="${argument#*=}";; esac; done
mkdir -p "$jars" && touch "$jars/kafka_2.13-4.1.1.jar" "$jars/a.jar"
"""
FAKE_JAVA = """
while [ "$1" != --config ]; do shift; done
directory=$(sed -n 's/^log.dirs=//p' "$2")
mkdir -p "$directory" && echo features > "$directory/bootstrap.checkpoint"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    return tmp_path / "cache" / "loadtrim"


def use_maven(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = script(tmp_path / "bin" / "mvn", text)
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return Java(script(tmp_path / "jdk" / "java", FAKE_JAVA), JAVA_17)


@pytest.mark.parametrize(
    ("version", "binding"),
    [("3.9.1", "slf4j-reload4j"), ("4.1.1", "log4j-slf4j-impl"), ("5.0.0", "log4j-slf4j-impl")],
)
def test_the_project_asks_for_the_broker_and_a_logging_backend_that_fits_it(version: str, binding: str) -> None:
    project = xml.etree.ElementTree.fromstring(distribution.pom(version))

    found = [
        tuple(dependency.findtext(f"m:{field}", "", SPACE) for field in ("groupId", "artifactId", "version"))
        for dependency in project.iterfind(".//m:dependency", SPACE)
    ]
    assert found[0] == ("org.apache.kafka", "kafka_2.13", version)
    assert [artifact for _, artifact, _ in found[1:]] == [binding]


@pytest.mark.parametrize("version", ["", "4.1", "3.8.1", "2.13-4.1.1", "4.1.1/../x", "latest"])
def test_a_version_that_cannot_be_run_is_refused_before_anything_is_fetched(
    version: str, java: Java, cache: Path
) -> None:
    with pytest.raises(ValueError, match=r"such as 3\.9\.1 or 4\.1\.1"):
        distribution.prepare(version, java)
    assert not cache.exists()


def test_what_is_fetched_is_found_again_without_maven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java, cache: Path
) -> None:
    use_maven(FAKE_MAVEN, tmp_path, monkeypatch)
    told: list[str] = []

    first = distribution.prepare("4.1.1", java, told.append)
    monkeypatch.setenv("PATH", "")
    second = distribution.prepare("4.1.1", java, told.append)

    assert first == second
    assert [jar.name for jar in first.jars] == ["a.jar", "kafka_2.13-4.1.1.jar"]
    assert first.bootstrap.read_text(encoding="utf-8") == "features\n"
    assert told == ["fetching Kafka 4.1.1 by Maven (once, about 54 MB)"]
    assert first.root.parent == cache


def test_who_comes_while_it_is_fetched_waits_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java, cache: Path
) -> None:
    use_maven(FAKE_MAVEN, tmp_path, monkeypatch)
    found: list[distribution.Distribution] = []
    # flock is held by the open file, so threads shut each other out as processes do.
    threads = [
        threading.Thread(target=lambda: found.append(distribution.prepare("4.1.1", java, lambda _: None)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 4
    assert tmp_path.joinpath("runs").read_text(encoding="utf-8") == "run\n"


def test_without_maven_nothing_is_left_in_the_cache(monkeypatch: pytest.MonkeyPatch, java: Java, cache: Path) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ToolMissingError, match="Install Maven"):
        distribution.prepare("4.1.1", java, lambda _: None)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_what_maven_says_is_in_the_error_and_nothing_half_made_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java, cache: Path
) -> None:
    use_maven("echo '[ERROR] Could not find artifact kafka_2.13:jar:4.99.0'; exit 1", tmp_path, monkeypatch)

    with pytest.raises(DistributionError) as caught:
        distribution.prepare("4.99.0", java, lambda _: None)

    text = str(caught.value)
    assert "Maven could not fetch Kafka 4.99.0" in text
    assert "[ERROR] Could not find artifact" in text
    assert "By hand: " in text
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_what_a_killed_process_left_half_made_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java, cache: Path
) -> None:
    use_maven(FAKE_MAVEN, tmp_path, monkeypatch)
    left = cache / f"kafka-4.1.1-{distribution.LAYOUT}.making-abc" / "jars"
    left.mkdir(parents=True)

    distribution.prepare("4.1.1", java, lambda _: None)

    assert not left.parent.exists()


def test_a_cache_that_cannot_be_made_is_an_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    tmp_path.joinpath("file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(DistributionError, match="Set XDG_CACHE_HOME"):
        distribution.prepare("4.1.1", java)


def kafka_at(root: Path) -> distribution.Distribution:
    root.mkdir(parents=True)
    return distribution.Distribution("4.1.1", (), root / "bootstrap.checkpoint", root)


def test_the_archive_of_classes_is_written_once_per_java(tmp_path: Path, java: Java) -> None:
    kafka = kafka_at(tmp_path / "kafka-4.1.1")
    written: list[Path] = []

    def write(path: Path) -> None:
        written.append(path)
        path.write_text("classes", encoding="utf-8")

    first = distribution.class_archive(kafka, java, write, lambda _: None)
    again = distribution.class_archive(kafka, java, write, lambda _: None)
    other = distribution.class_archive(kafka, java._replace(version="21.0.1"), write, lambda _: None)

    assert first is not None
    assert first.read_text(encoding="utf-8") == "classes"
    assert again == first
    assert other not in (None, first)
    assert len(written) == 2


def test_an_archive_that_cannot_be_written_is_done_without_and_not_tried_again(
    tmp_path: Path, java: Java, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = kafka_at(tmp_path / "kafka-4.1.1")
    tries: list[Path] = []

    def write(path: Path) -> None:
        tries.append(path)
        raise BrokerError("it does not start")

    assert distribution.class_archive(kafka, java, write, lambda _: None) is None
    assert distribution.class_archive(kafka, java, write, lambda _: None) is None
    assert len(tries) == 1
    assert "it does not start" in caplog.text


def test_a_relative_cache_setting_is_ignored_as_its_standard_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert distribution.cache_directory() == Path.home() / ".cache" / "loadtrim"
