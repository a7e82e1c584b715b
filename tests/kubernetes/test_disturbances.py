"""Groups of the example's service on a real Kafka, whose workload somebody disturbs under load: nothing is lost."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.checker import check
from demo.journal import read_run
from loadtrim.cli import main
from loadtrim.testing import Cluster

from .node import Process
from .recovery import leads, owned
from .shop import Shop, wait_until
from .test_group import PARTITIONS, SCALE_SECONDS, Services, running

pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka, pytest.mark.slow]
PODS = 3
RATE = 60.0
BEFORE_SECONDS = 15
"""Load until the disturbance: the leader has measured it by then."""
AFTER_SECONDS = 45
PROBE_SECONDS = 20.0
"""Longer than a leader takes to be killed, and shorter than the next one waits."""


def take_the_number_away(services: Services) -> None:
    """Apply a manifest without the replicas that the one before it had: that is one replica."""
    services.shop.plane.patch(services.shop.path(), {"spec": {"replicas": None}})


def scale_by_hand(services: Services) -> None:
    """Have fewer pods than work, of which the controllers choose."""
    services.shop.scale(PODS - 1)


def evict_two(services: Services) -> None:
    """Drain a node of two members at once, where there is no budget. The leader is one of them."""
    node = services.node
    assert node is not None
    pods = sorted(services.shop.pods(), key=lambda pod: not leads(services, pod))
    for pod in pods[:2]:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        services.shop.plane.call("POST", f"{node.path}/{pod}/eviction", body)


@pytest.mark.parametrize("disturb", [take_the_number_away, scale_by_hand, evict_two])
def test_a_disturbed_group_comes_back_and_loses_nothing(
    kafka: Cluster, shop: Shop, tmp_path: Path, disturb: Callable[[Services], None]
) -> None:
    """Each pod that goes is asked to. So no record is repeated either."""
    made = Services(kafka, shop, tmp_path, replicas_min=PODS)
    seconds = BEFORE_SECONDS + AFTER_SECONDS
    with running(made, PODS), ThreadPoolExecutor() as pool:
        playing = pool.submit(made.play, (RATE, seconds))
        wait_until("all partitions", lambda: all(made_owned(made)))
        time.sleep(BEFORE_SECONDS)
        before, began = set(shop.pods()), time.monotonic()
        disturb(made)
        wait_until("fewer pods", lambda: not before <= set(shop.pods()))
        wait_until("three pods", lambda: shop.replicas() == shop.ready() == PODS, AFTER_SECONDS)
        wait_until("all partitions", lambda: all(made_owned(made)), AFTER_SECONDS)
        print(f"\n{disturb.__name__}: back after {time.monotonic() - began:.1f} s")
        playing.result()
    verdict = check(read_run(made.journal))
    assert verdict.spotless, str(verdict)
    assert verdict.done == int(RATE) * seconds


def made_owned(services: Services) -> list[int]:
    """Return how many partitions each pod owns, 0 for one that tells nothing; zeros while some have no owner."""
    owns, pods = owned(services), services.shop.pods()
    there = [owns.get(pod, 0) for pod in pods]
    return there if len(pods) == PODS and sum(there) == PARTITIONS else [0]


def test_a_leader_that_is_killed_while_a_victim_is_drained_leaves_it_to_the_next_one(
    kafka: Cluster, shop: Shop, tmp_path: Path
) -> None:
    """The number is changed by the next leader, and no pod that works goes. What the killed process had in hand may
    come again.
    """
    made = Services(kafka, shop, tmp_path, replicas_min=PODS)
    with running(made, PODS), ThreadPoolExecutor() as pool:
        playing = pool.submit(made.play, (RATE, BEFORE_SECONDS + AFTER_SECONDS))
        wait_until("all partitions", lambda: all(made_owned(made)))
        time.sleep(BEFORE_SECONDS)
        node = made.node
        assert node is not None
        # The leader has to wait for the next probe of a pod that is drained.
        node.probe_seconds = PROBE_SECONDS
        pods = shop.pods()
        (leader,) = (pod for pod in pods if leads(made, pod))
        process = node.running(leader)
        assert isinstance(process, Process)
        assert main(["scale", made.group, str(PODS - 1), "--force", "--bootstrap", kafka.bootstrap]) == 0
        wait_until("a drained victim", lambda: bool(drained(made)))
        process.kill()
        process.process.wait()
        made.supervisor.exited(process.process.pid)
        (victim,) = drained(made)
        assert shop.replicas() == PODS, "the leader has not changed it yet"
        node.probe_seconds = 1.0
        wait_until("the next leader's change", lambda: shop.replicas() == PODS - 1, SCALE_SECONDS)
        wait_until("one pod less", lambda: len(shop.pods()) == PODS - 1)
        # The killed container may be starting again: it is not ready either, and may go in the victim's place.
        assert set(pods) - {leader, victim} <= set(shop.pods()), "one that works has gone"
        playing.result()
    verdict = check(read_run(made.journal))
    assert verdict.ok, str(verdict)
    assert verdict.done == int(RATE) * (BEFORE_SECONDS + AFTER_SECONDS)


def drained(services: Services) -> list[str]:
    """Return the pods that say that they are drained victims."""
    found = []
    for pod, port in services.ports.items():
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1.0).close()
        except urllib.error.HTTPError as error:
            if error.read() == b"victim, drained\n":
                found.append(pod)
        except OSError:
            pass  # Its process has ended.
    return found
