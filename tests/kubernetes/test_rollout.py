"""A rollout makes pods of a new template beside those of the old one. The surplus is the controllers' own."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.checker import check
from demo.journal import read_run
from loadtrim.testing import Cluster

from .cluster import ControlPlane
from .external_metrics import ExternalMetrics
from .shop import Shop, manifests, wait_until
from .test_group import Services, running

pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka]
PODS = 3
RATE = 30.0
BEFORE_SECONDS = 15
"""Load until the rollout: the leader has measured it by then."""
MIN_READY_SECONDS = 6
"""A pod is available when it was ready for so long. Longer than a leader takes for several plans."""
ROLLOUT_SECONDS = 60
AFTER_SECONDS = 15


@pytest.mark.slow
@pytest.mark.parametrize("scaler", ["kubernetes", "metric"])
def test_a_rollout_comes_to_its_end_and_changes_no_replicas(
    kafka: Cluster,
    plane: ControlPlane,
    shop: Shop,
    tmp_path: Path,
    scaler: str,
    record_property: pytest.RecordProperty,
) -> None:
    """A new pod owns least, so it would be the victim of a surplus: not ready, and the controllers wait for it."""
    seconds = BEFORE_SECONDS + ROLLOUT_SECONDS + AFTER_SECONDS
    made = Services(kafka, shop, tmp_path, scaler=scaler, replicas_min=PODS)
    with running(made, PODS), ExternalMetrics(plane, tmp_path) as metrics, ThreadPoolExecutor() as pool:
        if scaler == "metric":
            metrics.read[shop.namespace] = made.published
            for item in manifests("metric-hpa/hpa.yaml"):
                shop.create(item)
        playing = pool.submit(made.play, (RATE, seconds))
        wait_until("a plan that rests on a measured load", lambda: _is_measured(made), BEFORE_SECONDS)
        for step, version in enumerate(("2", None)):
            old, began = set(shop.pods()), time.monotonic()
            template = {"metadata": {"annotations": {"example.com/rollout": version}}}
            shop.plane.patch(shop.path(), {"spec": {"minReadySeconds": MIN_READY_SECONDS, "template": template}})
            wait_until("the rollout's end", lambda old=old: _is_rolled_out(shop, old), ROLLOUT_SECONDS)
            record_property(f"seconds_{step}", took := time.monotonic() - began)
            print(f"\n{'back' if version is None else 'forth'}: the rollout took {took:.0f} s")
        most = playing.result()
        assert len(shop.pods()) == PODS
    assert most == PODS, "a rollout's surplus was asked for"
    verdict = check(read_run(made.journal))
    assert verdict.spotless, str(verdict)
    assert verdict.done == int(RATE) * seconds


def _is_measured(made: Services) -> bool:
    for port in list(made.ports.values()):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
            if b"busy seconds/s arrive" in answer.read():
                return True
    return False


def _is_rolled_out(shop: Shop, old: set[str]) -> bool:
    status = shop.workload()["status"]
    return old.isdisjoint(shop.pods()) and status.get("availableReplicas") == status.get("replicas") == PODS
