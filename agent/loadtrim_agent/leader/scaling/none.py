"""No orchestrator: the group has the size that somebody gives it; loadtrim only spreads the load."""

from __future__ import annotations

from loadtrim_agent.observability.text import counted

from .port import Answer, ScaleOutcome, ScaleRequest

__all__ = ["NoneScaler"]


class NoneScaler:
    """Asks nobody. What is wanted is still decided, logged and counted, so that its numbers can be looked
    at.
    """

    name = "none"
    scales = False
    withdrawable = False
    per_generation = False

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """REFUSED, always: there is nobody to ask."""
        return ScaleOutcome(
            Answer.REFUSED,
            f"{counted(wanted.replicas, 'replica')} wanted, but there is nobody to ask: LOADTRIM_SCALER is none. "
            "Start or stop consumers by hand, or set LOADTRIM_SCALER to webhook.",
        )

    def withdraw(self) -> None:
        """Do nothing: nothing was asked."""

    async def close(self) -> None:
        """Nothing to close."""
