"""What is said of a pod's rights, without an API server; with a real one: ``tests/kubernetes``."""

from __future__ import annotations

import pytest

from loadtrim.observer.checkup import Finding, Verdict
from loadtrim.observer.cluster_checkup import (
    NAMED_ELSEWHERE,
    look_at_cluster,
    look_at_executor,
    look_at_lease,
    look_at_pods,
    published_where,
)
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from unit.leader.scaling.kubernetes.fake_cluster import FakeCluster

TARGET = parse_target("deployment/payments")


async def look(cluster: FakeCluster, group: str = "g") -> list[Finding]:
    return await look_at_cluster(cluster, TARGET, group)


def verdicts(found: list[Finding]) -> list[str]:
    return [finding.verdict.value for finding in found]


async def test_where_all_is_allowed_only_what_may_not_be_listed_is_unknown() -> None:
    assert verdicts(await look(FakeCluster(3))) == ["ok", "ok", "ok", "unknown"]


async def test_each_right_that_is_missing_has_its_rule() -> None:
    cluster = FakeCluster(3)
    cluster.permitted = set()
    found = await look(cluster)
    assert verdicts(found) == ["missing", "missing", "unknown"]
    assert [finding.remedy for finding in found[:2]] == [
        "- {apiGroups: [apps], resources: [deployments], resourceNames: [payments], verbs: [get]}",
        "- {apiGroups: [apps], resources: [deployments/scale], resourceNames: [payments], verbs: [patch]}",
    ]


async def test_a_workload_of_another_group_is_told() -> None:
    cluster = FakeCluster(3)
    cluster.change(4, "loadtrim-orders")
    found = await look(cluster)
    assert found[2].verdict is Verdict.MISSING
    assert "another group, 'orders'" in found[2].detail
    assert verdicts(await look(cluster, "orders")) == ["ok", "ok", "ok", "unknown"]


async def test_another_autoscaler_is_named() -> None:
    cluster = FakeCluster(3)
    cluster.permitted.add(("list", "horizontalpodautoscalers"))
    assert verdicts(await look(cluster)) == ["ok"] * 4
    cluster.autoscaled_by = ("payments-hpa",)
    found = await look(cluster)
    assert found[3].verdict is Verdict.MISSING
    assert found[3].detail.startswith("payments-hpa would write against the leader")


async def test_an_api_server_that_is_away_and_a_workload_that_is_not_known() -> None:
    cluster = FakeCluster(3)
    cluster.fails.append(ApiError(0, "the API server cannot be talked to: refused"))
    (finding,) = await look(cluster)
    assert (finding.verdict, finding.what) == (Verdict.MISSING, "API server")
    (finding,) = await look_at_cluster(cluster, None, "g")
    assert finding.remedy == "LOADTRIM_KUBERNETES_TARGET=deployment/NAME"


async def test_who_asks_from_elsewhere_is_told_what_names_the_workload() -> None:
    """No setting of a pod and no pod's name is there to tell it."""
    (finding,) = await look_at_cluster(FakeCluster(3), None, "g", named_by=NAMED_ELSEWHERE)
    assert (finding.verdict, finding.remedy) == (Verdict.MISSING, "--workload deployment/NAME")
    assert "LOADTRIM" not in finding.detail
    (finding,) = await look_at_executor(FakeCluster(3), None, named_by=NAMED_ELSEWHERE)
    assert (finding.verdict, finding.remedy) == (Verdict.UNKNOWN, "--workload deployment/NAME")


async def test_who_looks_at_pods_has_to_read_them() -> None:
    cluster = FakeCluster(3)
    (finding,) = await look_at_pods(cluster, watched=False)
    assert (finding.what, finding.verdict) == ("get pods", Verdict.MISSING)
    assert finding.remedy == '- {apiGroups: [""], resources: [pods], verbs: [get]}'
    cluster.permitted.add(("get", "pods"))
    assert verdicts(await look_at_pods(cluster, watched=False)) == ["ok"]
    assert verdicts(await look_at_pods(cluster, watched=True)) == ["ok", "missing"]
    cluster.permitted.add(("watch", "pods"))
    assert verdicts(await look_at_pods(cluster, watched=True)) == ["ok", "ok"]


async def test_a_lease_has_to_be_there_for_this_group() -> None:
    cluster = FakeCluster(3)
    found = await look_at_lease(cluster, "payments", "g")
    assert verdicts(found) == ["missing", "missing", "ok"]
    assert found[1].remedy == (
        "- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [payments], verbs: [update]}"
    )
    cluster.permitted |= {("get", "leases"), ("update", "leases")}
    assert verdicts(await look_at_lease(cluster, "payments", "g")) == ["ok", "ok", "ok"]
    cluster.lease_document["spec"] = {"holderIdentity": "loadtrim-g@k1", "renewTime": "2026-01-01T00:00:00.000000Z"}
    assert verdicts(await look_at_lease(cluster, "payments", "g")) == ["ok", "ok", "ok"]
    (*_, held) = await look_at_lease(cluster, "payments", "orders")
    assert (held.verdict, "held by 'loadtrim-g@k1'" in held.detail) == (Verdict.MISSING, True)
    cluster.lease_document = None
    (*_, gone) = await look_at_lease(cluster, "payments", "g")
    assert (gone.verdict, gone.remedy.partition(" ")[0]) == (Verdict.MISSING, "kubectl")
    cluster.lease_fails = ApiError(403, "no")
    (*_, unread) = await look_at_lease(cluster, "payments", "g")
    assert unread.verdict is Verdict.UNKNOWN


async def test_exactly_one_autoscaler_executes_what_is_published() -> None:
    cluster = FakeCluster(3)
    assert verdicts(await look_at_executor(cluster, TARGET)) == ["unknown"], "it may not list them, and need not"
    cluster.permitted.add(("list", "horizontalpodautoscalers"))
    for names, verdict, said in (
        ((), "missing", "nothing executes"),
        (("one",), "ok", "one scales deployments/payments"),
        (("one", "two"), "missing", "one, two scale deployments/payments against each other"),
    ):
        cluster.autoscaled_by = names
        (finding,) = await look_at_executor(cluster, TARGET)
        assert (finding.verdict.value, said in finding.detail) == (verdict, True), finding
    assert verdicts(await look_at_executor(cluster, None)) == ["unknown"]
    cluster.fails.append(ApiError(0, "KUBERNETES_SERVICE_HOST is not set"))
    assert verdicts(await look_at_executor(cluster, TARGET)) == ["unknown"], "metric works outside of Kubernetes, too"


@pytest.mark.parametrize(
    ("http", "verdict"),
    [
        ("off", "missing"),
        ("127.0.0.1:0", "missing"),
        ("127.0.0.1:9095", "missing"),
        ("localhost:9095", "missing"),
        ("[::1]:9095", "missing"),
        ("0.0.0.0:0", "missing"),
        ("0.0.0.0:9095", "ok"),
        ("[::]:9095", "ok"),
    ],
)
def test_what_is_published_has_to_be_read_from_elsewhere(http: str, verdict: str) -> None:
    assert published_where(http).verdict.value == verdict
