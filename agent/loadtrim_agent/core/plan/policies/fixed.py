"""As many replicas as somebody said. Placement goes on."""

from __future__ import annotations

from ..values import Reason, Sizing
from .base import View

__all__ = ["Fixed"]


class Fixed:
    """The policy ``fixed``: parameter ``replicas``; without it, what the orchestrator runs is left alone."""

    name = "fixed"
    parameters = frozenset({"replicas"})

    def decide(self, view: View) -> Sizing:
        """See :class:`.base.Policy`."""
        given = view.config.parameters.get("replicas")
        if given is None:
            remembered = view.memory.get("wanted", view.replicas)
            count = view.bounded(max(view.replicas, round(remembered)))
            text = "as many as were there at first"
        else:
            count = view.bounded(round(given))
            text = "a fixed number, by the policy's parameter"
        return Sizing(replicas=count, reason=Reason.FIXED, text=text, memory={"wanted": float(count)})
