"""How many replicas, and when. One module each; a new one is a class with ``name`` and ``decide`` and a line below.

* :mod:`.objective`  ours: pool sizing by work curves, forecast, patience
* :mod:`.closer24`   CLOSER'24, algorithm 2
* :mod:`.landau24`   Landau'24: as many as the packer opens
* :mod:`.fixed`      a number
"""

from __future__ import annotations

from collections.abc import Callable

from ..naming import check_parameters, chosen, parse_choice
from .base import Policy, View
from .closer24 import Closer24
from .fixed import Fixed
from .landau24 import Landau24
from .objective import Objective

__all__ = ["POLICIES", "Policy", "View", "make_policy"]

POLICIES: dict[str, Callable[[], Policy]] = {
    Closer24.name: Closer24,
    Fixed.name: Fixed,
    Landau24.name: Landau24,
    Objective.name: Objective,
}


def make_policy(choice: str) -> Policy:
    """The policy with this name; parameters may follow it (``closer24:mu=200,cooldown_seconds=10``).

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
    """
    name, parameters = parse_choice(choice)
    policy = chosen("policy", name, POLICIES)()
    check_parameters("policy", name, parameters, policy.parameters)
    return policy
