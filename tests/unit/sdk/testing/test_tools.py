"""Java and Maven: found, or an error that says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtrim.testing.errors import ToolMissingError
from loadtrim.testing.tools import find_java, find_maven, java_major


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("11.0.2+9", 11), ("", 0)],
)
def test_the_feature_release_of_a_version(version: str, major: int) -> None:
    assert java_major(version) == major


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError) as caught:
        find_java({"PATH": str(tmp_path)})

    text = str(caught.value)
    assert "no java on PATH" in text
    assert "Java 17" in text
    assert "KAFKA_BOOTSTRAP" in text


def test_without_maven_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"no mvn on PATH.*Install Maven"):
        find_maven({"PATH": str(tmp_path)})


def test_a_java_that_is_too_old_is_refused_by_name(tmp_path: Path) -> None:
    java = script(tmp_path / "bin" / "java", """echo 'openjdk version "11.0.22" 2024-01-16' >&2""")

    with pytest.raises(ToolMissingError, match=r"needs Java 17 or newer, and .*bin/java is Java 11\.0\.22") as caught:
        find_java({"PATH": str(java.parent)})
    assert "Install Java" in str(caught.value)


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    java = script(tmp_path / "bin" / "java", "echo 'no such VM' >&2; exit 3")

    with pytest.raises(ToolMissingError, match="no such VM"):
        find_java({"PATH": str(java.parent)})


def test_the_release_file_beside_java_spares_asking_it(tmp_path: Path) -> None:
    java = script(tmp_path / "jdk" / "bin" / "java", "exit 3")
    tmp_path.joinpath("jdk", "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.4"\n', encoding="utf-8")

    assert find_java({"PATH": str(java.parent)}) == (java, "21.0.4")


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    answer = """echo 'openjdk version "17.0.9"' >&2"""
    home = script(tmp_path / "home" / "bin" / "java", answer)
    other = script(tmp_path / "other" / "java", answer)

    assert find_java({"PATH": str(other.parent), "JAVA_HOME": str(tmp_path / "home")}).path == home
    assert find_java({"PATH": str(other.parent), "JAVA_HOME": str(tmp_path / "nothing")}).path == other
