"""``loadtrim kafka``: what it takes, and its exit codes where nothing is started."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from loadtrim.cli import kafka


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadtrim")
    kafka.add_parser(parser.add_subparsers())
    return parser.parse_args(["kafka", *arguments])


def run(*arguments: str) -> int:
    args = parse(*arguments)
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_by_default_it_is_one_broker_of_the_default_version() -> None:
    args = parse()

    assert (args.brokers, args.version, args.port, args.data, args.json) == (1, None, None, None, False)
    assert args.topics == args.properties == []
    assert args.run is kafka.run


def test_topics_and_properties_may_be_given_again() -> None:
    args = parse("--topic", "payments:9", "--topic", "audit", "--property", "a=b", "--property", "c=d=e")

    assert args.topics == [("payments", 9), ("audit", 1)]
    assert args.properties == [("a", "b"), ("c", "d=e")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers", "2"], "invalid choice"),
        (["--topic", "payments:none"], "not NAME:PARTITIONS, such as payments:9"),
        (["--topic", "payments:0"], "not NAME:PARTITIONS"),
        (["--topic", "payments:"], "not NAME:PARTITIONS"),
        (["--topic", ":9"], "not NAME:PARTITIONS"),
        (["--property", "log.retention.ms"], "not KEY=VALUE"),
        (["--property", "=x"], "not KEY=VALUE"),
        (["--port", "70000"], "not a port"),
        (["--port", "-1"], "--port"),
    ],
)
def test_wrong_use_is_said_and_ends_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)

    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_version_that_cannot_be_run_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", "newest", "--port", "0") == 2
    assert "such as 3.9.1 or 4.1.1" in capsys.readouterr().err


def test_without_java_it_fails_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert run("--port", "0") == 1
    assert "loadtrim kafka: A local Kafka needs Java" in capsys.readouterr().err


def test_a_port_that_was_asked_for_and_is_taken_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert run("--port", str(port)) == 1
    assert f"port {port} of 127.0.0.1 is taken" in capsys.readouterr().err
