"""The policy ``lag_per_replica``, a template: so many waiting records per replica.

To add a policy:

1. Copy this file to ``agent/loadtrim_agent/planning/published/policies/<name>.py``. Make the imports relative, rename
   the classes, and let the first line and the source below be yours.
2. ``agent/loadtrim_agent/planning/registry.py``: a line in the docstring's list, an import, an entry of ``POLICIES``.
3. ``tests/golden/test_policies.py``: its answers to the two steps of the load, worked by hand, in ``UP`` and ``DOWN``.
4. ``tests/property/test_policies_play.py``: its parameters for a load of three minutes in ``CHOICES``. A policy that
   scales with no load goes into ``UNPLAYED``.
5. ``benchmarks/compare/runs.py``: a row of ``CHOICES``, so that ``make compare`` plays it.
6. ``loadtrim policies <name>`` prints the module's docstring and the parameters: read what users will read.
7. ``.venv/bin/ruff check --fix .`` sorts the imports; then ``make test-unit lint types``. The contract suite
   ``tests/contract/test_policy_contract.py`` takes every entry of ``POLICIES``.

Source: the paper, section and equation. Changed: what is different here, and why.
"""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta, structs

from loadtrim_agent.planning.parameters import Parameters, Positive
from loadtrim_agent.planning.published.policies.shared import Cooldown, PaperState, cooling, held, is_due, sized
from loadtrim_agent.planning.sizing.policy import Measure, View
from loadtrim_agent.planning.values import Reason, Sizing

__all__ = ["LagPerReplica"]


class LagParameters(Parameters, frozen=True, kw_only=True):
    """The parameters. Every field has a type with its range, a description and a default; names end in the unit."""

    lag_records: Annotated[Positive, Meta(description="records that may wait per replica")] = 1_000.0
    every_seconds: Annotated[Positive, Meta(description="how often it looks")] = 10.0
    cooldown_seconds: Cooldown = 60.0


class LagState(PaperState, frozen=True, kw_only=True):
    """The memory of the policy: it travels with every decision, also to the next leader.

    Every field is a number, a tuple or a dict of numbers, and has a default: an earlier version's state lacks it.
    """

    looked_at: float | None = None
    """Time of the last look, seconds since the epoch; None: there was none."""


class LagPerReplica:
    """The policy ``lag_per_replica``."""

    name = "lag_per_replica"
    # What the policy looks at. Where one of these is not measured, the start is refused.
    needs = frozenset({Measure.LAG})
    kind = LagParameters
    state = LagState

    def __init__(self, given: LagParameters | None = None) -> None:
        self._given = given or LagParameters()

    def decide(self, view: View, state: LagState) -> Sizing:
        """See :class:`~loadtrim_agent.planning.sizing.policy.Policy`."""
        given = self._given
        if not is_due(view, state.looked_at, given.every_seconds):
            return held(view, state, Reason.FITS, f"looked at every {given.every_seconds:g} s")
        # A state is never changed: the answer carries the next one.
        state = structs.replace(state, looked_at=view.now)
        if (left := cooling(view, state, given.cooldown_seconds)) > 0:
            return held(view, state, Reason.STABILIZING, f"the cool-down takes {left:.0f} s more")
        # `sized` keeps to the bounds, names the reason and remembers when it was scaled.
        text = f"{view.lag} records wait, {given.lag_records:g} may per replica"
        return sized(view, state, math.ceil(view.lag / given.lag_records), text)
