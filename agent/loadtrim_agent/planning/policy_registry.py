"""How many replicas, and when. One module each; a new one is a class with ``name``, ``kind``, ``decide`` and, if
it has any, ``needs`` (:class:`.sizing.policy.Policy`) and a line below.

* :mod:`.sizing.objective`  ours: pool sizing by work curves, forecast, patience
* :mod:`.published.policies.iccbdc22`  ICCBDC'22, as published and as run
* :mod:`.published.policies.closer24`  CLOSER'24, algorithms 1 and 2, and as run
* :mod:`.published.policies.linear`  rate over service rate, as CLOSER'24 compares with
* :mod:`.published.policies.landau24`  Landau'24: as many as the packer opens
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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from loadtrim_agent.common.naming import check_parameters, chosen, parse_choice

from .parameters import ParameterError
from .published.policies.clairvoyant import Clairvoyant
from .published.policies.closer24 import CLOSER24, Closer24
from .published.policies.dhalion import DhalionAdapted
from .published.policies.ds2 import DS2, Ds2
from .published.policies.fixed import Fixed
from .published.policies.flas import Flas
from .published.policies.hpa_cpu import HpaCpu
from .published.policies.iccbdc22 import ICCBDC22, Iccbdc22
from .published.policies.keda import Keda
from .published.policies.landau24 import Landau24
from .published.policies.li_ku import LiKu
from .published.policies.linear import Linear
from .published.policies.overprovisioned import Overprovisioned
from .published.policies.varga import VARGA, Varga
from .sizing.objective import Objective
from .sizing.parameters import read
from .sizing.policy import MEASURED, Future, Measure, Policy, UnmeasuredError, View

__all__ = [
    "MEASURED",
    "POLICIES",
    "Future",
    "Measure",
    "ParameterError",
    "Policy",
    "UnmeasuredError",
    "View",
    "make_policy",
    "unmonitored",
]

POLICIES: dict[str, Callable[[], Policy]] = {
    Clairvoyant.name: Clairvoyant,
    **{name: partial(Closer24, name) for name in CLOSER24},
    DhalionAdapted.name: DhalionAdapted,
    **{name: partial(Ds2, name) for name in DS2},
    Fixed.name: Fixed,
    Flas.name: Flas,
    HpaCpu.name: HpaCpu,
    **{name: partial(Iccbdc22, name) for name in ICCBDC22},
    Keda.name: Keda,
    Landau24.name: Landau24,
    LiKu.name: LiKu,
    Linear.name: Linear,
    Objective.name: Objective,
    Overprovisioned.name: Overprovisioned,
    **{name: partial(Varga, name) for name in VARGA},
}

SHARED = frozenset({"mu"})
"""Parameters that a policy hands on to the packer, whether or not it has them itself."""


def make_policy(
    choice: str, measured: Collection[Measure] = MEASURED, given: Mapping[str, float] | None = None
) -> Policy:
    """The policy with this name; parameters may follow it (``closer24:mu=200,cooldown_seconds=10``).

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
    policy = chosen("policy", name, POLICIES)()
    given = given or {}
    check_parameters("policy", name, {*parameters, *(given.keys() - SHARED)}, policy.kind.__struct_fields__)
    read(policy.kind, parameters | dict(given), name)
    # A policy that does not say looks at what every group measures.
    lacking = sorted(getattr(policy, "needs", frozenset()) - frozenset(measured))
    if lacking:
        raise UnmeasuredError(
            f"the policy {name!r} looks at {' and at '.join(lacking)}, which a running group cannot measure, so it "
            "cannot decide here; set LOADTRIM_POLICY to another (the default is objective), or play it in a simulator "
            "that tells the load"
        )
    return policy


def unmonitored(choice: str, monitor: str) -> str:
    """What a policy decides by that a monitor of arrival rates does not tell: a sentence for the start.

    Args:
        choice: name and parameters of the policy.
        monitor: its name, not the members' reports.

    Returns:
        Empty: all that it knows of arrivals is the monitor's.
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
