"""The user's settings: one name, one default and one range each, handed down to whatever works by them.

The name of a setting is its field's; ``loadtrim.Settings`` reads ``LOADTRIM_<FIELD>`` from the environment. The default
stands at the field, the range in its type. What a room is set to beside them stands in a subclass (``PlanConfig``,
``MeterConfig``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

__all__ = [
    "BASELINE_TOPIC",
    "DEFAULTS",
    "HIDDEN",
    "INTERVAL_SECONDS_MAX",
    "AgentSettings",
    "MemberSettings",
    "Mode",
    "Positive",
    "ScalerName",
    "ScalerSettings",
    "is_allowed",
    "out_of_range",
    "shown",
    "what_is_allowed",
    "without_secrets",
]

BASELINE_TOPIC = "__loadtrim-baselines"
HIDDEN = "(hidden)"
"""Stands for what is a secret."""
_SECRETS = ("token", "password", "secret", "credential", "sasl", "private")

# A description is what an error message says is allowed. What is above a bound could not stand in a record either.
Positive = Annotated[
    float, msgspec.Meta(gt=0, le=1e9, description="a number of seconds above 0 and up to 1e9, e.g. 0.5")
]
INTERVAL_SECONDS_MAX = 30.0
"""Chosen: within the 60 s that `loadtrim status` and `scale` look back, the last report and decision are found."""
# Below 0.1 s, the length of a meter's slot, a report would have nothing to tell.
Interval = Annotated[
    float,
    msgspec.Meta(
        ge=0.1,
        le=INTERVAL_SECONDS_MAX,
        description=f"a number of seconds from 0.1 to {INTERVAL_SECONDS_MAX:g}, e.g. 0.5",
    ),
]
Concurrency = Annotated[
    float, msgspec.Meta(gt=0, le=1e6, description="busy seconds per second that a member can give, above 0, e.g. 4")
]
Share = Annotated[float, msgspec.Meta(ge=0.5, lt=1, description="a share of at least 0.5 and below 1, e.g. 0.999")]
Replicas = Annotated[
    int, msgspec.Meta(ge=1, le=10**6, description="1 or more: with no member there is no leader to scale up again")
]
MaxReplicas = Annotated[
    Annotated[int, msgspec.Meta(ge=1, le=10**6)] | None,
    msgspec.Meta(description="1 or more, and no less than LOADTRIM_MIN_REPLICAS"),
]
Moment = Annotated[
    Annotated[float, msgspec.Meta(ge=0)] | None,
    msgspec.Meta(description="a time in seconds since the epoch, e.g. 1760000000.5"),
]
_WORDS = {bool: "true or false", str: "text, in UTF-8"}
"""Words for a type that stands alone."""
Mode = Literal["active", "shadow"]
ScalerName = Literal["none", "webhook", "kubernetes", "metric"]
ForeignReplicas = Literal["respect", "correct"]
Slicing = Literal["off", "auto"]


class ScalerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the leader's way to ask for replicas."""

    scaler: ScalerName = "none"
    scaler_url: str = ""
    scaler_token: str = ""
    kubernetes_target: str = ""
    """The workload, e.g. ``deployment/payments``; empty: as the pod's name tells."""
    kubernetes_namespace: str = ""
    """Of the workload; empty: the pod's."""
    kubernetes_foreign: ForeignReplicas = "correct"
    """``respect`` leaves replicas that another writer set until another number is wanted; ``correct`` does not."""
    kubernetes_lease: str = ""
    """Name of a Lease in the workload's namespace that the leader holds before it changes anything; empty: none."""


class ClusterSettings(ScalerSettings, frozen=True, kw_only=True):
    """Settings of a member in a pod."""

    kubernetes_pod_uid: str = ""
    """The pod's uid, from the downward API. Given, members see by a pod's status that its container has ended, and end
    its membership at once; it takes the right to get pods."""
    kubernetes_pod_selector: str = ""
    """Labels of the group's pods, e.g. ``app=payments``. Given, the leader and one other member watch them, and need
    not wait until a member is silent; it takes the right to watch pods."""


class AgentSettings(ClusterSettings, frozen=True, kw_only=True):
    """What the user may set. Durations in seconds. The constructor checks nothing; see :func:`out_of_range`."""

    enabled: bool = True
    """False: a plain ``AIOKafkaConsumer`` underneath, same code."""
    mode: Mode = "active"
    """``shadow``: plans are made, logged and counted; nothing is scaled."""
    sla_seconds: Positive = 1.0
    """The objective W: from a record's timestamp until it is done."""
    sla_share: Share = 0.999
    """Share of the records that must meet the objective."""
    catchup_seconds: Positive = 300.0
    """A backlog that is already late is to be worked off within this time."""
    min_replicas: Replicas = 1
    max_replicas: MaxReplicas = None
    """None: as many as there are partitions. Invariant: at least ``min_replicas``."""
    policy: str = "objective"
    packer: str = "trim"
    monitor: str = "reports"
    """Where arrival rates come from (:class:`~loadtrim_agent.planning.published.rate_sources.RateSourceName`)."""
    decision_seconds: Interval = 1.0
    report_seconds: Interval = 1.0
    drain_seconds: Positive = 20.0
    """Longest drain of the record in hand, at a stop or a move."""
    concurrency: Concurrency = 1.0
    """Busy seconds per second that this member can give."""
    instance: str = ""
    """What the orchestrator calls this process; empty: see :func:`~loadtrim_agent.common.host.instance_name`."""
    instance_type: str = ""
    """Members of one type have one speed."""
    http: str = "127.0.0.1:0"
    """Address of /metrics, /healthz, /readyz, /replicas, /status; port 0: any free one; ``off``."""
    time_zone: str = "UTC"
    """IANA name of the zone whose weeks baselines follow that do not name theirs."""
    control_topic: str = ""
    """Empty: ``__loadtrim.<group>``."""
    baseline_topic: str = BASELINE_TOPIC
    requested_at: Moment = None
    """When the orchestrator was asked for this instance, seconds since the epoch (``loadtrim up`` sets it): the start
    of the measured start-up time; else the process's start."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={shown(name, getattr(self, name))!r}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({fields})"


class MemberSettings(AgentSettings, frozen=True, kw_only=True):
    """Settings of a member beyond those that meters and planners go by."""

    slicing: Slicing = "off"
    """``auto``: a member gives partitions away by its own decision where it will not be done in time."""


def shown(name: str, value: object) -> str:
    """Return a setting as text that anybody may see. What a setting is called tells whether it is a secret."""
    text = "" if value is None else str(value)
    if text and any(word in name.lower() for word in _SECRETS):
        return HIDDEN
    return without_secrets(text) if name.lower().endswith("url") else text


def without_secrets(url: str) -> str:
    """Return an address without user, password, query and fragment, any of which may hold a secret."""
    before, mark, _ = url.partition("?") if "?" in url else url.partition("#")
    scheme, slashes, rest = before.partition("//")
    host, slash, path = rest.partition("/")
    user, at, place = host.rpartition("@")
    return f"{scheme}{slashes}{HIDDEN if user else ''}{at}{place}{slash}{path}{mark}{HIDDEN if mark else ''}"


DEFAULTS = AgentSettings()


def out_of_range(settings: AgentSettings) -> Iterator[tuple[str, object, str]]:
    """Yield name, value and what is allowed of each setting that is outside its range, or contradicts another one.

    Also of one of another type: what is given in code has passed no reader of text.
    """
    for name, kind, allowed in _ranges(type(settings)):
        value = getattr(settings, name)
        if not is_allowed(kind, value):
            yield name, value, allowed
    most = settings.max_replicas
    if most is not None and most < settings.min_replicas:
        yield "max_replicas", most, what_is_allowed(MaxReplicas)


@cache  # msgspec evaluates all annotations each time, and a group's settings are made anew for each view of it
def _ranges(kind: type[AgentSettings]) -> tuple[tuple[str, Any, str], ...]:
    """Return name, type and what is allowed of each setting of which that can be said in words."""
    return tuple(
        (field.name, field.type, allowed)
        for field in msgspec.structs.fields(kind)
        if (allowed := what_is_allowed(field.type))
    )


def is_allowed(kind: Any, value: object) -> bool:
    """Return whether ``value`` is of a setting's type and in its range; a number must be finite, and text Unicode."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return False
    try:
        msgspec.convert(value, kind)
        if isinstance(value, str):
            value.encode()
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False
    return True


def what_is_allowed(kind: Any) -> str:
    """Return in words what a setting of this type may be; empty where the type has no words of its own."""
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    if kind in _WORDS:
        return _WORDS[kind]
    return next((m.description for m in getattr(kind, "__metadata__", ()) if m.description), "")
