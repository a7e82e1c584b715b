"""Where partitions go. One module each; a new one is a class with ``name`` and ``pack`` and a line below.

* :mod:`.trim`          ours: keep owners, repair, spread
* :mod:`.least_loaded`  ICCBDC'22 and CLOSER'24
* :mod:`.sticky`        balances counts; what shadow mode does
* :mod:`.spread`        no packer: how the group protocol gives away what nobody claims
* :mod:`.standard`      no packers: Kafka's own assignors, for mixed groups
"""

from __future__ import annotations

from collections.abc import Callable

from ..naming import check_parameters, chosen, parse_choice
from .least_loaded import LeastLoaded
from .problem import Packer
from .sticky import Sticky
from .trim import Trim

__all__ = ["PACKERS", "make_packer"]

PACKERS: dict[str, Callable[[], Packer]] = {
    LeastLoaded.name: LeastLoaded,
    Sticky.name: Sticky,
    Trim.name: Trim,
}


def make_packer(choice: str) -> Packer:
    """The packer with this name; parameters may follow it (``name:parameter=number,...``).

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
    """
    name, parameters = parse_choice(choice)
    packer = chosen("packer", name, PACKERS)()
    check_parameters("packer", name, parameters, packer.parameters)
    return packer
