"""Kafka's jars: fetched once per version by Maven into the user's cache, made ready to start in seconds.

The cache (``$XDG_CACHE_HOME/loadtrim``, by default ``~/.cache/loadtrim``) holds per version the jars and a formatted
storage's ``bootstrap.checkpoint``, which spares every later start the JVM that would format it; and per version and
Java an archive of loaded classes. Processes that want the same version at the same time wait for one of them; what
is half made is never seen (made beside, then renamed), and a killed process leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aiokafka.errors import KafkaError

from loadtrim.testing.errors import DistributionError, LocalKafkaError
from loadtrim.testing.tools import Java, find_maven

__all__ = ["Distribution", "cache_directory", "class_archive", "locked", "pom", "prepare"]

logger = logging.getLogger("loadtrim.testing")

LAYOUT = 1
"""Counted up when what is in the cache changes, so that an older loadtrim's cache is not misread."""

MAVEN_SECONDS = 900.0
FORMAT_SECONDS = 120.0
OUTPUT_TAIL_CHARACTERS = 2000
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

# kafka_2.13 logs through slf4j 1.7 and brings no binding. Kafka 3's own code also calls log4j 1 itself.
_LOGGING_BY_MAJOR = {3: "org.slf4j:slf4j-reload4j:1.7.36"}
_LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"

_FORMAT_CLUSTER_ID = "bG9hZHRyaW0tbG9jYWwta2"
_FORMAT_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}
"""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One version of Kafka in the cache.

    Attributes:
        version: Kafka's version, "4.1.1".
        jars: the class path, sorted: an archive of classes is only valid for the very same one.
        bootstrap: what formatting writes beside ``meta.properties``: the version's features, the same on every node.
        root: the directory of all this.
    """

    version: str
    jars: tuple[Path, ...]
    bootstrap: Path
    root: Path

    @property
    def major(self) -> int:
        """Kafka's major version."""
        return int(self.version.split(".", 1)[0])

    @property
    def class_path(self) -> str:
        """The jars as java's ``-cp`` wants them."""
        return os.pathsep.join(map(str, self.jars))


def cache_directory() -> Path:
    """Return ``$XDG_CACHE_HOME/loadtrim``, by default ``~/.cache/loadtrim``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "loadtrim"


def pom(version: str) -> str:
    """Return the Maven project whose dependencies are one Kafka broker and a logging backend."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}"]
    coordinates.append(_LOGGING_BY_MAJOR.get(int(version.split(".", 1)[0]), _LOGGING))
    dependencies = "\n".join(
        "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *coordinate.split(":")
        )
        for coordinate in coordinates
    )
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>loadtrim</groupId>
  <artifactId>local-kafka</artifactId>
  <version>{LAYOUT}</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def prepare(version: str, java: Java, tell: Callable[[str], None] | None = None) -> Distribution:
    """Return a version of Kafka from the cache, fetched first when it is not there (once, some 10 s).

    Args:
        version: as on Maven Central, "4.1.1"; 3.9 and 4.x can be run.
        java: formats the storage.
        tell: is given one line before something that takes long; by default it goes to standard error.

    Raises:
        DistributionError: Maven cannot fetch it, or its storage cannot be formatted.
        ToolMissingError: it has to be fetched and there is no Maven.
        ValueError: this is not a version that can be run.
    """
    if not re.fullmatch(r"(3\.9|[4-9]\.\d+)\.\d+([.-]\w+)?", version):
        raise ValueError(
            f"Kafka version {version!r} cannot be run here: give one as on Maven Central, 3.9.0 or newer, "
            "such as 3.9.1 or 4.1.1 (LOADTRIM_KAFKA_VERSION, or the argument `version`)"
        )
    root = cache_directory() / f"kafka-{version}-{LAYOUT}"
    if not root.is_dir():
        _make_cache(root.parent)
        with locked(root.with_name(root.name + ".lock")):
            if not root.is_dir():
                (tell or _tell_standard_error)(f"fetching Kafka {version} by Maven (once, about 54 MB)")
                _fetch(root, version, java)
    jars = tuple(sorted(root.joinpath("jars").glob("*.jar")))
    return Distribution(version, jars, root / "bootstrap.checkpoint", root)


def class_archive(
    distribution: Distribution,
    java: Java,
    write: Callable[[Path], None],
    tell: Callable[[str], None] | None = None,
) -> Path | None:
    """Return the archive of a broker's loaded classes (class data sharing), written first when it is not there.

    It cuts the time to start by 40 % and the processor time by a third, and changes nothing once the broker runs.

    Args:
        distribution: the version of Kafka.
        java: an archive is good for one Java only.
        write: makes the archive at a path; when it fails, that is logged and not tried again.
        tell: as of :func:`prepare`.

    Returns:
        Its path; None when it could not be written.
    """
    digest = hashlib.sha256(f"{java.path.resolve()} {java.version}".encode()).hexdigest()[:12]
    archive = distribution.root.with_name(f"{distribution.root.name}-{digest}.jsa")
    if not archive.exists():
        # Where the cache cannot be written there is no archive, and no harm.
        with contextlib.suppress(OSError), locked(distribution.root.with_name(distribution.root.name + ".lock")):
            if not archive.exists():
                (tell or _tell_standard_error)(f"preparing Kafka {distribution.version} for quick starts (once)")
                _write_archive(archive, write)
    # An empty one says that it was tried and cannot be made here.
    return archive if archive.exists() and archive.stat().st_size else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock; the kernel gives it up with the process that holds it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_cache(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DistributionError(
            f"Kafka's jars are kept in {directory}, which cannot be made: {error}. "
            "Set XDG_CACHE_HOME to a directory that can be written"
        ) from error


def _write_archive(archive: Path, write: Callable[[Path], None]) -> None:
    making = archive.with_suffix(".making")
    making.unlink(missing_ok=True)
    try:
        write(making)
    except (LocalKafkaError, KafkaError, OSError) as error:
        logger.warning(
            "Kafka starts a second slower than it could, for its classes could not be archived; "
            "to try again, remove %s. %s",
            archive,
            error,
        )
    making.touch()
    making.rename(archive)


def _fetch(root: Path, version: str, java: Java) -> None:
    maven = find_maven()
    for left_by_a_killed_process in root.parent.glob(f"{root.name}.making-*"):
        shutil.rmtree(left_by_a_killed_process, ignore_errors=True)
    making = Path(tempfile.mkdtemp(prefix=f"{root.name}.making-", dir=root.parent))
    try:
        _copy_jars(maven, making, version)
        _format(making, version, java)
        making.chmod(0o755)
        making.rename(root)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _copy_jars(maven: Path, making: Path, version: str) -> None:
    making.joinpath("pom.xml").write_text(pom(version), encoding="utf-8")
    command = [
        str(maven), "--batch-mode", "--strict-checksums", "--quiet", "--no-transfer-progress", "-Dstyle.color=never",
        "--file", str(making / "pom.xml"),
        f"{DEPENDENCY_PLUGIN}:copy-dependencies",
        f"-DoutputDirectory={making / 'jars'}", "-DincludeScope=runtime",
    ]  # fmt: skip
    what = f"Maven could not fetch Kafka {version}"
    advice = (
        f"Does this version exist (https://central.sonatype.com/artifact/org.apache.kafka/kafka_2.13), and does Maven "
        f"reach its repository (a proxy or mirror belongs in ~/.m2/settings.xml)? By hand: {' '.join(command)}"
    )
    _run(command, MAVEN_SECONDS, what, advice)
    if not list(making.joinpath("jars").glob("kafka_2.13-*.jar")):
        raise DistributionError(f"{what}: it ended well, but without Kafka's jar. {advice}")


def _format(making: Path, version: str, java: Java) -> None:
    data = making / "formatted"
    properties = making / "format.properties"
    properties.write_text(_FORMAT_PROPERTIES.format(directory=data), encoding="utf-8")
    command = [
        str(java.path), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(making / "jars" / "*"),
        "kafka.tools.StorageTool", "format", "--cluster-id", _FORMAT_CLUSTER_ID, "--config", str(properties),
    ]  # fmt: skip
    _run(
        command, FORMAT_SECONDS, f"Kafka {version} could not format its storage",
        "This version may not be one that loadtrim can run: 3.9.1, 4.0.1 and 4.1.1 are tried.",
    )  # fmt: skip
    data.joinpath("bootstrap.checkpoint").rename(making / "bootstrap.checkpoint")
    shutil.rmtree(data)
    properties.unlink()


def _run(command: list[str], timeout_seconds: float, what: str, advice: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=timeout_seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DistributionError(f"{what} within {timeout_seconds:.0f} s. {advice}") from error
    if done.returncode:
        tail = done.stdout.strip()[-OUTPUT_TAIL_CHARACTERS:]
        raise DistributionError(f"{what}. {advice}\nWhat it said:\n{tail}")


def _tell_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
