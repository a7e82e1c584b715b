"""The policies and the packers by name, and the planner that is made of one of each.

Nothing that decides imports this module: the planner is given its policy and its packer. A new policy is a class as
:class:`.sizing.policy.Policy` says and an entry of :data:`POLICIES`. A new packer is a class as
:class:`.placement.problem.Packer` says and an entry of :data:`PACKERS`. Templates of both are in ``docs/templates``.

Policies: how many replicas, and when.

* :mod:`.sizing.objective`  ours: pool sizing by work curves, forecast, patience
* :mod:`.published.policies.iccbdc22`  ICCBDC'22, as published and as run
* :mod:`.published.policies.closer24`  CLOSER'24, algorithms 1 and 2, and as run
* :mod:`.published.policies.linear`  rate over service rate, as CLOSER'24 compares with
* :mod:`.published.policies.landau24`  Landau'24: as many as the packer opens; also ``_as_run``
* :mod:`.published.policies.li_ku`  Li & Ku: M/M/1 queues and the length of the buffer
* :mod:`.published.policies.hpa_cpu`  Kubernetes' HPA on utilisation (Koper'22)
* :mod:`.published.policies.varga`  Varga's two metrics, versions 1 and 2 (Koper'22)
* :mod:`.published.policies.dhalion`  Dhalion-adapted (Koper'22)
* :mod:`.published.policies.ds2`  DS2-modern and DS2-modern-adapted (Koper'22)
* :mod:`.published.policies.keda`  KEDA's Kafka scaler
* :mod:`.published.policies.flas`  FLAS, its reactive half
* :mod:`.published.policies.fixed`  a number
* :mod:`.published.policies.overprovisioned`  for the peak, all the time (CLOSER'24)
* :mod:`.published.policies.clairvoyant`  knows what will arrive; for simulators

Packers: which member owns which partition.

* :mod:`.placement.incremental`  ``trim``, ours: keep owners, repair, spread; with ``fewest`` onto as few bins as it
  can
* :mod:`.placement.sticky`  ``sticky``: balances counts; what shadow mode does
* :mod:`.published.packers.any_fit`  ``nf ff wf bf nfd ffd wfd bfd``, and each with ``_sticky`` as Landau'24 adapted it
* :mod:`.published.packers.modified`  ``mwf mbf mwfp mbfp``: Landau'24
* :mod:`.published.packers.least_loaded`  ``iccbdc22 closer24``, each also ``_as_run``; ``least_loaded`` is
  ``closer24_as_run``
* :mod:`.published.packers.kafka_assignors`  by count: Kafka's ``range`` and ``roundrobin``, and ``kd_n``

:mod:`~loadtrim_agent.common.assignors.spread` (how the group protocol gives away what no member claims) and
:mod:`~loadtrim_agent.common.assignors.standard` (Kafka's assignors for mixed groups) are not packers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec import structs

from loadtrim_agent.common.naming import check_parameters, chosen, parse_choice

from .parameters import read
from .placement.incremental import Trim
from .placement.problem import Packer
from .placement.sticky import Sticky
from .planner import Planner
from .published.packers.any_fit import ANY_FITS, AnyFit
from .published.packers.kafka_assignors import Dealt, KafkaOnce
from .published.packers.least_loaded import LEAST_LOADED, LeastLoaded
from .published.packers.modified import MODIFIED, ModifiedAnyFit
from .published.policies.clairvoyant import Clairvoyant
from .published.policies.closer24 import CLOSER24, Closer24
from .published.policies.dhalion import DhalionAdapted
from .published.policies.ds2 import DS2, Ds2
from .published.policies.fixed import Fixed
from .published.policies.flas import Flas
from .published.policies.hpa_cpu import HpaCpu
from .published.policies.iccbdc22 import ICCBDC22, Iccbdc22
from .published.policies.keda import Keda
from .published.policies.landau24 import LANDAU24, Landau24
from .published.policies.li_ku import LiKu
from .published.policies.linear import Linear
from .published.policies.overprovisioned import Overprovisioned
from .published.policies.varga import VARGA, Varga
from .published.rate_sources import rate_source_of
from .sizing.objective import Objective
from .sizing.policy import MEASURED, Future, Measure, Policy, UnmeasuredError
from .values import PlanConfig

__all__ = [
    "PACKERS",
    "POLICIES",
    "make_packer",
    "make_planner",
    "make_policy",
    "unmonitored",
]

POLICIES: dict[str, Callable[..., Policy]] = {
    Clairvoyant.name: Clairvoyant,
    **{name: partial(Closer24, name) for name in CLOSER24},
    DhalionAdapted.name: DhalionAdapted,
    **{name: partial(Ds2, name) for name in DS2},
    Fixed.name: Fixed,
    Flas.name: Flas,
    HpaCpu.name: HpaCpu,
    **{name: partial(Iccbdc22, name) for name in ICCBDC22},
    Keda.name: Keda,
    **{name: partial(Landau24, name) for name in LANDAU24},
    LiKu.name: LiKu,
    Linear.name: Linear,
    Objective.name: Objective,
    Overprovisioned.name: Overprovisioned,
    **{name: partial(Varga, name) for name in VARGA},
}

PACKERS: dict[str, Callable[..., Packer]] = {
    Trim.name: Trim,
    **{name: partial(AnyFit, name) for name in ANY_FITS},
    **{name: partial(ModifiedAnyFit, name) for name in MODIFIED},
    **{name: partial(LeastLoaded, name) for name in LEAST_LOADED},
    **{name: partial(Dealt, name) for name in ("range", "roundrobin")},
    KafkaOnce.name: KafkaOnce,
    Sticky.name: Sticky,
}

SHARED = frozenset({"mu"})
"""Parameters that a policy hands on to the packer, whether or not it has them itself."""


def make_policy(
    choice: str, measured: Collection[Measure] = MEASURED, given: Mapping[str, float] | None = None
) -> Policy:
    """Return the policy with this name; parameters may follow it (``closer24:mu=200,cooldown_seconds=10``).

    Args:
        choice: name and parameters.
        measured: what is known where it is to decide; a running group's by default.
        given: further parameters, which come first; :data:`SHARED` may be the packer's alone.

    Raises:
        UnknownNameError: there is none, or it has no such parameter; the message lists them and the nearest.
        ParameterError: a parameter is out of its range.
        UnmeasuredError: it needs to know what is not measured.
    """
    name, parameters = parse_choice(choice)
    make = chosen("policy", name, POLICIES)
    policy, given = make(), given or {}
    check_parameters("policy", name, {*parameters, *(given.keys() - SHARED)}, policy.kind.__struct_fields__)
    if parameters := parameters | dict(given):
        policy = make(read(policy.kind, parameters, f"the policy {name!r}", "it cannot decide"))
    # A policy that does not say looks at what every group measures.
    lacking = sorted(getattr(policy, "needs", frozenset()) - frozenset(measured))
    if lacking:
        raise UnmeasuredError(
            f"the policy {name!r} looks at {' and at '.join(lacking)}, which a running group cannot measure, so it "
            "cannot decide here; set LOADTRIM_POLICY to another (the default is objective), or play it in a simulator "
            "that tells the load"
        )
    return policy


def make_packer(choice: str) -> Packer:
    """Return the packer with this name; parameters may follow it (``name:parameter=number,...``).

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
        ParameterError: a parameter is not of its type or out of its range.
    """
    name, given = parse_choice(choice)
    make = chosen("packer", name, PACKERS)
    packer = make()
    if not given:
        return packer
    check_parameters("packer", name, given, packer.kind.__struct_fields__)
    return make(read(packer.kind, given, f"the packer {name!r}", "nothing can be packed"))


def make_planner(config: PlanConfig, future: Future | None = None) -> Planner:
    """Return a planner with the policy and the packer that the configuration names.

    Args:
        config: what planning is set to; parameters may follow the policy's name.
        future: what will arrive, where that is known: a simulator may tell, a running group cannot.

    Raises:
        UnknownNameError: no policy, packer or rate source has that name.
        ParameterError: a parameter of the policy or the packer is out of its range.
        UnmeasuredError: the policy needs to know the future, and it was not given.
    """
    rate_source_of(config.monitor)
    measured = MEASURED if future is None else MEASURED | {Measure.FUTURE}
    policy = make_policy(config.policy, measured, config.parameters)
    packer = make_packer(config.packer)
    parameters = parse_choice(config.policy)[1] | dict(config.parameters)
    return Planner(structs.replace(config, parameters=parameters), policy, packer, future)


def unmonitored(choice: str, monitor: str) -> str:
    """Return what a policy decides by that a rate source does not report: a sentence for the start.

    Args:
        choice: name and parameters of the policy.
        monitor: name of the rate source, not the members' reports.

    Returns:
        Empty: all that the policy knows of arrivals is the rate source's.
    """
    name = parse_choice(choice)[0]
    if name == Objective.name:
        return (
            f"LOADTRIM_MONITOR={monitor} tells level and trend of the load; how it comes within a second, by which the "
            "policy 'objective' keeps bursts in time, is what the members report."
        )
    if Measure.RATES in getattr(make_policy(choice), "needs", frozenset()):
        return ""
    return (
        f"The policy {name!r} looks at no arrival rates, so LOADTRIM_MONITOR={monitor} does not change how many "
        "replicas there are, only where the packer puts partitions. Set LOADTRIM_MONITOR=reports to do without it."
    )
