"""Arrival rates as a rate source measures them at the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from loadtrim_agent.common.clock import wall_time
from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.connections import UNREACHABLE
from loadtrim_agent.kafka.rate_sources import RateSource
from loadtrim_agent.planning.values import PlanConfig, Rates

__all__ = ["BrokerRates"]

log = logging.getLogger("loadtrim")

RATE_SOURCE_SECONDS_MAX = 1.0
"""Longest wait for a rate source's answer before a decision."""
RATES_SECONDS = 2.0
RATES_DECISIONS = 2.0
"""So long, and so many decisions more, a rate source's last answer counts."""


class BrokerRates:
    """The rates that one leadership goes by.

    Args:
        config: of the planner.
        source: measures them; None: the members' reports do.
        boundary: counts answers that are missing.
    """

    def __init__(self, config: PlanConfig, source: RateSource | None, boundary: ErrorBoundary) -> None:
        self._config = config
        self._source = source
        self._boundary = boundary
        self.rates: Rates | None = None
        """The last answer, as long as it counts."""
        self._failing = False

    async def look(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Ask the rate source. Its last answer counts for a few decisions more, so that one answer lost is none.

        Args:
            partitions: returns all of the group's. Called where there is a rate source: to list ten thousand takes
                10 ms.
        """
        if self._source is None:
            return
        now, why = wall_time(), ""
        try:
            async with asyncio.timeout(RATE_SOURCE_SECONDS_MAX):
                self.rates = await self._source.rates(sorted(partitions()), now) or self.rates
        except UNREACHABLE as error:
            why = str(error) or type(error).__name__
            self._boundary.broke("monitor")
        if (
            self.rates is not None
            and now - self.rates.at > RATES_SECONDS + RATES_DECISIONS * self._config.decision_seconds
        ):
            self.rates = None
        if why and not self._failing:
            log.warning(
                "The monitor %s has no answer (%s): nothing is scaled down while it does not tell what arrives. "
                "LOADTRIM_MONITOR=reports goes by what the members measure.",
                self._config.monitor,
                why,
            )
        self._failing = bool(why)
