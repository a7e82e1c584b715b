"""A certificate for servers on loopback."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of a key and of its certificate, for ``localhost`` and 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: it makes the test's certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(chain)]
    subprocess.run(["openssl", *made, *names, *files], check=True, capture_output=True)
    return key, chain
