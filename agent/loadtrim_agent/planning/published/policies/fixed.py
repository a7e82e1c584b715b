"""As many replicas as somebody said. Placement goes on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...parameters import Parameters
from ...policy_state import PolicyState
from ...sizing.policy import Measure, View
from ...values import Reason, Sizing

__all__ = ["Fixed"]


class FixedParameters(Parameters, frozen=True, kw_only=True):
    """The number."""

    replicas: (
        Annotated[int, Meta(ge=1, description="how many (default: what the orchestrator runs is left alone)")] | None
    ) = None


class Fixed:
    """The policy ``fixed``: parameter ``replicas``; without it, what the orchestrator runs is left alone."""

    name = "fixed"
    needs: frozenset[Measure] = frozenset()
    kind = FixedParameters
    state = PolicyState

    def __init__(self, given: FixedParameters | None = None) -> None:
        self._given = given or FixedParameters()

    def decide(self, view: View, state: PolicyState) -> Sizing:
        """See :class:`...sizing.policy.Policy`."""
        given = self._given.replicas
        if given is None:
            remembered = view.replicas if state.wanted is None else state.wanted
            count = view.bounded(max(view.replicas, remembered))
            text = "as many as were there at first"
        else:
            count = view.bounded(given)
            text = "a fixed number, by the policy's parameter"
        return Sizing(replicas=count, reason=Reason.FIXED, text=text, state=PolicyState(wanted=count))
