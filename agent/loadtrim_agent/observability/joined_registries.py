"""Several registries of metrics are shown as one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["JoinedRegistries"]


class JoinedRegistries(Collector):
    """Several registries read as one: a family that is in more than one of them is there once."""

    def __init__(self, registries: Sequence[Any]) -> None:
        self._registries = registries

    def restricted_registry(self, names: Iterable[str]) -> JoinedRegistries:
        """The same for some names only, as ``CollectorRegistry`` has it."""
        wanted = list(names)
        return JoinedRegistries([registry.restricted_registry(wanted) for registry in self._registries])

    def collect(self) -> Iterable[Metric]:
        """The families of all, in the order in which they were met."""
        if len(self._registries) == 1:
            return list(self._registries[0].collect())
        families: dict[str, Metric] = {}
        seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for registry in self._registries:
            for metric in registry.collect():
                joined = families.get(metric.name)
                if joined is None:
                    joined = Metric(metric.name, metric.documentation, metric.type)
                    families[metric.name] = joined
                for sample in metric.samples:
                    key = (sample.name, tuple(sorted(sample.labels.items())))
                    if key not in seen:  # both registries may hold, say, a collector for the process
                        seen.add(key)
                        joined.samples.append(sample)
        return list(families.values())
