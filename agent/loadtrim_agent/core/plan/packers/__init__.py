"""Where partitions go. One registry; a packer has ``name``, ``kind`` and ``pack`` (:class:`.problem.Packer`).

Ours:

* :mod:`.trim`          ``trim``: keep owners, repair, spread; with ``fewest`` onto as few bins as it can

The papers':

* :mod:`.any_fit`       ``nf ff wf bf nfd ffd wfd bfd``, and each with ``_sticky`` as Landau'24 adapted it
* :mod:`.modified`      ``mwf mbf mwfp mbfp``: Landau'24
* :mod:`.least_loaded`  ``iccbdc22 closer24``, each also ``_as_run``; ``least_loaded`` is ``closer24_as_run``

By count only:

* :mod:`.assignors`     Kafka's ``range`` and ``roundrobin``, and ``kd_n``
* :mod:`.sticky`        ``sticky``: balances counts; what shadow mode does

For simulators and experiments alone:

* :mod:`.exact`         ``exact``: the proven optimum of small instances; needs the extra ``experiments``

No packers: :mod:`.spread` (how the group protocol gives away what nobody claims) and :mod:`.standard` (Kafka's
assignors for mixed groups). :mod:`.supply` says how packers that open their own number of bins live with a policy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...model import LoadtrimError
from ..naming import check_parameters, chosen, parse_choice
from ..parameters import ParameterError, read
from .any_fit import ANY_FITS, AnyFit
from .assignors import Dealt, KafkaOnce
from .exact import Exact
from .least_loaded import LEAST_LOADED, LeastLoaded
from .modified import MODIFIED, ModifiedAnyFit
from .problem import Packer
from .sticky import Sticky
from .trim import Trim

__all__ = ["LABORATORY", "PACKERS", "ParameterError", "SimulatorOnlyError", "make_packer"]

PACKERS: dict[str, Callable[..., Packer]] = {
    Trim.name: Trim,
    **{name: partial(AnyFit, name) for name in ANY_FITS},
    **{name: partial(ModifiedAnyFit, name) for name in MODIFIED},
    **{name: partial(LeastLoaded, name) for name in LEAST_LOADED},
    **{name: partial(Dealt, name) for name in ("range", "roundrobin")},
    KafkaOnce.name: KafkaOnce,
    Sticky.name: Sticky,
}


LABORATORY: dict[str, Callable[..., Packer]] = {Exact.name: Exact}
"""Those that take longer than a group can wait."""


class SimulatorOnlyError(LoadtrimError, ValueError):
    """A running group was to use what is for simulators. The shell stops the start with its text."""


def make_packer(choice: str, *, in_group: bool = False) -> Packer:
    """The packer with this name; parameters may follow it (``name:parameter=number,...``).

    Args:
        choice: name and parameters.
        in_group: it is to place the partitions of a running group.

    Raises:
        SimulatorOnlyError: it is none for a running group.
        MissingSolverError: the extra that it needs is not installed.
        UnknownNameError: there is none; the message lists them and the nearest.
        ParameterError: a parameter is not of its type or out of its range.
    """
    name, given = parse_choice(choice)
    if in_group and name in LABORATORY:
        raise SimulatorOnlyError(
            f"the packer {name!r} may think for longer than a group's leader has between two heartbeats, so it cannot "
            "place here; set LOADTRIM_PACKER to another (the default is trim), or play it in a simulator"
        )
    make = chosen("packer", name, PACKERS if in_group else PACKERS | LABORATORY)
    packer = make()
    if not given:
        return packer
    check_parameters("packer", name, given, packer.kind.__struct_fields__)
    return make(read(packer.kind, given, f"the packer {name!r}", "nothing can be packed"))
