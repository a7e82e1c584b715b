"""A cluster as a kubeconfig tells: its address, its token, its namespace; and whose rights are asked about."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from loadtrim.observer.cluster_checkup import look_at_cluster, look_at_executor
from loadtrim.observer.kubeconfig import KubeconfigApi
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target

TARGET = parse_target("deployment/payments")
DEPLOYMENT = {
    "metadata": {"resourceVersion": "7", "generation": 1, "uid": "u"},
    "spec": {"replicas": 3},
    "status": {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 1},
}


class Server:
    """Answers reviews as it is told, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.tokens: set[str] = set()
        self.allowed = True
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        path = request.path
        if request.method == "POST":
            body = json.loads(await request.read())
            self.asked.append((path.rpartition("/")[2], body["spec"]))
            return web.json_response(body | {"status": {"allowed": self.allowed}}, status=201)
        if path.endswith("horizontalpodautoscalers"):
            return web.json_response({"items": []})
        return web.json_response(DEPLOYMENT)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def kubeconfig(folder: Path, url: str, namespace: str | None = "shop") -> str:
    context: dict[str, str] = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    file = folder / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "t0ken"}}],
            }
        )
    )
    return str(file)


async def test_rights_are_those_of_the_pods_account(server: Server, tmp_path: Path) -> None:
    api = KubeconfigApi(kubeconfig(tmp_path, server.url), service_account="payments")
    found = await look_at_cluster(api, TARGET, "g")
    assert [finding.verdict.value for finding in found] == ["ok"] * 4
    assert found[0].detail == "allowed in namespace shop"
    assert server.tokens == {"Bearer t0ken"}
    (kind, review), *_, (last, listing) = server.asked
    assert (kind, review["user"]) == ("subjectaccessreviews", "system:serviceaccount:shop:payments")
    assert "system:serviceaccounts:shop" in review["groups"]
    assert review["resourceAttributes"]["name"] == "payments"
    assert (last, "user" in listing) == ("selfsubjectaccessreviews", False), (
        "pods need not list autoscalers; a person may"
    )


async def test_a_missing_right_has_its_rule(server: Server, tmp_path: Path) -> None:
    server.allowed = False
    api = KubeconfigApi(kubeconfig(tmp_path, server.url, None))
    found = await look_at_cluster(api, TARGET, "g")
    assert [finding.verdict.value for finding in found] == ["missing", "missing", "unknown"]
    assert "namespace default" in found[0].detail
    assert server.asked[0][1]["user"] == "system:serviceaccount:default:default"


async def test_the_namespace_that_is_given_comes_first(server: Server, tmp_path: Path) -> None:
    api = KubeconfigApi(kubeconfig(tmp_path, server.url), namespace="other")
    await look_at_executor(api, TARGET)
    assert server.asked[0][1]["resourceAttributes"]["namespace"] == "other"


@pytest.mark.parametrize("made", [{"file": "none"}, {"context": "nowhere"}])
async def test_a_file_or_context_that_is_not_there_is_said(
    server: Server, tmp_path: Path, made: dict[str, str]
) -> None:
    given = {"file": kubeconfig(tmp_path, server.url)} | made
    (finding,) = await look_at_cluster(KubeconfigApi(**given), TARGET, "g")
    assert " cannot be used: " in finding.detail
    assert next(iter(made.values())) in finding.detail


@pytest.mark.parametrize("text", ["a: [", "hello", ""])
async def test_a_file_that_is_no_kubeconfig_is_said(tmp_path: Path, text: str) -> None:
    """It ended with a traceback, and what had been found at the brokers was lost."""
    file = tmp_path / "config"
    file.write_text(text)
    (finding,) = await look_at_cluster(KubeconfigApi(str(file)), TARGET, "g")
    assert f"The kubeconfig {file} cannot be used: " in finding.detail
