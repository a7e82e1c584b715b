"""A control plane for the session, and a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from .binaries import Missing
from .cluster import ControlPlane
from .shop import Shop

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """The control plane; where a tool is missing, the tests that need it are skipped with the reason."""
    try:
        started = ControlPlane()
    except Missing as missing:
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture
def shop(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A namespace with the example's ServiceAccount and rights, as its pods see it."""
    made = Shop(plane, f"shop-{next(_numbers)}", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", plane.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plane.port))
    return made
