"""The ``LOADTRIM_*`` variables as one frozen value."""

from __future__ import annotations

import difflib
import logging
import os
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.settings import MemberSettings, Positive, out_of_range, what_is_allowed
from loadtrim_agent.leader.scaling.kubernetes.target import parse_lease_name, parse_target
from loadtrim_agent.leader.scaling.webhook import check_webhook
from loadtrim_agent.observability.address import parse_address
from loadtrim_agent.planning.published.rate_sources import rate_source_of
from loadtrim_agent.planning.registry import make_packer, make_policy
from loadtrim_agent.wire.topic_names import BASELINE_TOPIC, check_topic_name, control_topic

__all__ = ["Settings", "SettingsError", "control_topic_beside"]

log = logging.getLogger("loadtrim")

PREFIX = "LOADTRIM_"
KNOWN_ELSEWHERE = frozenset(
    {
        "LOADTRIM_DATA",
        "LOADTRIM_KAFKA_VERSION",
        "LOADTRIM_SIM_FIRST",
        "LOADTRIM_SIM_SEEDS",
        "LOADTRIM_SPARK_JARS",
        "LOADTRIM_SPARK_MASTER",
        "LOADTRIM_SPARK_MEMORY",
        "LOADTRIM_SPARK_STATE",
        "LOADTRIM_WHOLE_FIRST",
        "LOADTRIM_WHOLE_SEEDS",
    }
)
"""Variables of the test tools and of the Spark pipeline: known, and none of the consumer's business."""
_CHECKS: dict[str, Callable[[str], object]] = {
    "policy": make_policy,
    "packer": make_packer,
    "monitor": rate_source_of,
    "http": parse_address,
    "kubernetes_target": lambda target: target and parse_target(target),
    "kubernetes_lease": lambda name: name and parse_lease_name(name),
    "control_topic": lambda name: check_topic_name(name or BASELINE_TOPIC),
    "baseline_topic": check_topic_name,
}
"""Each raises ValueError with what is allowed."""


class SettingsError(LoadtrimError, ValueError):
    """A setting cannot be used. One line: the variable, its value, what is allowed."""


class Settings(MemberSettings, frozen=True, kw_only=True):
    """The settings of the environment, or of the caller: each field is the variable ``LOADTRIM_<FIELD>``.

    Durations are in seconds.

    Raises:
        SettingsError: a value is outside its range, or two contradict each other.
    """

    exit_seconds: Positive = 5.0
    """After SIGTERM, when its consumers have left, a program that has not ended within this time is ended."""

    def __post_init__(self) -> None:
        for name, value, allowed in out_of_range(self):
            raise _bad(name, value, allowed)
        for name, check in _CHECKS.items():
            try:
                check(getattr(self, name))
            except ValueError as error:
                raise SettingsError(
                    f"{PREFIX}{name.upper()}={getattr(self, name)} cannot be used: {' '.join(str(error).split())}"
                ) from None
        if self.scaler == "webhook" and not self.scaler_url:
            raise _bad("scaler", self.scaler, "webhook only together with LOADTRIM_SCALER_URL")
        if self.scaler == "metric":
            self._check_metric()
        self._check_scaler()
        self._check_kubernetes()
        self._check_time_zone()
        if self.control_topic == self.baseline_topic:
            raise _bad("control_topic", self.control_topic, "another topic than LOADTRIM_BASELINE_TOPIC")

    def _check_metric(self) -> None:
        """An autoscaler has to find the number, and probes have to find the readiness."""
        address = parse_address(self.http)
        if address is None or address.port == 0:
            raise _bad(
                "http",
                self.http,
                "with LOADTRIM_SCALER=metric a fixed port, e.g. 0.0.0.0:9095: the autoscaler reads /replicas or "
                "/metrics there, and the readiness probe asks /readyz",
            )
        if self.scaler_url or self.scaler_token:
            raise _bad(
                "scaler",
                self.scaler,
                "metric only without LOADTRIM_SCALER_URL and LOADTRIM_SCALER_TOKEN: nobody is asked",
            )
        if self.kubernetes_foreign != "correct":
            raise _bad(
                "kubernetes_foreign",
                self.kubernetes_foreign,
                "respect only with LOADTRIM_SCALER=kubernetes: the replicas are the autoscaler's",
            )
        if self.kubernetes_lease:
            raise _bad(
                "kubernetes_lease",
                self.kubernetes_lease,
                "a Lease only with LOADTRIM_SCALER=kubernetes: the leader changes nothing that it would have to hold",
            )

    def _check_scaler(self) -> None:
        """Neither value is quoted: both may hold a secret."""
        try:
            if self.scaler_url:
                check_webhook(self.scaler_url, self.scaler_token)
        except ValueError as error:
            raise SettingsError(f"LOADTRIM_SCALER_URL or LOADTRIM_SCALER_TOKEN cannot be used: {error}") from None
        if self.scaler_url and self.scaler == "none":
            log.warning(
                "LOADTRIM_SCALER_URL is set and LOADTRIM_SCALER is none: nothing is asked for, so nothing is scaled."
            )

    def _check_kubernetes(self) -> None:
        """Tell of a setting that does nothing: somebody may rely on it."""
        for name, default in (("kubernetes_lease", ""), ("kubernetes_foreign", "correct")):
            if getattr(self, name) != default and self.scaler != "kubernetes":
                log.warning(
                    "%s%s is set and LOADTRIM_SCALER is %s: it counts with kubernetes only, and does nothing.",
                    PREFIX,
                    name.upper(),
                    self.scaler,
                )
        if self.kubernetes_pod_selector and not self.kubernetes_pod_uid:
            log.warning(
                "LOADTRIM_KUBERNETES_POD_SELECTOR is set and LOADTRIM_KUBERNETES_POD_UID is not: no pod is watched."
            )

    def _check_time_zone(self) -> None:
        """UTC needs no time zone database; small images have none."""
        if self.time_zone == "UTC":
            return
        try:
            zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            allowed = "an IANA name such as UTC or Europe/Berlin"
            if not zoneinfo.available_timezones():
                allowed += "; install tzdata (the system's, or Python's): this machine knows no zone but UTC"
            raise _bad("time_zone", self.time_zone, allowed) from None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **changes: Any) -> Settings:
        """Read the environment (default: this process's). An empty value counts as not set.

        Args:
            environ: variables and their texts.
            changes: fields that are not taken from the environment, by name.

        Raises:
            SettingsError: a value cannot be read or used.
            TypeError: one of ``changes`` is no field.
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
                values[field.name] = _read(variable, field.name, text.strip(), field.type)
        values |= changes
        if values.get("scaler_url"):
            values.setdefault("scaler", "webhook")  # An address is for nothing else.
        return cls(**values)


def control_topic_beside(topics: Iterable[str], settings: Settings, group: str) -> str:
    """Return a group's control topic, which must be none of those that its program subscribes to.

    Raises:
        SettingsError: it is one of them.
    """
    topic = settings.control_topic or control_topic(group)
    if topic in topics:
        raise SettingsError(
            f"{PREFIX}CONTROL_TOPIC={topic} cannot be used: the consumer subscribes to that topic, and the agent's "
            "records would stand between the program's. Allowed is a topic for them alone; where the variable is not "
            "set it is __loadtrim.<group>"
        )
    return topic


def _read(variable: str, name: str, text: str, wanted: Any) -> Any:
    if wanted is bool:
        text = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text.lower())
    try:
        return msgspec.convert(text, wanted, strict=False)
    except msgspec.ValidationError as error:
        if allowed := what_is_allowed(wanted):
            raise SettingsError(f"{variable}={text} cannot be used: allowed is {allowed}") from None
        raise SettingsError(f"{variable}={text!r} cannot be used: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _bad(name: str, value: object, allowed: str) -> SettingsError:
    return SettingsError(f"{PREFIX}{name.upper()}={value} cannot be used: allowed is {allowed}")


def _warn_unknown(variable: str, known: list[str]) -> None:
    # Without the prefix, which any two of them share.
    nearest = difflib.get_close_matches(
        variable.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known], n=1
    )
    hint = f" Did you mean {PREFIX}{nearest[0]}?" if nearest else ""
    log.warning("%s is no setting of loadtrim and is ignored.%s", variable, hint)
