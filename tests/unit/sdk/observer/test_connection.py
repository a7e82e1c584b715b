"""``--bootstrap`` and ``--config``: a client's settings in any of the usual spellings."""

from __future__ import annotations

import argparse
import logging
import ssl
from pathlib import Path

import pytest

from loadtrim.errors import UsageError
from loadtrim.observer.connection import ClientLog, Connection, add_arguments, connection_from, read_settings

CA = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt")


def connect(*words: str, env: dict[str, str] | None = None) -> Connection:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return connection_from(parser.parse_args(words), env or {})


def configured(tmp_path: Path, text: str, name: str = "client.properties") -> Connection:
    path = tmp_path / name
    path.write_text(text)
    return connect("--config", str(path))


def refusal(tmp_path: Path, text: str, name: str = "client.properties") -> str:
    with pytest.raises(UsageError) as caught:
        configured(tmp_path, text, name)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["localhost:x", "localhost:-1", "localhost:0", "localhost:65536", "localhost:", "a:1,b:two", "", ",",
     ":9092", "[::1]:many", "[::1", "a b:1", "localhost:1:2"],
)  # fmt: skip
def test_an_address_that_is_none_is_named(address: str) -> None:
    """-1 asked the broker at 9092, and a word for a port was told to be an "invalid literal for int()"."""
    with pytest.raises(UsageError) as caught:
        connect("--bootstrap", address)
    assert "(from --bootstrap) is no address of a broker" in caught.value.happened
    assert caught.value.happened.split("'")[1] in address


@pytest.mark.parametrize(
    "address",
    ["broker", "broker-1.example.com:9092", "a:1,b:65535", "10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]", "::1"],
)
def test_an_address_in_any_usual_spelling_is_taken(address: str) -> None:
    assert connect("--bootstrap", address).bootstrap == address


@pytest.mark.parametrize("addresses", ["a:1, b:2", "a:1,b:2,", "a:1,,b:2"])
def test_what_stands_between_addresses_is_no_address(addresses: str) -> None:
    assert connect("--bootstrap", addresses).bootstrap == "a:1,b:2"


def test_the_address_comes_from_the_nearest_place(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_text("bootstrap.servers=in-file:1\n")
    env = {"KAFKA_BOOTSTRAP": "in-env:1"}
    given = connect("--bootstrap", "given:1", "--config", str(path), env=env)
    assert (given.bootstrap, given.given_by) == ("given:1", "--bootstrap")
    assert given.command("resume", "my group") == f"loadtrim resume 'my group' --bootstrap given:1 --config {path}"
    in_file = connect("--config", str(path), env=env)
    assert (in_file.bootstrap, in_file.given_by) == ("in-file:1", str(path))
    assert connect(env=env).bootstrap == "in-env:1"
    assert (connect().bootstrap, connect().given_by) == ("localhost:9092", "the default")
    assert connect().command("resume", "g") == "loadtrim resume g"


def test_java_properties(tmp_path: Path) -> None:
    text = r"""
# a comment
! another
security.protocol = SASL_PLAINTEXT
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="ops" \
    password="a\"b=c";
group.id=ignored
request.timeout.ms 5000
"""
    options = configured(tmp_path, text).client_options()
    assert options == {
        "bootstrap_servers": "localhost:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ops",
        "sasl_plain_password": 'a"b=c',
        "request_timeout_ms": 5000,
    }


def test_librdkafka_properties_with_tls(tmp_path: Path) -> None:
    connection = configured(
        tmp_path,
        f"security.protocol=sasl_ssl\nsasl.username=u\nsasl.password=p\nssl.ca.location={CA}\nclient.id=me\n",
    )
    context = connection.options["ssl_context"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert connection.options["sasl_mechanism"] == "PLAIN"
    assert connection.options["client_id"] == "me"


@pytest.mark.parametrize(
    "text",
    [
        '[security]\nprotocol = "SSL"\n[ssl.check]\nhostname = false\n',
        'security.protocol = "SSL"\nssl.endpoint.identification.algorithm = ""\n',
        'security_protocol = "SSL"\n"ssl.endpoint.identification.algorithm" = "none"\n',
    ],
)
def test_toml_in_any_spelling(tmp_path: Path, text: str) -> None:
    context = configured(tmp_path, text, "client.toml").options["ssl_context"]
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_certificates_may_be_left_unchecked(tmp_path: Path) -> None:
    text = "security.protocol=SSL\nenable.ssl.certificate.verification=false\n"
    context = configured(tmp_path, text).options["ssl_context"]
    assert context.verify_mode is ssl.CERT_NONE


def test_kerberos_needs_no_password(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=broker\n"
    options = configured(tmp_path, text).options
    assert (options["sasl_mechanism"], options["sasl_kerberos_service_name"]) == ("GSSAPI", "broker")


def test_lists_and_numbers_of_toml_become_text(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('bootstrap.servers = ["a:1", "b:2"]\nrequest_timeout_ms = 7\n')
    assert read_settings(path) == {"bootstrap.servers": "a:1,b:2", "request.timeout.ms": "7"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=TLS\n", "security.protocol is 'TLS'"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n", "sasl.mechanism is 'OAUTHBEARER'"),
        ("security.protocol=SSL\nssl.truststore.type=JKS\n", "ssl.truststore.type is 'JKS'"),
        ("security.protocol=SSL\nssl.ca.location=/no/such/file\n", "The certificates that"),
        ("sasl.jaas.config=Krb5LoginModule required;\n", "names no username and password"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n",
            "asks for SASL with PLAIN and has no username and no password",
        ),
        ("security.protocol=SASL_SSL\nsasl.username=ops\n", "asks for SASL with PLAIN and has no password"),
        ("ssl.ca.locatoin=/x\n", "Did you mean ssl.ca.location?"),
        ("ssl.zzzzzzzz=/x\n", "Understood: "),
        ("request.timeout.ms=soon\n", "request.timeout.ms is 'soon'"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


def test_a_password_is_never_quoted(tmp_path: Path) -> None:
    told = refusal(tmp_path, "sasl.password=geheim\nsasl.mechanism=PLAIN\nsecurity.protocol=no\nssl.password=geheim\n")
    assert "geheim" not in told


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        connect("--config", str(tmp_path / "none.properties"))
    assert "cannot be understood" in refusal(tmp_path, "a = = b", "broken.toml")
    (tmp_path / "latin.properties").write_bytes(b"sasl.password=\xff\n")
    with pytest.raises(UsageError, match="cannot be understood"):
        connect("--config", str(tmp_path / "latin.properties"))


def test_the_clients_last_error_is_kept_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    logger, kept = logging.getLogger("aiokafka"), ClientLog()
    before = (logger.propagate, list(logger.handlers))
    with kept.listening():
        logging.getLogger("aiokafka.conn").error("refused by %s", "broker-1")
        logging.getLogger("aiokafka.conn").warning("not this")
    assert kept.last == "refused by broker-1"
    assert capfd.readouterr().err == ""
    assert (logger.propagate, logger.handlers) == before


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffsecurity.protocol=SSL\n",
        "# see C:\\certs\\\nsecurity.protocol=SSL\n",
        "! and \\\nsecurity.protocol=SSL\n",
        "client.id=a\\\n  b\n# a comment\nsecurity.protocol=SSL\n",
        "security.protocol=\\\n    SSL",
    ],
    ids=["mark of the bytes' order", "comment that ends in a backslash", "the other comment", "continued", "last line"],
)
def test_no_setting_of_tls_is_lost_in_the_lines_around_it(tmp_path: Path, text: str) -> None:
    """It was, and the connection was made without TLS."""
    path = tmp_path / "client.properties"
    path.write_text(text, encoding="utf-8")
    assert read_settings(path)["security.protocol"] == "SSL"


def test_the_escapes_of_javas_tools_are_undone_and_paths_of_windows_stay(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=b\\:9093\nsasl.password=a\\=b\\#c\nssl.ca.location=C:\\certs\\new.pem\n"
        "ssl.ca.pem=-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\n"
    )
    assert read_settings(path) == {
        "bootstrap.servers": "b:9093",
        "sasl.password": "a=b#c",
        "ssl.ca.location": "C:\\certs\\new.pem",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
    }


def test_a_certificate_that_is_no_plain_text_is_refused(tmp_path: Path) -> None:
    assert "The certificates that" in refusal(tmp_path, "security.protocol=SSL\nssl.ca.pem=-----BEGIN é-----\n")
