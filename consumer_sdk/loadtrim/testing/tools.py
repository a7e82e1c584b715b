"""Java and Maven on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from loadtrim.testing.errors import ToolMissingError

__all__ = ["JAVA_MAJOR_MIN", "Java", "find_java", "find_maven", "java_major"]

JAVA_MAJOR_MIN = 17
JAVA_VERSION_SECONDS = 30.0

_JAVA_HELP = (
    f"Install Java {JAVA_MAJOR_MIN} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put it on PATH or set JAVA_HOME; "
    "or set KAFKA_BOOTSTRAP to use a Kafka that is already running."
)
_MAVEN_HELP = (
    "Install Maven 3.6.1 or newer (Debian and Ubuntu: apt install maven; macOS: brew install maven) and put it on "
    "PATH; or set KAFKA_BOOTSTRAP to use a Kafka that is already running."
)


class Java(NamedTuple):
    """A Java that is new enough: where it is and what it calls itself ("17.0.15")."""

    path: Path
    version: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find ``$JAVA_HOME/bin/java``, else ``java`` on PATH, and check its version.

    Raises:
        ToolMissingError: there is none, it does not run, or it is older than 17.
    """
    home = environ.get("JAVA_HOME", "")
    found = shutil.which(Path(home, "bin", "java")) if home else None
    found = found or shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise ToolMissingError(f"A local Kafka needs Java, and there is no java on PATH nor in JAVA_HOME. {_JAVA_HELP}")
    path = Path(found)
    version = _version_from_release_file(path) or _version_from_java_itself(path)
    if java_major(version) < JAVA_MAJOR_MIN:
        raise ToolMissingError(
            f"A local Kafka needs Java {JAVA_MAJOR_MIN} or newer, and {path} is Java {version}. {_JAVA_HELP}"
        )
    return Java(path, version)


def find_maven(environ: Mapping[str, str] = os.environ) -> Path:
    """Find ``mvn`` on PATH.

    Raises:
        ToolMissingError: there is none.
    """
    found = shutil.which("mvn", path=environ.get("PATH", ""))
    if found is None:
        raise ToolMissingError(f"Maven fetches Kafka's jars the first time, and there is no mvn on PATH. {_MAVEN_HELP}")
    return Path(found)


def java_major(version: str) -> int:
    """Return the feature release of a Java version: 17 of "17.0.15", 8 of "1.8.0_392", 0 when it is unreadable."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) == 2 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else 0


def _version_from_release_file(java: Path) -> str | None:
    """Read the version that every JDK keeps beside its ``bin``; asking the JVM costs a tenth of a second."""
    try:
        text = java.resolve().parent.parent.joinpath("release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return match[1] if match else None


def _version_from_java_itself(java: Path) -> str:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissingError(f"{java} does not run: {error}. {_JAVA_HELP}") from error
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if done.returncode or match is None:
        text = (done.stderr or done.stdout).strip()[-500:]
        raise ToolMissingError(f"{java} -version does not tell its version ({text!r}). {_JAVA_HELP}")
    return match[1]
