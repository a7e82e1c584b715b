"""What of a pod's status is an end for certain, and what is not."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import json

from loadtrim_agent.leader.scaling.kubernetes.pod import Pod, ended_before, has_ended

UID = "6f1c"


def at(seconds: int) -> str:
    """Return a time as the API server writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def terminated(began: int = 100, ended: int = 200, **more: Any) -> dict[str, Any]:
    run = {"containerID": "containerd://17", "exitCode": 137, "reason": "OOMKilled"}
    return {"terminated": run | {"startedAt": at(began), "finishedAt": at(ended)} | more}


def running(began: int) -> dict[str, Any]:
    return {"running": {"startedAt": at(began)}}


def status(state: dict[str, Any], last_state: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "payments-0", "uid": UID},
        "spec": {"containers": [{"name": "payments"}]},
        "status": {"containerStatuses": [{"name": "payments", "state": state, "lastState": last_state or {}}]},
    }


def convert_pod(answer: dict[str, Any]) -> Pod:
    """Decode it as it comes."""
    return json.decode(json.encode(answer), type=Pod)


def ends(pod: dict[str, Any], said_at: float = 199.5) -> bool:
    return bool(has_ended(convert_pod(pod), UID, said_at))


def test_a_run_that_has_terminated_is_over() -> None:
    assert has_ended(convert_pod(status(terminated())), UID, 199.5) == "OOMKilled, exit code 137"
    assert ends(status({"waiting": {"reason": "CrashLoopBackOff"}}, terminated()))


@pytest.mark.parametrize(
    ("said_at", "ended"),
    [(99.9, False), (100.0, True), (200.9, True), (201.0, False), (300.0, False)],
)
def test_only_what_was_said_within_the_run_is_of_its_process(said_at: float, ended: bool) -> None:
    """The API server has whole seconds. What was said later is of a process that runs, or of another clock."""
    assert ends(status(terminated()), said_at) is ended


@pytest.mark.parametrize(("said_at", "ended"), [(199.5, True), (200.0, False), (200.7, False), (230.0, False)])
def test_the_process_of_the_next_run_lives(said_at: float, ended: bool) -> None:
    """It may have begun, and said something, in the second in which the one before ended."""
    assert ends(status(running(200), terminated()), said_at) is ended


def test_a_container_that_runs_has_not_ended() -> None:
    """Also one that is frozen, or whose node is cut off: its status stays as it was written last."""
    assert not ends(status(running(100)))
    assert not ends(status({"running": {}}, terminated()))


@pytest.mark.parametrize(
    "less",
    [
        {"reason": "ContainerStatusUnknown"},
        {"reason": "Unknown", "exitCode": 255},
        {"containerID": ""},
        {"finishedAt": None},
        {"startedAt": None},
    ],
)
def test_what_the_kubelet_does_not_know_from_the_runtime_is_no_end(less: dict[str, Any]) -> None:
    assert not ends(status(terminated(**less)))


def test_another_pod_of_the_name_says_nothing() -> None:
    """Of a StatefulSet, or in another cluster."""
    assert not has_ended(convert_pod(status(terminated())), "another", 199.5)


def test_phases_and_conditions_are_no_end() -> None:
    """Controllers write them for nodes that nobody reaches, whose containers may run on."""
    pod = status({})
    pod["status"] = {
        "phase": "Failed",
        "reason": "NodeLost",
        "conditions": [{"type": "DisruptionTarget", "status": "True"}, {"type": "Ready", "status": "False"}],
    }
    assert not ends(pod)


@pytest.mark.parametrize("shared", ["hostPID", "shareProcessNamespace"])
def test_processes_that_share_a_namespace_may_outlive_the_first_one(shared: str) -> None:
    pod = status(terminated())
    pod["spec"][shared] = True
    assert not ends(pod)


def test_a_sidecar_may_live_on() -> None:
    pod = status(terminated())
    pod["spec"]["initContainers"] = [{"name": "schema"}]
    assert ends(pod), "one that has run before is no other"
    pod["spec"]["initContainers"].append({"name": "proxy", "restartPolicy": "Always"})
    assert not ends(pod)


def test_of_two_containers_nothing_tells_which_one_it_was() -> None:
    pod = status(terminated())
    pod["spec"]["containers"].append({"name": "proxy"})
    assert not ends(pod), "the status of the other one may not be there yet"
    other = deepcopy(pod["status"]["containerStatuses"][0]) | {"name": "proxy"}
    pod["status"]["containerStatuses"].append(other)
    assert not ends(pod)


def ends_before(pod: dict[str, Any], first: float, last: float) -> bool:
    return bool(ended_before(convert_pod(pod), UID, first, last))


def test_a_process_that_talked_before_the_end_and_not_after_it_is_gone() -> None:
    """The last word may be of the second of the end, which the API server cuts off."""
    assert ends_before(status(terminated()), 150.0, 199.0)
    assert ends_before(status(terminated()), 150.0, 200.9)
    assert ends_before(status(running(203), terminated()), 150.0, 200.9)


@pytest.mark.parametrize(("first", "last"), [(200.0, 200.0), (200.7, 200.9), (150.0, 201.0), (99.0, 199.0)])
def test_a_status_that_is_older_than_what_was_said_ends_nobody(first: float, last: float) -> None:
    """The process of the next run may talk already; what was said later or before is of no process of this run."""
    assert not ends_before(status(terminated()), first, last)


def test_an_old_status_of_a_container_that_runs_again_ends_nobody() -> None:
    assert not ends_before(status(running(200), terminated()), 200.1, 200.2)
    assert not ends_before(status(running(200), terminated()), 199.0, 200.2), "a clock that was set"
    assert not ends_before(status(running(100)), 150.0, 199.0)


@pytest.mark.parametrize("uid", ["another", ""])
def test_a_status_of_another_pod_ends_nobody(uid: str) -> None:
    assert not ended_before(convert_pod(status(terminated())), uid, 150.0, 199.0)


def test_runs_that_have_terminated_are_seen_wherever_they_stand() -> None:
    assert convert_pod(status(terminated())).has_terminated_run
    assert convert_pod(status(running(200), terminated())).has_terminated_run
    assert not convert_pod(status(running(200))).has_terminated_run
