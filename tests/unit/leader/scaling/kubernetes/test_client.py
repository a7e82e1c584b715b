"""What a pod is given, what is missing of it, and what the library costs those that never ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi, pod_namespace


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    for name, text in (("namespace", "shop\n"), ("token", "t0ken\n"), ("ca.crt", "none\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


async def failure(account: Path) -> str:
    with pytest.raises(ApiError) as raised:
        async with ClusterApi(account=account).conversation():
            pass
    return raised.value.message


async def test_outside_a_pod_it_says_so(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert "from a pod only" in await failure(account)


async def test_a_pod_without_a_token_is_told_the_line_of_its_spec(account: Path) -> None:
    (account / "token").unlink()
    assert "automountServiceAccountToken: true" in await failure(account)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_file_that_is_empty_in_a_rotation_is_a_failure_that_passes(account: Path, name: str) -> None:
    (account / name).write_text("\n")
    assert "rotation" in await failure(account)


async def test_without_the_library_the_extra_is_named(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio.client", None)
    assert "pip install 'loadtrim[kubernetes]'" in await failure(account)


def test_the_namespace_is_the_pods_unless_it_is_given(account: Path) -> None:
    assert ClusterApi(account=account).namespace == "shop"
    assert ClusterApi("other", account).namespace == "other"
    assert pod_namespace(account / "none") == ""


def test_only_a_leader_that_asks_pays_for_the_library() -> None:
    """It costs 38 MB and a third of a second."""
    script = "import sys, loadtrim; print([m for m in ('kubernetes_asyncio', 'aiohttp') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
