"""What a LocalKafka refuses before it starts anything, and how its module behaves."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loadtrim.testing import LocalKafka, LocalKafkaError, ToolMissingError
from loadtrim.testing.local_kafka import kafka_version

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
import loadtrim.testing
assert loadtrim.testing.LocalKafka
try:
    loadtrim.testing.kafka
except ImportError:
    print("needs pytest")
"""


@pytest.mark.parametrize("brokers", [0, 2, 4])
def test_other_numbers_of_brokers_are_refused(brokers: int) -> None:
    with pytest.raises(ValueError, match="1 or 3 brokers"):
        LocalKafka(brokers)


def test_a_heap_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 128 MB"):
        LocalKafka(heap_mb=64)


def test_the_version_is_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADTRIM_KAFKA_VERSION", raising=False)
    assert LocalKafka().version == kafka_version() == "4.1.1"
    monkeypatch.setenv("LOADTRIM_KAFKA_VERSION", "3.9.1")
    assert LocalKafka().version == "3.9.1"
    assert LocalKafka(version="4.0.0").version == "4.0.0"


def test_before_its_start_it_has_no_address_and_can_be_stopped() -> None:
    kafka = LocalKafka()
    kafka.stop()

    assert kafka.brokers == ()
    with pytest.raises(LocalKafkaError, match="is not started"):
        _ = kafka.bootstrap


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LocalKafkaError, match=f"port {port} of 127.0.0.1 is taken"):
            LocalKafka(port=port).start()


def test_without_java_the_start_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ToolMissingError, match="Install Java 17"):
        LocalKafka().start()


@pytest.mark.slow
def test_nothing_but_the_fixture_needs_pytest() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True, check=True)
    assert done.stdout == "needs pytest\n"


def test_the_module_has_no_names_it_does_not_have() -> None:
    import loadtrim.testing

    assert "kafka" in dir(loadtrim.testing)
    with pytest.raises(AttributeError, match="no attribute 'kafak'"):
        _ = loadtrim.testing.kafak
