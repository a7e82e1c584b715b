"""The ``LOADTRIM_*`` variables as one frozen value."""

from __future__ import annotations

import difflib
import logging
import os
import zoneinfo
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

import msgspec

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.observability.http import parse_address
from loadtrim_agent.planning.packer_registry import make_packer
from loadtrim_agent.planning.policy_registry import make_policy
from loadtrim_agent.planning.rate_source import monitor_of
from loadtrim_agent.runtime.settings import Mode, Positive, RunOptions, ScalerName

__all__ = ["Settings", "SettingsError"]

log = logging.getLogger("loadtrim")

PREFIX = "LOADTRIM_"
KNOWN_ELSEWHERE = frozenset(
    {
        "LOADTRIM_DATA",
        "LOADTRIM_KAFKA_VERSION",
        "LOADTRIM_SIM_SEEDS",
        "LOADTRIM_SPARK_JARS",
        "LOADTRIM_SPARK_MASTER",
        "LOADTRIM_SPARK_MEMORY",
        "LOADTRIM_SPARK_STATE",
    }
)
"""Variables of the test tools and of the Spark pipeline: known, and none of the consumer's business."""


class SettingsError(LoadtrimError, ValueError):
    """A setting cannot be used. One line: the variable, its value, what is allowed."""


class Settings(RunOptions, frozen=True, kw_only=True):
    """What the environment says, or the caller: each field is the variable ``LOADTRIM_<FIELD>``. Durations in seconds.

    Raises:
        SettingsError: a value is outside its range, or two contradict each other.
    """

    enabled: bool = True
    """False: a plain ``AIOKafkaConsumer`` underneath, same code."""
    drain_seconds: Positive = 20.0
    """Longest drain of the record in hand, at a stop or a move."""
    control_topic: str = ""
    """Empty: ``__loadtrim.<group>``."""

    def __post_init__(self) -> None:
        for name in (
            "sla_seconds",
            "catchup_seconds",
            "decision_seconds",
            "report_seconds",
            "drain_seconds",
            "concurrency",
        ):
            if not 0 < getattr(self, name) < float("inf"):
                raise _bad(name, getattr(self, name), "a number of seconds above 0")
        if not 0.5 <= self.sla_share < 1:
            raise _bad("sla_share", self.sla_share, "a share of at least 0.5 and below 1, e.g. 0.999")
        if self.min_replicas < 1:
            raise _bad(
                "min_replicas", self.min_replicas, "1 or more: with no member there is no leader to scale up again"
            )
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise _bad(
                "max_replicas", self.max_replicas, f"at least LOADTRIM_MIN_REPLICAS, which is {self.min_replicas}"
            )
        for name, kind in (("mode", Mode), ("scaler", ScalerName)):
            if getattr(self, name) not in get_args(kind):
                raise _bad(name, getattr(self, name), ", ".join(get_args(kind)))
        checks: dict[str, Callable[[str], object]] = {
            "policy": make_policy,
            "packer": partial(make_packer, in_group=True),
            "monitor": monitor_of,
            "http": parse_address,
        }
        for name, check in checks.items():
            try:
                check(getattr(self, name))
            except ValueError as error:
                raise SettingsError(
                    f"{PREFIX}{name.upper()}={getattr(self, name)} cannot be used: {' '.join(str(error).split())}"
                ) from None
        if self.scaler == "webhook" and not self.scaler_url:
            raise _bad("scaler", self.scaler, "webhook only together with LOADTRIM_SCALER_URL")
        if self.scaler == "kubernetes":
            raise _bad("scaler", self.scaler, "none or webhook: the Kubernetes backend is not part of this version")
        try:
            zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
            raise _bad("time_zone", self.time_zone, "an IANA name such as UTC or Europe/Berlin") from error

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment (default: this process's). An empty value counts as not set.

        Raises:
            SettingsError: a value cannot be read or used.
        """
        environ = os.environ if environ is None else environ
        fields = {PREFIX + field.name.upper(): field for field in msgspec.structs.fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in sorted(environ.items()):
            if not variable.startswith(PREFIX) or variable in KNOWN_ELSEWHERE:
                continue
            field = fields.get(variable)
            if field is None:
                _warn_unknown(variable, list(fields))
            elif text.strip():
                values[field.name] = _read(variable, text.strip(), field.type)
        return cls(**values)


def _read(variable: str, text: str, wanted: Any) -> Any:
    if wanted is bool:
        text = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text.lower())
    try:
        return msgspec.convert(text, wanted, strict=False)
    except msgspec.ValidationError as error:
        if choices := get_args(wanted) if wanted in (Mode, ScalerName) else ():
            raise SettingsError(f"{variable}={text!r} cannot be used: allowed is {', '.join(choices)}") from None
        raise SettingsError(f"{variable}={text!r} cannot be used: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _bad(name: str, value: object, allowed: str) -> SettingsError:
    return SettingsError(f"{PREFIX}{name.upper()}={value} cannot be used: allowed is {allowed}")


def _warn_unknown(variable: str, known: list[str]) -> None:
    nearest = difflib.get_close_matches(variable, known, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    log.warning("%s is no setting of loadtrim and is ignored.%s", variable, hint)
