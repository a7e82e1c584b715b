"""Kafka on this machine: one or three brokers in KRaft mode, up in about two seconds, gone for certain."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from loadtrim.testing import distribution, properties, storage
from loadtrim.testing.cluster import Cluster, ExternalKafka, exercise
from loadtrim.testing.distribution import Distribution
from loadtrim.testing.errors import BrokerError, LocalKafkaError
from loadtrim.testing.guard import ProcessGuard
from loadtrim.testing.ports import free_ports, port_is_free
from loadtrim.testing.properties import HOST, Listener, Node
from loadtrim.testing.tools import Java, find_java
from loadtrim.testing.wire import ask_coordinator, ask_metadata

__all__ = ["KAFKA_VERSION_DEFAULT", "Broker", "LocalKafka", "any_kafka", "kafka_version"]

logger = logging.getLogger("loadtrim.testing")

KAFKA_VERSION_DEFAULT = "4.1.1"
BROKERS_ALLOWED = (1, 3)
PORT_ATTEMPTS_MAX = 3
START_SECONDS = 120.0
STOP_SECONDS = 30.0
STOP_KEPT_SECONDS = 10.0
STOP_LAST_SECONDS = 2.0
COORDINATOR_SECONDS = 5.0
ARCHIVE_SECONDS = 120.0
ANSWER_SECONDS = 0.5
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 30
LOG_TAIL_BYTES = 16_384
HEAP_MB_MIN = 128
HEAP_MB_FIRST = 64
SHORT_RUN_OPTIONS = ("-XX:TieredStopAtLevel=1",)
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)
_PORT_TAKEN = ("Address already in use", "BindException")


def kafka_version() -> str:
    """Return the version of Kafka to run: ``LOADTRIM_KAFKA_VERSION``, by default 4.1.1."""
    return os.environ.get("LOADTRIM_KAFKA_VERSION") or KAFKA_VERSION_DEFAULT


@dataclass(frozen=True, slots=True)
class _Launch:
    """The means to start a broker, the same for all of a cluster.

    Attributes:
        command: java and its options, up to the configuration file.
        guard: owns the processes.
        start_seconds: longest wait for a broker to serve.
    """

    command: tuple[str, ...]
    guard: ProcessGuard
    start_seconds: float


class Broker:
    """One broker of a :class:`LocalKafka`. Stopped or killed, it starts again on its port and with its data.

    Attributes:
        id: its node id, from 1.
        port: where clients reach it, on 127.0.0.1.
        further_ports: the same by the name of each further listener.
        log_path: what it printed and logged.
    """

    def __init__(self, node: Node, directory: Path, log_path: Path, launch: _Launch) -> None:
        self.id = node.id
        self.port = node.port
        self.further_ports = {listener.name: listener.port for listener in node.further}
        self.log_path = log_path
        self._name = f"broker-{node.id}"
        self._directory = directory
        self._launch = launch
        self._process_id: int | None = None

    def __repr__(self) -> str:
        return f"<Broker {self.id} at {self.address}, process {self.process_id}>"

    @property
    def address(self) -> str:
        """The broker's address, "127.0.0.1:port"."""
        return f"{HOST}:{self.port}"

    @property
    def process_id(self) -> int | None:
        """The JVM's process id, None when it does not run."""
        if self._process_id is not None and self._launch.guard.exit_code(self._name) is not None:
            self._process_id = None
        return self._process_id

    @property
    def running(self) -> bool:
        """Return whether its JVM runs (a suspended one does)."""
        return self.process_id is not None

    def start(self, *, wait: bool = True) -> None:
        """Start it where it was stopped or killed; nothing happens when it runs.

        Args:
            wait: return only when it serves clients. It cannot as long as most of its cluster is down.

        Raises:
            BrokerError: it ended, or did not serve in time; with the tail of its log.
        """
        if not self.running:
            command = [*self._launch.command, str(self._directory / "server.properties")]
            self._process_id = self._launch.guard.start(self._name, command, self.log_path, self._directory)
        if wait:
            self.wait_until_it_serves(frozenset({self.id}))

    def wait_until_it_serves(self, brokers: frozenset[int]) -> None:
        """Return when it answers and knows all of ``brokers`` as serving.

        Raises:
            BrokerError: it ended, or it does not within the cluster's ``start_seconds``.
        """

        def serves() -> bool:
            return brokers <= ask_metadata(HOST, self.port, ANSWER_SECONDS).broker_ids

        self._wait_until(serves, f"serve (with brokers {sorted(brokers)})")

    def wait_until_it_knows(self, topic: str, partitions: int) -> None:
        """Return when it knows a leader for every partition of a topic.

        Raises:
            BrokerError: it ended, or it does not within the cluster's ``start_seconds``.
        """

        def knows() -> bool:
            return ask_metadata(HOST, self.port, ANSWER_SECONDS, topic).leaders_known >= partitions

        self._wait_until(knows, f"know the leaders of topic {topic}")

    def check(self) -> None:
        """Does nothing when it runs.

        Raises:
            BrokerError: it does not; with the tail of its log.
        """
        if not self.running:
            raise self._error("does not run")

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop it in order (SIGTERM: it hands its leaders over) and return when its process has ended.

        A suspended one is resumed, to be able to.

        Raises:
            BrokerError: it has not ended within the time; it runs on, :meth:`kill` ends it.
        """
        self._end(signal.SIGTERM, timeout_seconds)

    def kill(self) -> None:
        """Kills it (SIGKILL) and returns when its process has ended."""
        self._end(signal.SIGKILL, STOP_SECONDS)

    def suspend(self) -> None:
        """Freezes it (SIGSTOP): its connections stay open, nothing answers."""
        self._launch.guard.signal(self._name, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it run on (SIGCONT)."""
        self._launch.guard.signal(self._name, signal.SIGCONT)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its log, empty when there is none."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._launch.start_seconds
        while True:
            with contextlib.suppress(OSError):
                if holds():
                    return
            code = self._launch.guard.exit_code(self._name)
            if code is not None:
                raise self._error(f"ended with exit code {code} instead of coming to {what}")
            if time.monotonic() > deadline:
                raise self._error(f"does not {what} after {self._launch.start_seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def _end(self, number: signal.Signals, timeout_seconds: float) -> None:
        if not self.running:
            return
        self._launch.guard.signal(self._name, number)
        self.resume()
        deadline = time.monotonic() + timeout_seconds
        while self.running:
            if time.monotonic() > deadline:
                raise self._error(f"has not ended {timeout_seconds:.0f} s after {number.name}")
            time.sleep(POLL_SECONDS)

    def _error(self, what: str) -> BrokerError:
        return BrokerError(
            f"Kafka broker {self.id} at {self.address} {what}. The end of its log {self.log_path}:\n"
            f"{self.log_tail() or '(empty)'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    brokers: int
    version: str
    properties: Callable[[int], Mapping[str, str]]
    listeners: Mapping[str, str]
    port: int | None
    data_dir: Path | None
    log_dir: Path | None
    log_level: str
    heap_mb: int
    start_seconds: float
    jvm_options: tuple[str, ...]


class LocalKafka(Cluster):
    """A Kafka cluster of one or three brokers on this machine, for development and tests.

    Needs Java 17; Maven too, the first time it runs a version. Use it in ``with``, or call :meth:`start` and
    :meth:`stop` (both block: ``await asyncio.to_thread(kafka.start)`` where a loop runs). Its brokers end with this
    process, however this process ends, and their data with them.
    Thread-safe only in :attr:`bootstrap`; a started one may be used from a forked process, which cannot stop it.

    Args:
        brokers: 1 or 3.
        version: of Kafka, as on Maven Central (3.9.1 and 4.1.1 are tried). Default: ``LOADTRIM_KAFKA_VERSION``, 4.1.1.
        properties: of the brokers, or what returns those of the broker with a given id; they win over the defaults
            (:func:`loadtrim.testing.properties.broker_properties`).
        listeners: further ones by name, with the protocol of each, such as ``{"SECURE": "SASL_SSL"}``, on free ports;
            what they need (keys, users) is said by ``properties``. See :meth:`bootstrap_at`.
        log_dir: where the brokers' logs go and stay; by default to their data, and away with it.
        data_dir: keeps the data there, to be found by the next start; by default it is temporary.
        port: of the first broker (the others follow at port + 1, ...); by default free ones.
        log_level: of the brokers' logs.
        heap_mb: upper limit of a broker's Java heap, at least 128; a broker takes some 120 MB more.
        start_seconds: longest wait for the brokers.
        short_run: compile the brokers' code quickly instead of well: a third less processor time while they start,
            some 10 % less throughput later. For tests; not for benchmarks.
        jvm_options: further options for java.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str | None = None,
        properties: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        log_dir: str | Path | None = None,
        data_dir: str | Path | None = None,
        port: int | None = None,
        log_level: str = "WARN",
        heap_mb: int = 512,
        start_seconds: float = START_SECONDS,
        short_run: bool = False,
        jvm_options: Sequence[str] = (),
    ) -> None:
        if brokers not in BROKERS_ALLOWED:
            raise ValueError(f"a local Kafka has 1 or 3 brokers, not {brokers}: two or four survive no more failures")
        if heap_mb < HEAP_MB_MIN:
            raise ValueError(f"a broker needs a heap of at least {HEAP_MB_MIN} MB, not {heap_mb}")
        fixed: Mapping[str, str] = {} if properties is None or callable(properties) else dict(properties)
        self._options = _Options(
            brokers=brokers,
            version=version or kafka_version(),
            properties=properties if callable(properties) else lambda _: fixed,
            listeners=dict(listeners or {}),
            port=port,
            data_dir=None if data_dir is None else Path(data_dir).absolute(),
            log_dir=None if log_dir is None else Path(log_dir).absolute(),
            log_level=log_level,
            heap_mb=heap_mb,
            start_seconds=start_seconds,
            jvm_options=(*(SHORT_RUN_OPTIONS if short_run else ()), *jvm_options),
        )
        self._guard: ProcessGuard | None = None
        self._brokers: tuple[Broker, ...] = ()

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def version(self) -> str:
        """Kafka's version."""
        return self._options.version

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers by id; empty before the start and after the stop."""
        return self._brokers

    @property
    def bootstrap(self) -> str:
        """The brokers as ``bootstrap_servers`` takes them, "127.0.0.1:port,...".

        Raises:
            LocalKafkaError: it is not started.
        """
        if not self._brokers:
            raise LocalKafkaError("this LocalKafka is not started: use it in `with`, or call start() first")
        return ",".join(broker.address for broker in self._brokers)

    def bootstrap_at(self, listener: str) -> str:
        """The brokers as ``bootstrap_servers`` takes them, at one of the further listeners.

        Raises:
            LocalKafkaError: it is not started, or has no listener of that name.
        """
        if not self._brokers:
            raise LocalKafkaError("this LocalKafka is not started: use it in `with`, or call start() first")
        if listener not in self._options.listeners:
            raise LocalKafkaError(f"no listener is called {listener!r}: name it in LocalKafka(listeners=...)")
        return ",".join(f"{HOST}:{broker.further_ports[listener]}" for broker in self._brokers)

    def start(self) -> None:
        """Start the brokers and return when they serve clients; nothing happens when it is started.

        Raises:
            ToolMissingError: there is no Java 17; or this version has to be fetched, and there is no Maven.
            DistributionError: this version could not be fetched.
            BrokerError: a broker does not come up; with the tail of its log.
        """
        if self._guard is not None:
            return
        _refuse_taken_ports(self._options)
        java = find_java()
        kafka = distribution.prepare(self._options.version, java)
        archive = distribution.class_archive(kafka, java, functools.partial(_write_archive, kafka, java))
        self._start_on_free_ports(kafka, java, archive)

    def stop(self) -> None:
        """Stop the brokers and removes their data; kept data is closed in order first. May be called again."""
        guard, brokers = self._guard, self._brokers
        if guard is None or not guard.owned:
            return
        self._guard, self._brokers = None, ()
        try:
            if self._options.data_dir is not None:
                _stop_in_order(brokers)
        finally:
            guard.close()

    def create_topic(
        self,
        partitions: int = 1,
        name: str | None = None,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic and return its name once every running broker knows all its leaders.

        Args, errors and cost as of :meth:`Cluster.create_topic`.
        """
        name = super().create_topic(partitions, name, config, replication_factor=replication_factor)
        for broker in self._brokers:
            if broker.running:
                broker.wait_until_it_knows(name, partitions)
        return name

    def _start_on_free_ports(self, kafka: Distribution, java: Java, archive: Path | None) -> None:
        for attempt in range(1, PORT_ATTEMPTS_MAX + 1):
            try:
                self._start_once(kafka, java, archive)
                return
            except BaseException as error:
                self.stop()
                drawn_again = self._options.port is None and attempt < PORT_ATTEMPTS_MAX
                if not (isinstance(error, BrokerError) and drawn_again and _port_was_taken(error)):
                    raise
                logger.info("a port of the local Kafka was taken meanwhile: trying others")

    def _start_once(self, kafka: Distribution, java: Java, archive: Path | None) -> None:
        options = self._options
        directory = options.data_dir or Path(tempfile.mkdtemp(prefix="loadtrim-kafka-"))
        self._guard = ProcessGuard(remove=() if options.data_dir else (directory,))
        storage.format_cluster(directory, options.brokers, kafka)
        command = self._command(directory, kafka, java, archive)
        launch = _Launch(command, self._guard, options.start_seconds)
        nodes = _nodes(options.brokers, options.port, options.listeners)
        self._brokers = tuple(self._broker(node, nodes, directory, launch) for node in nodes)
        for broker in self._brokers:
            broker.start(wait=False)
        everyone = frozenset(broker.id for broker in self._brokers)
        for broker in self._brokers:
            broker.wait_until_it_serves(everyone)
        _wait_for_coordinator(self._brokers[0])
        logger.debug("Kafka %s serves at %s", self.version, self.bootstrap)

    def _command(self, directory: Path, kafka: Distribution, java: Java, archive: Path | None) -> tuple[str, ...]:
        setting, name, text = properties.logging_configuration(kafka.major, self._options.log_level)
        path = directory / name
        path.write_text(text, encoding="utf-8")
        heap_mb = self._options.heap_mb
        return (
            str(java.path),
            f"-Xms{min(heap_mb, HEAP_MB_FIRST)}m",
            f"-Xmx{heap_mb}m",
            *JVM_OPTIONS,
            *((f"-XX:SharedArchiveFile={archive}",) if archive else ()),
            *self._options.jvm_options,
            f"-D{setting}={path.as_uri() if kafka.major < 4 else path}",
            f"-Dkafka.logs.dir={directory}",
            "-cp",
            kafka.class_path,
            "kafka.Kafka",
        )

    def _broker(self, node: Node, nodes: Sequence[Node], directory: Path, launch: _Launch) -> Broker:
        home = directory / f"broker-{node.id}"
        settings = properties.broker_properties(node, nodes, home / "data", self._options.properties(node.id))
        home.joinpath("server.properties").write_text(properties.properties_text(settings), encoding="utf-8")
        log_dir = self._options.log_dir or home
        log_dir.mkdir(parents=True, exist_ok=True)
        return Broker(node, home, log_dir / f"broker-{node.id}.log", launch)


def _nodes(count: int, port: int | None, listeners: Mapping[str, str]) -> tuple[Node, ...]:
    free = free_ports((2 + len(listeners)) * count)
    ports = free[:count] if port is None else range(port, port + count)
    return tuple(
        Node(
            id=index + 1,
            port=ports[index],
            controller_port=free[count + index],
            further=tuple(
                Listener(name=name, protocol=protocol, port=free[(2 + number) * count + index])
                for number, (name, protocol) in enumerate(listeners.items())
            ),
        )
        for index in range(count)
    )


def _refuse_taken_ports(options: _Options) -> None:
    if options.port is None:
        return
    taken = [port for port in range(options.port, options.port + options.brokers) if not port_is_free(port)]
    if taken:
        raise LocalKafkaError(
            f"port {taken[0]} of {HOST} is taken, by another Kafka perhaps: give another port, or none for a free one"
        )


def _port_was_taken(error: BrokerError) -> bool:
    return any(sign in str(error) for sign in _PORT_TAKEN)


def _wait_for_coordinator(broker: Broker) -> None:
    """Has the offsets topic made now rather than in the middle of the first join of a group.

    Not waited for beyond some seconds: with properties of the user's it may not be possible at all.
    """
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if ask_coordinator(HOST, broker.port, ANSWER_SECONDS):
                return
        time.sleep(POLL_SECONDS)


def _stop_in_order(brokers: Sequence[Broker]) -> None:
    """Stop one after the other; one that takes too long is killed by the guard afterwards.

    The last of three cannot end in order: it waits for a controller's leave, and there is no majority for one.
    What it was sent is on disk all the same, its next start only looks through more of it.
    """
    for broker in brokers:
        alone = len(brokers) > 1 and broker is brokers[-1]
        with contextlib.suppress(BrokerError):
            broker.stop(STOP_LAST_SECONDS if alone else STOP_KEPT_SECONDS)


def _write_archive(kafka: Distribution, java: Java, path: Path) -> None:
    """Run a broker through a small working day, and has its JVM archive at the end the classes that it took."""
    options = (f"-XX:ArchiveClassesAtExit={path}",)
    trainee = LocalKafka(version=kafka.version, jvm_options=options)
    try:
        trainee._start_on_free_ports(kafka, java, None)
        exercise(trainee.bootstrap)
        trainee.brokers[0].stop(ARCHIVE_SECONDS)
    finally:
        trainee.stop()


@contextlib.contextmanager
def any_kafka(local: Callable[[], LocalKafka] = LocalKafka) -> Iterator[Cluster]:
    """The cluster that ``KAFKA_BOOTSTRAP`` names, else one of our own for as long as this lasts.

    Args:
        local: makes our own.

    Raises:
        LocalKafkaError: our own does not start.
    """
    if bootstrap := os.environ.get("KAFKA_BOOTSTRAP"):
        yield ExternalKafka(bootstrap)
        return
    with local() as kafka:
        yield kafka
