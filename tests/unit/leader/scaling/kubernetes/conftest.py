"""An API server on loopback whose answers a test tells, and a pod's files for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from contract.webhook_receiver import Receiver


@pytest.fixture
def account(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "namespace").write_text("shop")
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "ca.crt").write_bytes(certificate[1].read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    return tmp_path


@pytest.fixture
def server(certificate: tuple[Path, Path], account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    with Receiver(context) as receiver:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(urlsplit(receiver.url).port))
        yield receiver
