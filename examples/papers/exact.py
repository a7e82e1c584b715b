"""The proven optimum of small instances, by which packers are judged: what the packer ``exact`` places by."""

from __future__ import annotations

from loadtrim_agent.core.plan.packers.exact import NoPlacementError, NotProvenError, Optimum, fewest_bins

__all__ = ["NoPlacementError", "NotProvenError", "Optimum", "fewest_bins"]
