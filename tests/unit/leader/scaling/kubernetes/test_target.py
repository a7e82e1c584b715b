"""The workload by its name, and by its pods' names."""

from __future__ import annotations

import pytest

from loadtrim_agent.leader.scaling.kubernetes.target import Target, parse_target, target_of_pod


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("deployment/payments", Target("apps", "v1", "deployments", "payments")),
        ("Deployments/payments", Target("apps", "v1", "deployments", "payments")),
        (" statefulset/payments ", Target("apps", "v1", "statefulsets", "payments")),
        ("rollout/payments", Target("argoproj.io", "v1alpha1", "rollouts", "payments")),
        ("cloneset/payments", Target("apps.kruise.io", "v1alpha1", "clonesets", "payments")),
        ("example.com/v2/workers/payments.eu", Target("example.com", "v2", "workers", "payments.eu")),
    ],
)
def test_a_target_is_read(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["payments", "pod/payments", "deployment/", "deployment/Payments", "apps/v1/payments", "a/b/c/../d", "/x"]
)
def test_what_names_no_workload_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="Allowed: deployment/NAME"):
        parse_target(text)


@pytest.mark.parametrize(
    ("pod", "target"),
    [
        ("payments-6d5f8c9b7d-x2x9k", "deployments/payments"),
        ("pay-eu-1-7f69d9c4bb-5tq2z", "deployments/pay-eu-1"),
        ("payments-0", "statefulsets/payments"),
        ("payments-12", "statefulsets/payments"),
        ("pay-2-10", "statefulsets/pay-2"),
    ],
)
def test_a_pod_tells_its_workload(pod: str, target: str) -> None:
    assert str(target_of_pod(pod)) == target


@pytest.mark.parametrize("pod", ["laptop", "laptop-4711-x", "payments-abcde", "payments-007", "", "host-a.example"])
def test_other_names_tell_none(pod: str) -> None:
    assert target_of_pod(pod) is None


def test_only_a_statefulset_takes_the_highest_numbers() -> None:
    assert parse_target("statefulset/a").ordered
    assert not parse_target("deployment/a").ordered
