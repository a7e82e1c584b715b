"""The arrival of a load in the simulated group: each second's records, put into their queues when it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from ..loads.load import Batch, Load
from .world import World

__all__ = ["Arrivals"]

RATE_SHARE = 0.3
"""Of the newest second in a partition's smoothed rate."""


class Arrivals:
    """Plays a load.

    Args:
        load: what arrives.
        world: whose queues and rates are written.
        seed: of the load's random numbers.
        progress: told each second of the load as it begins.
    """

    def __init__(self, load: Load, world: World, seed: int, progress: Callable[[int], None] | None) -> None:
        self._world = world
        self._progress = progress
        self._batches: Iterator[tuple[Batch, ...]] = load.batches(Random(f"load:{seed}"))
        self._counts = [0] * len(load.partitions)
        """Records of each partition in the second that has begun."""

    def begin(self, second: int) -> None:
        """Put everything that arrives in a second into its queue; nothing where the load has ended."""
        batches = next(self._batches, None)
        if batches is None:
            return
        if self._progress is not None:
            self._progress(second)
        world, arrived = self._world, 0
        self._learn_rates()
        for batch in batches:
            stamp = world.begin + second + batch.offset_seconds
            for index, count in batch.counts:
                world.queues[index].stamps.extend([stamp] * count)
                self._counts[index] += count
                arrived += count
        world.tally.arrive(arrived)

    def _learn_rates(self) -> None:
        """Smooth in what arrived in the second that ends."""
        rates = self._world.rates
        share = RATE_SHARE if any(rates) else 1.0
        for index, count in enumerate(self._counts):
            rates[index] += (count - rates[index]) * share
            self._counts[index] = 0
