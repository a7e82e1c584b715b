"""The way from the command line to a cluster: ``--bootstrap`` and ``--config FILE``.

The file holds a Kafka client's settings under the names that Java's clients, librdkafka or aiokafka use, so that an
existing ``client.properties`` serves as it is. A file that ends in ``.toml`` is TOML, any other a properties file::

    bootstrap.servers=broker-1:9093
    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=ops
    sasl.password=...
    ssl.ca.location=/etc/kafka/ca.pem

A setting of TLS or SASL that is not understood is an error, because leaving it out would connect in another way than
asked for; other settings (a consumer's, a producer's) are passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import ipaddress
import logging
import os
import re
import shlex
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka.helpers import create_ssl_context

from loadtrim.errors import UsageError

__all__ = ["CLIENT_LOG", "ClientLog", "Connection", "add_arguments", "connection_from", "read_settings"]

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP"
BOOTSTRAP_DEFAULT = "localhost:9092"
REQUEST_TIMEOUT_MS = 10_000
"""A person waits: shorter than aiokafka's 40 s."""

PORT_MAX = 65_535

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")

# Name in a file, with "." for "_" -> our name for it.
_NAMES = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.plain.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.plain.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.kerberos.domain.name": "sasl_kerberos_domain_name",
    "sasl.jaas.config": "jaas",
    "ssl.ca.location": "cafile",
    "ssl.cafile": "cafile",
    "ssl.truststore.location": "cafile",
    "ssl.truststore.type": "truststore_type",
    "ssl.truststore.certificates": "cadata",
    "ssl.ca.pem": "cadata",
    "ssl.certificate.location": "certfile",
    "ssl.certfile": "certfile",
    "ssl.keystore.location": "certfile",
    "ssl.keystore.type": "keystore_type",
    "ssl.key.location": "keyfile",
    "ssl.keyfile": "keyfile",
    "ssl.key.password": "password",
    "ssl.password": "password",
    "ssl.endpoint.identification.algorithm": "identification",
    "ssl.check.hostname": "check_hostname",
    "enable.ssl.certificate.verification": "verification",
}
_TLS = frozenset({"cafile", "cadata", "certfile", "keyfile", "password"})
_SECRET_KINDS = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.")
_SCHEME = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://")
_ADDRESS = re.compile(r"(?:\[[^\[\]\s]+\]|[^\[\]\s:]+)(?::(.*))?", re.DOTALL)
"""HOST, HOST:PORT, or an IPv6 address in brackets instead of the host. The group is what stands for a port."""
_JAAS_FIELD = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_PROPERTY = re.compile(r"\s*((?:\\.|[^\\\s=:])+)\s*[=:]?\s*(.*)", re.DOTALL)


class ClientLog(logging.Handler):
    """The last error that Kafka's client logged, which is not printed over what people look at."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the message."""
        self.last = record.getMessage()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block, take over what the loggers of aiokafka say."""
        logger = logging.getLogger("aiokafka")
        propagate, logger.propagate = logger.propagate, False
        self.last = ""
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.propagate = propagate


CLIENT_LOG = ClientLog()
"""The command line's one."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses and settings of a cluster."""

    bootstrap: str
    given_by: str
    """Where the address is from, for messages: ``--bootstrap``, a file, a variable, or ``the default``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments for any aiokafka client: TLS, SASL, time-out."""
    repeat: tuple[str, ...] = ()
    """The options of the command line that lead here, for commands that messages propose."""

    @property
    def settings_by(self) -> str:
        """Return where its TLS and SASL settings are from, for messages."""
        return self.repeat[self.repeat.index("--config") + 1] if "--config" in self.repeat else self.given_by

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for an aiokafka client."""
        return {"request_timeout_ms": REQUEST_TIMEOUT_MS, **self.options, "bootstrap_servers": self.bootstrap}

    def command(self, *words: str) -> str:
        """``loadtrim WORDS`` with the options that reach the same cluster, fit to be pasted into a shell."""
        return shlex.join(["loadtrim", *words, *self.repeat])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--bootstrap`` and ``--config`` to a command."""
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT,...",
        help=f"the cluster's brokers (default: from --config, else ${BOOTSTRAP_VARIABLE}, else {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="client settings for TLS and SASL: a properties file with the names of Kafka's own tools and with "
        "certificates as PEM, or *.toml",
    )


def connection_from(args: argparse.Namespace, env: Mapping[str, str] | None = None) -> Connection:
    """The connection that a command's arguments name.

    Raises:
        UsageError: the file cannot be read, or says something that cannot be used, or an address is none.
    """
    env = os.environ if env is None else env
    options = _client_options(args.config) if args.config else {}
    in_file = options.pop("bootstrap_servers", None)
    repeat = []
    if args.bootstrap is not None:
        bootstrap, given_by = args.bootstrap, "--bootstrap"
        repeat += ["--bootstrap", args.bootstrap]
    elif in_file:
        bootstrap, given_by = in_file, str(args.config)
    elif env.get(BOOTSTRAP_VARIABLE):
        bootstrap, given_by = env[BOOTSTRAP_VARIABLE], f"${BOOTSTRAP_VARIABLE}"
    else:
        bootstrap, given_by = BOOTSTRAP_DEFAULT, "the default"
    if args.config:
        repeat += ["--config", str(args.config)]
    if (scheme := _SCHEME.search(bootstrap)) is not None:
        raise UsageError(
            f"{bootstrap} (from {given_by}) is no address of a broker: {scheme[0]} is of a URL.",
            "Nothing was asked.",
            f"Write it without: {_SCHEME.sub('', bootstrap).rstrip('/')}",
        )
    addresses = [address.strip() for address in bootstrap.split(",")]
    named = [address for address in addresses if address] or addresses[:1]  # Kafka's own tools read h1:9092,h2:9092,
    for address in named:
        _check_address(address, given_by)
    return Connection(",".join(named), given_by, options, tuple(repeat))


def _check_address(address: str, given_by: str) -> None:
    """Refuse what the client would fail at, or would take for another broker: without a port it asks 9092.

    Raises:
        UsageError: it is no address.
    """
    with contextlib.suppress(ValueError):
        ipaddress.IPv6Address(address)
        return  # without a port, as aiokafka takes it
    match = _ADDRESS.fullmatch(address)
    if match is None or not (match[1] is None or (match[1].isdecimal() and 1 <= int(match[1]) <= PORT_MAX)):
        raise UsageError(
            f"{address!r} (from {given_by}) is no address of a broker.",
            "Nothing was asked.",
            f"Write HOST:PORT, with a port from 1 to {PORT_MAX} and commas between several; "
            "an IPv6 address stands in brackets: [::1]:9092",
        )


def read_settings(path: Path) -> dict[str, str]:
    """The settings in a file, as text under the names in it, with ``.`` for ``_``.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        pairs = _flat(tomllib.loads(text)) if path.suffix == ".toml" else _properties(text)
    except OSError as error:
        raise UsageError(
            f"The settings file {path} cannot be read: {error.strerror}.",
            "Nothing was done, because it may hold the TLS or SASL settings that the cluster asks for.",
            "Give the path of a readable file to --config.",
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"The settings file {path} cannot be understood: {error}.",
            "Nothing was done, because it may hold the TLS or SASL settings that the cluster asks for.",
            "Write one NAME=VALUE per line, or TOML in a file that ends in .toml.",
        ) from error
    return {name.replace("_", "."): value for name, value in pairs.items()}


def _properties(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        if match:
            found[_unescaped(match[1])] = _unescaped(match[2].strip())
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that say something, with those that go on behind a backslash in one. A comment goes on in none.

    Source: ``java.util.Properties.load``.
    """
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip()
        if not begun and (not line or line.startswith(("#", "!"))):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    """Undo what Java's tools write before signs that could end a name, and the line ends of a certificate.

    Another backslash stays, as in a path of Windows: librdkafka's tools read the same files, and undo nothing.
    """
    text = re.sub(r"\\([:=#! ])", r"\1", text)
    return text.replace("\\n", "\n") if "-----BEGIN" in text else text


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``security.protocol = "SSL"`` in TOML is a table ``security``: names are put together again."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, list):
            found[prefix + name] = ",".join(map(str, value))
        else:
            found[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _client_options(path: Path) -> dict[str, Any]:
    """Keyword arguments for aiokafka's clients from a settings file."""
    told: dict[str, str] = {}
    for name, value in read_settings(path).items():
        if name in _NAMES:
            told[_NAMES[name]] = value
        elif name.startswith(_SECRET_KINDS):
            raise _unknown(path, name)
    if "jaas" in told:
        _read_jaas(path, told)
    options: dict[str, Any] = {
        name: value
        for name, value in told.items()
        if name.startswith("sasl_") or name in ("client_id", "bootstrap_servers")
    }
    if "request_timeout_ms" in told:
        options["request_timeout_ms"] = _whole_number(path, "request.timeout.ms", told["request_timeout_ms"])
    protocol = told.get("security_protocol", "PLAINTEXT").upper()
    options["security_protocol"] = _one_of(path, "security.protocol", protocol, PROTOCOLS)
    if protocol.startswith("SASL"):
        mechanism = told.get("sasl_mechanism", "PLAIN" if "sasl_plain_username" in told else "GSSAPI")
        options["sasl_mechanism"] = _one_of(path, "sasl.mechanism", mechanism.upper(), MECHANISMS)
        _check_login(path, told, options["sasl_mechanism"])
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(path, told)
    return options


def _check_login(path: Path, told: Mapping[str, str], mechanism: str) -> None:
    """A Kerberos ticket is of the system; all else needs a user and a password."""
    wanting = [name for name in ("username", "password") if f"sasl_plain_{name}" not in told]
    if mechanism != "GSSAPI" and wanting:
        raise UsageError(
            f"{path} asks for SASL with {mechanism} and has no {' and no '.join(wanting)}.",
            "The cluster would refuse a user that says nothing, so nothing was done.",
            "Write sasl.jaas.config as Kafka's own tools take it, or sasl.username= and sasl.password=.",
        )


def _ssl_context(path: Path, told: Mapping[str, str]) -> ssl.SSLContext:
    for kind in ("truststore_type", "keystore_type"):
        _one_of(path, f"ssl.{kind.replace('_', '.')}", told.get(kind, "PEM").upper(), ("PEM",))
    try:
        context: ssl.SSLContext = create_ssl_context(**{name: value for name, value in told.items() if name in _TLS})
    except (OSError, ssl.SSLError, TypeError, ValueError) as error:  # what is no ASCII text is a TypeError
        raise UsageError(
            f"The certificates that {path} names cannot be used: {error}.",
            "No TLS connection can be made with them, so nothing was done.",
            "ssl.ca.location, ssl.certificate.location and ssl.key.location are PEM files; for a Java key store: "
            "openssl pkcs12 -in STORE.p12 -out STORE.pem",
        ) from error
    unchecked_name = told.get("identification") in ("", "none") or told.get("check_hostname") == "false"
    unverified = told.get("verification") == "false"
    if unchecked_name or unverified:
        context.check_hostname = False
    if unverified:
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_jaas(path: Path, told: dict[str, str]) -> None:
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_FIELD.findall(told.pop("jaas"))}
    if set(found) != {"username", "password"}:
        raise UsageError(
            f"sasl.jaas.config in {path} names no username and password in double quotes.",
            "Only the plain and the SCRAM login module are understood there, so nothing was done.",
            "Write sasl.username= and sasl.password= instead; for Kerberos leave it out and use a ticket (kinit).",
        )
    told.setdefault("sasl_plain_username", found["username"])
    told.setdefault("sasl_plain_password", found["password"])


def _whole_number(path: Path, name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise _not_allowed(path, name, value, "a whole number above 0")
    return int(value)


def _one_of(path: Path, name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise _not_allowed(path, name, value, ", ".join(allowed))
    return value


def _not_allowed(path: Path, name: str, value: str, allowed: str) -> UsageError:
    return UsageError(
        f"{name} is {value!r} in {path}.",
        "The cluster cannot be reached as that asks for, so nothing was done.",
        f"Allowed: {allowed}.",
    )


def _unknown(path: Path, name: str) -> UsageError:
    near = difflib.get_close_matches(name, _NAMES, n=1)
    return UsageError(
        f"{name} in {path} is not a setting that is understood here.",
        "Leaving out a setting of TLS or SASL would connect in another way than asked for, so nothing was done.",
        f"Did you mean {near[0]}?"
        if near
        else f"Understood: {', '.join(n for n in _NAMES if n.startswith(_SECRET_KINDS))}.",
    )
