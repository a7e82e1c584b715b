"""A member of Kafka's consumer protocol (KIP-848): a small process that asks the model of the broker without a network.

It works as Kafka's own client does: one record at a time, commits by itself, puts partitions down between two records
and commits them first. A group that refuses it ends it; it is started again a second later, as an orchestrator would.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from loadtrim_agent.common.partition import Partition

from .member import GROUP

if TYPE_CHECKING:
    from .group import GroupModel
    from .world import World

__all__ = ["BrokerAssigned"]

HEARTBEAT_SECONDS = 0.5
"""``group.consumer.heartbeat.interval.ms``, much less than by default: a run has 30 s."""
RESTART_SECONDS = 1.0
COMMIT_SECONDS = 1.0
IDLE_SECONDS = 0.05


class BrokerAssigned:
    """One process, restarts included.

    Args:
        world: has the cluster and the journal.
        name: for traces, and the member's id.
        topic: which it subscribes.
    """

    foreign = True
    unaware = has_lease = False

    def __init__(self, world: World, name: str, topic: str) -> None:
        self._world = world
        self.name = name
        self._topic = topic
        self._rng = random.Random(world.kernel.rng.random())
        self.in_hand: dict[Partition, dict[int, float]] = {}
        self.alive = True
        self._leaving = False
        self._starts = 0
        self._epoch = 0
        self._wanted: frozenset[Partition] = frozenset()
        self._positions: dict[Partition, int] = {}
        """What it has, and the next record of each."""
        self._committed: dict[Partition, int] = {}
        self._commit_at = 0.0
        self._beat()
        self._turn()

    def stop(self) -> None:
        """It leaves after the record in hand."""
        self._leaving = True

    def crash(self) -> None:
        """It dies, and the group is not told."""
        self.alive = False
        self.in_hand.clear()

    def excused_since(self, at: float) -> bool:
        """Return whether what it was handed since then may be handed out again: no more than by any mixed group."""
        return False

    @property
    def delivers(self) -> set[Partition]:
        """What it has."""
        return set(self._positions) if self.alive else set()

    # -- the group -----------------------------------------------------------------------------------------------

    @property
    def _id(self) -> str:
        return f"{self.name}-{self._starts}"

    @property
    def _group(self) -> GroupModel:
        return self._world.cluster.group(GROUP)

    def _beat(self) -> None:
        """Heartbeat, for as long as the process lives."""
        if not self.alive:
            return
        told = self._group.heartbeat(self._id, self._epoch, list(self._positions), (self._topic,))
        pause = HEARTBEAT_SECONDS
        if not told.code:
            self._world.counts["kip848", "taken"] += not self._epoch
            self._world.note_mixed()  # at once: it may be handed a record before anybody looks
            if (told.epoch, told.assigned) != (self._epoch, self._wanted):
                self._world.note(self.name, f"has epoch {told.epoch}, is given {sorted(told.assigned)}")
            self._epoch, self._wanted = told.epoch, told.assigned
        elif self._group.up:
            self._world.note(self.name, f"is refused: {told.code}")
            self._world.counts["kip848", "fenced" if self._epoch else "refused"] += 1
            self._starts += 1
            self._epoch, self._wanted, pause = 0, frozenset(), RESTART_SECONDS
            self._positions.clear()
            self._committed.clear()
        self._world.kernel.scheduler.after(pause * self._rng.uniform(0.9, 1.1), self._beat)

    def _commit(self) -> None:
        offsets = {p: at for p, at in self._positions.items() if at != self._committed.get(p)}
        codes = self._group.commit(self._id, self._epoch, offsets) if self._group.up else {}
        self._committed.update((p, offsets[p]) for p, code in codes.items() if not code)
        self._commit_at = self._world.kernel.now + COMMIT_SECONDS

    # -- records -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Between two records: put down and take up what the broker wants, then take the next record."""
        world = self._world
        if not self.alive:
            return
        if self._leaving or self._positions.keys() - self._wanted or world.kernel.now >= self._commit_at:
            self._commit()
        if self._leaving:
            self._group.leave(self._id)
            self.alive = False
            return
        for partition in self._positions.keys() - self._wanted:
            del self._positions[partition]
            self._committed.pop(partition, None)
        for partition in sorted(self._wanted - self._positions.keys()) if self._group.up else ():
            self._positions[partition] = max(0, self._group.offsets.get(partition, 0))
        ready = [p for p, at in sorted(self._positions.items()) if at < world.cluster.stores[p].end]
        if ready:
            self._take(self._rng.choice(ready))
        else:
            world.kernel.scheduler.after(IDLE_SECONDS, self._turn)

    def _take(self, partition: Partition) -> None:
        world, offset = self._world, self._positions[partition]
        world.journal.delivered(self, partition, offset)
        self.in_hand[partition] = {offset: world.kernel.now}
        world.kernel.scheduler.after(world.cost(self._rng), self._did, partition, offset)

    def _did(self, partition: Partition, offset: int) -> None:
        if not self.alive:
            return
        self.in_hand.clear()
        self._world.journal.done(self, partition, offset)
        if self._positions.get(partition) == offset:
            self._positions[partition] = offset + 1
        self._turn()
