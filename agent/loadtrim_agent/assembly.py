"""What runs beside membership: measuring, metrics, leading. Put together here, and nowhere else."""

from __future__ import annotations

from typing import Any

from .agent import Companion
from .core.group.values import GroupConfig

__all__ = ["Assembly"]


class Assembly(Companion):
    def __init__(self, settings: Any, config: GroupConfig, *, client_id: str, registry: Any) -> None:
        self.settings = settings
