"""Answers of an API server that is busy, broken, or is none: each is told, and none of them lowers the replicas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.webhook_receiver import Behaviour, Receiver, answer, drip, garbage, hang, hang_up
from loadtrim_agent.leader.scaling.kubernetes import client
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest

from .fake_cluster import FakeCluster, OpenFence

TARGET = parse_target("deployment/payments")
PATH = "/apis/apps/v1/namespaces/shop/deployments/payments"


def as_json(document: object, status: int = 200, **headers: str) -> Behaviour:
    return answer(status, json.dumps(document), Content_Type="application/json", **headers)


def workload(**without: object) -> dict[str, Any]:
    """Return a Deployment of six pods, of which one is drained; what is named here is as it says."""
    return FakeCluster(6, ready=5).document(TARGET) | without


def cut_off(handler: Any) -> None:
    """The connection breaks in the middle of an answer."""
    text = json.dumps(workload()).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text[: len(text) // 2])


async def ask(account: Path) -> ScaleOutcome:
    scaler = KubernetesScaler(TARGET, ClusterApi(account=account), OpenFence())
    wanted = ScaleRequest(group="g", replicas=5, victims=("payments-b",), generation=1, sequence=1)
    return await scaler.request(wanted)


async def test_a_whole_answer_lowers_them(server: Receiver, account: Path) -> None:
    """What the others are compared with. The patch is one that custom resources take, and names the version."""
    server.behaviours.extend([as_json(workload()), as_json({"kind": "Scale"})])
    assert (await ask(account)).accepted
    read, written = server.requests
    assert (read.method, read.path) == ("GET", PATH)
    assert (written.method, written.path) == ("PATCH", f"{PATH}/scale?fieldManager=loadtrim-g")
    assert written.headers["content-type"] == "application/merge-patch+json"
    assert written.json == {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}}


BROKEN: dict[str, Behaviour] = {
    "nothing": answer(200, "", Content_Type="application/json"),
    "an empty object": as_json({}),
    "an empty list": as_json({"kind": "DeploymentList", "items": []}),
    "a list": as_json([workload()]),
    "no status": as_json(workload(status={})),
    "a page of a proxy": answer(200, "<html>Sign in</html>", Content_Type="text/html"),
    "half of it": cut_off,
    "no end": drip,
    "silence": hang,
    "no answer": hang_up,
    "no HTTP": garbage,
    "500": as_json({"kind": "Status", "message": "etcdserver: request timed out"}, 500),
    "503": answer(503, "service unavailable"),
    "504": as_json({"kind": "Status", "message": "context deadline exceeded"}, 504),
}


@pytest.mark.parametrize("behaviour", BROKEN.values(), ids=BROKEN)
async def test_an_answer_that_is_broken_or_lacks_something_lowers_nothing(
    server: Receiver, account: Path, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr("loadtrim_agent.leader.scaling.kubernetes.scaler.READINESS_SECONDS", 0.0)
    server.behaviours.append(behaviour)
    outcome = await ask(account)
    assert outcome.answer is Answer.FAILED
    assert outcome.detail
    assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.parametrize("behaviour", [hang_up, garbage, cut_off, hang], ids=["hang up", "garbage", "cut off", "hang"])
async def test_whoever_asks_is_told_of_a_connection_that_breaks_as_of_any_answer(
    server: Receiver, account: Path, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library's own errors went through: the first one ended the renewal of the Lease for good."""
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    server.behaviours.append(behaviour)
    async with ClusterApi(account=account).conversation() as conversation:
        with pytest.raises(ApiError):
            await conversation.lease("payments")


async def test_half_of_the_certificates_are_a_failure_that_passes(server: Receiver, account: Path) -> None:
    whole = (account / "ca.crt").read_text()
    (account / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----\n")
    with pytest.raises(ApiError, match="rotation"):
        async with ClusterApi(account=account).conversation():
            pass
    (account / "ca.crt").write_text(whole)
    async with ClusterApi(account=account).conversation():
        pass


async def test_a_write_that_is_not_answered_is_a_failure(
    server: Receiver, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.3)
    server.behaviours.extend([as_json(workload()), hang])
    outcome = await ask(account)
    assert outcome == ScaleOutcome(Answer.FAILED, "the API server gave no answer within 0.3 s")


@pytest.mark.parametrize("at", [0, 1], ids=["read", "write"])
async def test_a_busy_api_server_says_when_to_ask_again(server: Receiver, account: Path, at: int) -> None:
    busy = as_json({"kind": "Status", "message": "too many requests, please try again later"}, 429, Retry_After="7")
    server.behaviours.extend([as_json(workload()), busy][1 - at :])
    outcome = await ask(account)
    assert outcome.answer is Answer.FAILED
    assert outcome.detail == "429 too many requests, please try again later"
    assert outcome.retry_after_seconds == 7.0
