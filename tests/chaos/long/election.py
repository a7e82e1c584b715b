"""The end of a log cut off as brokers do it: a replica that lags is elected when the only one in sync is dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from integration.harness import eventually
from integration.harness_brokers import lead
from loadtrim.testing.local_kafka import Broker

from .cluster import ADMIN_SECONDS, ChaosCluster

__all__ = ["UncleanElection"]

PARTITIONS = (0, 1)
ANSWER_SECONDS = 3.0


class UncleanElection:
    """An unclean election for one topic: its leader goes on alone while its follower is frozen, and dies then.

    Args:
        cluster: three brokers.
        topic: of two partitions; no other topic loses anything.
        group: whose coordinator may go with the leader.
        leader: of both partitions; it dies with what only it has.
        follower: elected with what it had when it was frozen.
        witness: stays as it is.
    """

    def __init__(
        self, cluster: ChaosCluster, topic: str, group: str, leader: Broker, follower: Broker, witness: Broker
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._leader = leader
        self._follower = follower
        self._witness = witness

    @asynccontextmanager
    async def lagging(self) -> AsyncIterator[None]:
        """Within this block the leader alone is in sync. Afterwards all brokers run, and the topic is as it was."""
        cluster, topic = self._cluster, self._topic
        await eventually(self._all_in_sync, "all replicas of all topics are in sync")
        try:
            await asyncio.to_thread(
                lambda: cluster.configure(topic, min__insync__replicas="1", unclean__leader__election__enable="true")
            )
            await lead(cluster.kafka, topic, PARTITIONS, [self._leader.id, self._follower.id])
            await eventually(lambda: self._in_sync(self._leader, self._follower), "two replicas are in sync")
            await asyncio.to_thread(self._follower.suspend)
            await eventually(lambda: self._in_sync(self._leader), "the leader alone is in sync")
            yield
        finally:
            await asyncio.to_thread(self._follower.resume)
            await asyncio.to_thread(self._leader.start)
            replicas = [self._follower.id, self._witness.id, self._leader.id]
            await lead(cluster.kafka, topic, PARTITIONS, replicas)
            await asyncio.to_thread(
                lambda: cluster.configure(topic, min__insync__replicas="2", unclean__leader__election__enable="false")
            )

    async def cut(self) -> int:
        """Kill the leader, wake the follower, and return how many records of partition 0 are gone, at least.

        Afterwards every partition of every topic has a leader that lives, and the group a coordinator that has read its
        log: one that is still reading has no group, and begins no session's time.

        Raises:
            AssertionError: the follower was not elected, or nothing is gone.
        """
        before = await asyncio.to_thread(self._end)
        await asyncio.to_thread(self._leader.kill)
        await asyncio.to_thread(self._follower.resume)
        await eventually(lambda: self._led_by(self._follower), "the replica that lags is elected")
        gone = before - await asyncio.to_thread(self._end)
        assert gone > 0, f"nothing of {self._topic} was cut off below {before}"
        await eventually(self._all_led, "every partition has a leader that lives")
        await eventually(self._coordinated, "the group has a coordinator that knows it")
        return gone

    # -- what the witness says -------------------------------------------------------------------------------------

    def _end(self) -> int:
        asked = TopicPartition(self._topic, 0)
        admin = self._admin()  # dropped before it has answered it never does
        answer = admin.list_offsets({asked: OffsetSpec.latest()}, request_timeout=ADMIN_SECONDS)
        return int(answer[asked].result(ADMIN_SECONDS).offset)

    async def _in_sync(self, *brokers: Broker) -> bool:
        wanted = sorted(broker.id for broker in brokers)
        found = await self._partitions(self._topic)
        return bool(found) and all(sorted(each.isrs) == wanted and each.leader == brokers[0].id for each in found)

    async def _led_by(self, broker: Broker) -> bool:
        found = await self._partitions(self._topic)
        return bool(found) and all(each.leader == broker.id for each in found)

    async def _all_led(self) -> bool:
        found = await self._partitions()
        return bool(found) and all(each.leader not in (-1, self._leader.id) for each in found)

    async def _coordinated(self) -> bool:
        with contextlib.suppress(KafkaException):
            admin = self._admin()
            answer = admin.describe_consumer_groups([self._group], request_timeout=ANSWER_SECONDS)[self._group]
            return bool((await asyncio.to_thread(answer.result, ANSWER_SECONDS)).members)
        return False

    async def _all_in_sync(self) -> bool:
        found = await self._partitions()
        return bool(found) and all(sorted(each.isrs) == sorted(each.replicas) for each in found)

    async def _partitions(self, topic: str | None = None) -> list[Any]:
        return await asyncio.to_thread(lambda: list(self._asked(topic)))

    def _asked(self, topic: str | None) -> Iterator[Any]:
        # A new client knows the witness alone, so it asks nobody that is frozen or dead.
        with contextlib.suppress(KafkaException):
            for found in self._admin().list_topics(topic, timeout=ANSWER_SECONDS).topics.values():
                yield from found.partitions.values()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._witness.address, "log_level": 0})
