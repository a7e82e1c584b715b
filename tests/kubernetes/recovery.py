"""How long a killed container costs, stage by stage: ``python -m kubernetes.recovery`` prints a table of 20 kills.

All times are of this machine's clock. A stage begins where the one before it ends::

    killed    SIGKILL until the node has written the end of the container into the pod's status
    left      until a member has read it, and the coordinator has answered its LeaveGroup
    joined    until the leader of the next generation has made the assignment
    owned     until processes that live say that they own all partitions
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from loadtrim.testing import LocalKafka
from loadtrim_agent.wire.codec import Record, decode
from loadtrim_agent.wire.envelope import COORDINATION, UnreadableRecord
from loadtrim_agent.wire.ownership_records import AssignmentRecord, LeftRecord, RejoinRecord
from loadtrim_agent.wire.topic_names import control_topic

from .cluster import ControlPlane
from .node import Process
from .shop import Shop, manifests, wait_until
from .test_group import PARTITIONS, Services, running

__all__ = ["Kill", "Recoveries", "owned", "pods_that_say_where_they_are"]

LOOK_SECONDS = 0.01
OWNED_SECONDS = 30.0
PODS = 3
SETTLED_SECONDS = (6.0, 7.0)
"""A pod is killed so long after all are there again, drawn evenly. A member that has just come has to be silent too."""
STAGES = ("killed", "left", "joined", "owned")


@contextmanager
def pods_that_say_where_they_are(services: Services) -> Iterator[Services]:
    """Run pods that may read and watch pods, until they own everything, and end them."""
    for item in manifests("ended/rbac.yaml"):
        services.shop.create(item)
    with running(services, PODS) as made:
        wait_until("all partitions", lambda: sum(owned(made).values()) == PARTITIONS)
        yield made


def owned(services: Services) -> dict[str, int]:
    """Return pod -> partitions that are its member's by the log, of pods that answer.

    The page's list of partitions with their lag is as old as the last report, up to a second.
    """
    found = {}
    for pod in tuple(services.ports):
        with suppress(OSError, KeyError):
            agent = _agent(services, pod)
            own = [each["partitions"] for each in agent["members"] if each["member"] == agent["member"]]
            found[pod] = sum(own) if agent["state"] == "stable" else 0
    return found


def leads(services: Services, pod: str) -> bool:
    """Return whether a pod's member leads its group."""
    return bool(_agent(services, pod)["leads"])


def _agent(services: Services, pod: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{services.ports[pod]}/status", timeout=1.0) as answer:
        (agent,) = json.load(answer)["agents"]
    return dict(agent)


@dataclass
class Kill:
    """One killed container. Times in seconds since the epoch; 0: the log does not tell."""

    leader: bool
    killed_at: float
    told_at: float = 0.0
    left_at: float = 0.0
    joined_at: float = 0.0
    owned_at: float = 0.0

    @property
    def seconds(self) -> float:
        return self.owned_at - self.killed_at

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage; one of which the log does not tell is in the next one."""
        ends = (self.told_at, self.left_at, self.joined_at, self.owned_at)
        before, found = self.killed_at, {}
        for name, end in zip(STAGES, ends, strict=True):
            found[name] = max(0.0, end - before) if end else 0.0
            before = max(before, end)
        return found


@dataclass
class Recoveries:
    """Kills pods of a group, one after the other. Use it in ``with``: a thread reads the group's log."""

    services: Services
    draw: random.Random = field(default_factory=lambda: random.Random(11))
    kills: list[Kill] = field(default_factory=list)
    _records: list[Record] = field(default_factory=list)
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    async def _follow(self) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.services.kafka.bootstrap, fetch_max_wait_ms=100)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(control_topic(self.services.group), COORDINATION)])
            while not self._ends.is_set():
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    for message in batch:
                        with suppress(UnreadableRecord):
                            self._records.append(decode(message.value or b""))
        finally:
            await consumer.stop()

    def kill(self, *, leader: bool | None = None, settle: tuple[float, float] = SETTLED_SECONDS) -> Kill:
        """Kill a pod's process when all are there, and wait until processes that live own all partitions.

        Args:
            leader: whether it is the leader's; None: any.
            settle: how long all have been there, drawn evenly between.
        """
        services, node = self.services, self.services.node
        assert node is not None
        wait_until("all pods", self._all_there, OWNED_SECONDS)
        time.sleep(self.draw.uniform(*settle))
        wait_until("all pods", self._all_there, OWNED_SECONDS)
        pods = [pod for pod in services.shop.pods() if leader is None or leads(services, pod) == leader]
        pod = self.draw.choice(pods)
        process = node.running(pod)
        assert isinstance(process, Process)
        node.told_at.pop(pod, None)
        kill = Kill(leader=leads(services, pod), killed_at=time.time())
        process.kill()
        process.process.wait()
        services.supervisor.exited(process.process.pid)
        # The container that is started again may own some of them by then: it is another process, and another member.
        while sum(owned(services).values()) != PARTITIONS:
            if time.time() > kill.killed_at + OWNED_SECONDS:
                raise TimeoutError(f"not owned again within {OWNED_SECONDS:g} s")
            time.sleep(LOOK_SECONDS)
        kill.owned_at = time.time()
        time.sleep(0.3)  # What the log says of it is read by then.
        kill.told_at = min(node.told_at.get(pod, 0.0), kill.owned_at)
        kill.left_at = self._first(kill, LeftRecord) or self._first(kill, RejoinRecord)
        kill.joined_at = self._first(kill, AssignmentRecord)
        self.kills.append(kill)
        return kill

    def _all_there(self) -> bool:
        owns = owned(self.services)
        return len(owns) == PODS and min(owns.values()) > 0 and sum(owns.values()) == PARTITIONS

    def _first(self, kill: Kill, kind: type[Record]) -> float:
        """Return when the first record of a kind was written after a kill, and before all was owned again."""
        times = [record.at for record in self._records if isinstance(record, kind)]
        return min((at for at in times if kill.killed_at < at < kill.owned_at), default=0.0)

    def table(self) -> str:
        """Return the median and the longest of each stage, and of all."""
        rows = [("stage", "p50", "longest")]
        stages = [kill.stages() for kill in self.kills]
        rows += [(name, *_figures([each[name] for each in stages])) for name in STAGES]
        for name, kills in (
            ("all", self.kills),
            ("all, leader", [kill for kill in self.kills if kill.leader]),
            ("all, others", [kill for kill in self.kills if not kill.leader]),
        ):
            rows.append((name, *_figures([kill.seconds for kill in kills])))
        return "\n".join(f"{name:14}{p50:>8}{longest:>9}" for name, p50, longest in rows)


def _figures(seconds: list[float]) -> tuple[str, str]:
    if not seconds:
        return "-", "-"
    return f"{sorted(seconds)[len(seconds) // 2]:.2f}", f"{max(seconds):.2f}"


def main() -> None:
    """Start a broker, a control plane and three pods, and kill one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--relist", type=float, default=1.0, help="seconds between a kubelet's looks at its containers")
    parser.add_argument("--no-watch", action="store_true", help="pods are read when a member is silent, not watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, LocalKafka() as kafka, ControlPlane() as plane:
        directory = Path(name)
        shop = Shop(plane, "recovery", directory)
        services = Services(
            kafka,
            shop,
            directory,
            scaler="none",
            says_pod=True,
            watches=not options.no_watch,
            relist_seconds=options.relist,
        )
        with pods_that_say_where_they_are(services), Recoveries(services) as recoveries:
            for number in range(options.kills):
                kill = recoveries.kill(leader=number % 3 == 0)
                stages = "  ".join(f"{name} {seconds:.2f}" for name, seconds in kill.stages().items())
                print(f"{kill.seconds:.2f} s  {'leader' if kill.leader else 'other '}  {stages}", flush=True)
            print(recoveries.table())


if __name__ == "__main__":
    main()
