"""Where partitions go. One registry; a packer has ``name``, ``kind`` and ``pack`` (:class:`.placement.problem.Packer`).

Ours:

* :mod:`.placement.incremental`  ``trim``: keep owners, repair, spread; with ``fewest`` onto as few bins as
  it can

The papers':

* :mod:`.published.packers.any_fit`  ``nf ff wf bf nfd ffd wfd bfd``, and each with ``_sticky`` as Landau'24
  adapted it
* :mod:`.published.packers.modified`  ``mwf mbf mwfp mbfp``: Landau'24
* :mod:`.published.packers.least_loaded`  ``iccbdc22 closer24``, each also ``_as_run``; ``least_loaded`` is
  ``closer24_as_run``

By count only:

* :mod:`.published.packers.kafka_assignors`  Kafka's ``range`` and ``roundrobin``, and ``kd_n``
* :mod:`.placement.sticky`  ``sticky``: balances counts; what shadow mode does

For simulators and experiments alone:

* :mod:`.published.packers.exact`  ``exact``: the proven optimum of small instances; needs the extra
  ``experiments``

No packers: :mod:`~loadtrim_agent.common.assignors.spread` (how the group protocol gives away what nobody claims) and
:mod:`~loadtrim_agent.common.assignors.standard` (Kafka's
assignors for mixed groups). :mod:`.placement.bin_source` says how packers that open their own number of bins live
with a policy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.naming import check_parameters, chosen, parse_choice

from .parameters import ParameterError, read
from .placement.incremental import Trim
from .placement.problem import Packer
from .placement.sticky import Sticky
from .published.packers.any_fit import ANY_FITS, AnyFit
from .published.packers.exact import Exact
from .published.packers.kafka_assignors import Dealt, KafkaOnce
from .published.packers.least_loaded import LEAST_LOADED, LeastLoaded
from .published.packers.modified import MODIFIED, ModifiedAnyFit

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
