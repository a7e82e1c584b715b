"""What ``LOADTRIM_POLICY`` and ``LOADTRIM_MONITOR`` may say in a real group."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import zoneinfo
from typing import Any, get_args

import pytest

from loadtrim.cli.manual_override import DECISION_SECONDS_MAX
from loadtrim.observer.control_topic import RECENT_SECONDS
from loadtrim.settings import Settings, SettingsError
from loadtrim_agent.common.settings import INTERVAL_SECONDS_MAX, AgentSettings, ScalerName, without_secrets
from loadtrim_agent.metering.readings import MeterConfig
from loadtrim_agent.planning.registry import POLICIES
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.protocol.group_config import GroupConfig


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"clairvoyant"}))
def test_every_policy_that_a_group_can_follow_may_be_chosen(name: str) -> None:
    assert Settings.from_env({"LOADTRIM_POLICY": name}).policy == name


def test_one_setting_is_changed_and_the_others_are_the_environments() -> None:
    """A second consumer of a process that does not scale had the defaults of all other settings, bounds too."""
    environ = {"LOADTRIM_MAX_REPLICAS": "7", "LOADTRIM_SCALER_URL": "http://127.0.0.1:1/", "LOADTRIM_SLA_SECONDS": "3"}
    changed = Settings.from_env(environ, scaler="none", sla_seconds=0.5)
    assert (changed.max_replicas, changed.scaler, changed.sla_seconds) == (7, "none", 0.5)
    assert Settings.from_env(environ, scaler_url="").scaler == "none"
    with pytest.raises(SettingsError, match="LOADTRIM_SLA_SECONDS=-1"):
        Settings.from_env(environ, sla_seconds=-1)
    with pytest.raises(TypeError, match="replica_max"):
        Settings.from_env(environ, replica_max=7)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("clairvoyant", "what will arrive.*set LOADTRIM_POLICY to another"),
        (
            "keda:lag_threshold_records=-1",
            "lag_threshold_records of the policy 'keda' is -1.*allowed is a number above 0",
        ),
        ("li_kuu", "there is no policy 'li_kuu'.*nearest is 'li_ku'"),
    ],
)
def test_what_cannot_be_followed_stops_the_start_with_one_line(value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=f"LOADTRIM_POLICY={value} cannot be used: .*{message}") as caught:
        Settings.from_env({"LOADTRIM_POLICY": value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "good"), [("0.4", False), ("0.5", True), ("0.999", True), ("1", False)])
def test_a_share_that_nothing_can_be_sized_for_stops_the_start(value: str, good: bool) -> None:
    """It was taken, and refused by the planner later, in other words."""
    with contextlib.nullcontext() if good else pytest.raises(SettingsError, match="LOADTRIM_SLA_SHARE"):
        Settings.from_env({"LOADTRIM_SLA_SHARE": value})


@pytest.mark.parametrize("name", ["reports", "landau24", "iccbdc22"])
def test_a_monitor_is_chosen_by_name(name: str) -> None:
    assert Settings.from_env({"LOADTRIM_MONITOR": name}).monitor == name


def test_an_unknown_monitor_stops_the_start_with_those_there_are_and_the_nearest() -> None:
    said = "LOADTRIM_MONITOR=landau cannot be used: .*iccbdc22, landau24, reports .the nearest is 'landau24'"
    with pytest.raises(SettingsError, match=said):
        Settings.from_env({"LOADTRIM_MONITOR": "landau"})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("sla_seconds", 0, "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
        ("catchup_seconds", math.nan, "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
        ("decision_seconds", math.inf, "a number of seconds from 0.1 to 30, e.g. 0.5"),
        ("report_seconds", 1000, "a number of seconds from 0.1 to 30, e.g. 0.5"),
        ("drain_seconds", 0, "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
        ("drain_seconds", math.nan, "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
        ("sla_share", 1.0, "a share of at least 0.5 and below 1, e.g. 0.999"),
        ("min_replicas", 0, "1 or more: with no member there is no leader to scale up again"),
        ("max_replicas", 0, "1 or more, and no less than LOADTRIM_MIN_REPLICAS"),
        ("mode", "ghost", "active, shadow"),
        ("scaler", "nomad", ", ".join(get_args(ScalerName))),
        ("scaler", "swarm", ", ".join(get_args(ScalerName))),
        ("scaler", "webhook", "webhook only together with LOADTRIM_SCALER_URL"),
        ("time_zone", "Moon/Base", "an IANA name such as UTC or Europe/Berlin"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_what_is_allowed(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**{name: value})
    assert str(caught.value) == f"LOADTRIM_{name.upper()}={value} cannot be used: allowed is {allowed}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"http": "off"}, "LOADTRIM_HTTP=off cannot be used: allowed is with LOADTRIM_SCALER=metric a fixed port"),
        ({}, "LOADTRIM_HTTP=127.0.0.1:0 cannot be used: allowed is with LOADTRIM_SCALER=metric a fixed port"),
        ({"http": "0.0.0.0:9095", "scaler_url": "http://h/s"}, "metric only without LOADTRIM_SCALER_URL"),
        ({"http": "0.0.0.0:9095", "scaler_token": "hush"}, "metric only without LOADTRIM_SCALER_URL"),
        ({"http": "0.0.0.0:9095", "kubernetes_foreign": "respect"}, "respect only with LOADTRIM_SCALER=kubernetes"),
        ({"http": "0.0.0.0:9095", "kubernetes_lease": "payments"}, "a Lease only with LOADTRIM_SCALER=kubernetes"),
    ],
)
def test_replicas_that_nobody_could_read_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)) as caught:
        Settings(scaler="metric", **given)
    assert "hush" not in str(caught.value)
    assert Settings(scaler="metric", http="0.0.0.0:9095").scaler == "metric"


WRONG = {
    "enabled": ("maybe", "true or false"),
    "mode": ("dry", "active, shadow"),
    "sla_seconds": ("500ms", "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
    "sla_share": ("99.9", "a share of at least 0.5 and below 1, e.g. 0.999"),
    "catchup_seconds": ("5m", "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
    "min_replicas": ("0", "1 or more"),
    "max_replicas": ("many", "1 or more"),
    "policy": ("objectiv", "the nearest is 'objective'"),
    "packer": ("trimm", "the nearest is 'trim'"),
    "monitor": ("landau", "the nearest is 'landau24'"),
    "decision_seconds": ("fast", "a number of seconds from 0.1 to 30, e.g. 0.5"),
    "report_seconds": ("0", "a number of seconds from 0.1 to 30, e.g. 0.5"),
    "slicing": ("on", "off, auto"),
    "drain_seconds": ("20s", "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
    "exit_seconds": ("-1", "a number of seconds above 0 and up to 1e9, e.g. 0.5"),
    "concurrency": ("20x", "busy seconds per second that a member can give, above 0, e.g. 4"),
    "scaler": ("nomad", "none, webhook, kubernetes, metric"),
    "scaler_url": ("foo", "http://host"),
    "kubernetes_target": ("pod/payments", "deployment/NAME"),
    "kubernetes_foreign": ("ignore", "respect, correct"),
    "kubernetes_lease": ("Payments/1", "as in payments-replicas"),
    "http": ("9095", "host:port"),
    "time_zone": ("Berlin", "an IANA name such as UTC or Europe/Berlin"),
    "requested_at": ("now", "a time in seconds since the epoch, e.g. 1760000000.5"),
}
"""A value that each variable refuses, and a part of what is said to be allowed, with its unit."""
ANY_TEXT = {
    "instance", "instance_type", "scaler_token", "kubernetes_namespace", "kubernetes_pod_uid",
    "kubernetes_pod_selector", "control_topic", "baseline_topic",
}  # fmt: skip


def test_every_variable_is_in_the_table_of_wrong_values() -> None:
    assert WRONG.keys() | ANY_TEXT == set(Settings.__struct_fields__)


@pytest.mark.parametrize(("name", "value", "allowed"), [(name, *row) for name, row in WRONG.items()])
def test_a_variable_that_cannot_be_used_is_told_in_one_line_with_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({f"LOADTRIM_{name.upper()}": value})
    told = str(caught.value)
    assert told.startswith(f"LOADTRIM_{name.upper()}")
    assert allowed in told
    assert "\n" not in told
    assert "expected" not in told, "no words of the library's"


@pytest.mark.parametrize(
    ("url", "token"),
    [("http://user:hunter2@scaler", ""), ("ftp://scaler/?key=hunter2", ""), ("http://scaler", "hunter2 with spaces")],
)
def test_a_webhook_that_cannot_be_used_stops_the_start_and_tells_no_secret(url: str, token: str) -> None:
    """It was a ``ValueError`` that named no variable."""
    with pytest.raises(SettingsError, match="LOADTRIM_SCALER_URL or LOADTRIM_SCALER_TOKEN cannot be used") as caught:
        Settings.from_env({"LOADTRIM_SCALER_URL": url, "LOADTRIM_SCALER_TOKEN": token})
    assert "hunter2" not in str(caught.value)


def test_an_address_alone_means_the_webhook_and_one_that_is_not_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert Settings.from_env({"LOADTRIM_SCALER_URL": "http://scaler"}).scaler == "webhook"
    assert caplog.messages == []
    assert Settings(scaler_url="http://scaler").scaler == "none"
    assert Settings.from_env({"LOADTRIM_SCALER_URL": "http://scaler", "LOADTRIM_SCALER": "none"}).scaler == "none"
    assert ["nothing is scaled" in message for message in caplog.messages] == [True, True]


def test_the_rooms_take_their_defaults_from_the_settings() -> None:
    """One default per setting: a planner and a group that are told nothing else work by it."""
    assert PlanConfig.of(Settings(), "g", can_scale=True) == PlanConfig(group="g")
    assert GroupConfig(group="g", topics=()).drain_seconds == Settings().drain_seconds


@pytest.mark.parametrize("config", [PlanConfig, MeterConfig])
def test_a_room_defines_no_setting_anew(config: type[AgentSettings]) -> None:
    """Planning and metering had names, defaults and ranges of their own for what the user sets."""
    names = AgentSettings.__struct_fields__
    assert config.__struct_fields__[: len(names)] == names
    assert set(names).isdisjoint(config.__annotations__)
    for wrong in ({"sla_seconds": 0.0}, {"sla_share": 1.0}, {"min_replicas": 3, "max_replicas": 2}, {"mode": "dry"}):
        with pytest.raises(ValueError, match="allowed is"):
            config(**{"group": "g", **wrong})


@pytest.mark.parametrize("text", ["nomad", "swarm"])
def test_no_scaler_is_offered_that_there_is_not(text: str) -> None:
    """The sentence once offered a scaler that was refused in turn."""
    offered = ", ".join(get_args(ScalerName))
    with pytest.raises(SettingsError, match=f"LOADTRIM_SCALER=.* cannot be used: allowed is {offered}$"):
        Settings.from_env({"LOADTRIM_SCALER": text})
    assert text not in get_args(ScalerName)


def test_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one no consumer started, for a feature that is optional."""

    def unknown(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", unknown)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert Settings().time_zone == "UTC"
    with pytest.raises(SettingsError, match="install tzdata"):
        Settings(time_zone="Europe/Berlin")


def test_a_time_zone_that_is_a_directory_is_none() -> None:
    with pytest.raises(SettingsError, match="LOADTRIM_TIME_ZONE=America cannot be used"):
        Settings(time_zone="America")


def test_an_unknown_time_zone_is_told_without_the_errors_behind_it() -> None:
    """Three tracebacks stood before the one line that tells."""
    with pytest.raises(SettingsError, match="LOADTRIM_TIME_ZONE=Mars cannot be used") as told:
        Settings(time_zone="Mars")
    assert told.value.__suppress_context__
    assert told.value.__cause__ is None


def test_secrets_are_not_in_what_a_program_may_log() -> None:
    settings = Settings(scaler="webhook", scaler_token="hush", scaler_url="https://hooks.example/scale?key=hush")
    assert "hush" not in repr(settings)
    assert "https://hooks.example/scale?(hidden)" in repr(settings)
    assert "hush" not in f"{AgentSettings(scaler_token='hush')}"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://h/p", "https://h/p"),
        ("https://h/p?key=hush", "https://h/p?(hidden)"),
        ("https://h/p#hush", "https://h/p#(hidden)"),
        ("https://user:hush@h:80/p", "https://(hidden)@h:80/p"),
        ("//user:hush@h", "//(hidden)@h"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_addresses_without_their_secrets(url: str, told: str) -> None:
    assert without_secrets(url) == told


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (
            {"MIN_REPLICAS": "4", "MAX_REPLICAS": "3"},
            "LOADTRIM_MAX_REPLICAS=3 cannot be used: .*no less than LOADTRIM_MIN_REPLICAS",
        ),
        ({"MIN_REPLICAS": "0"}, "LOADTRIM_MIN_REPLICAS=0 cannot be used: allowed is 1 or more"),
        ({"DRAIN_SECONDS": "-1"}, "LOADTRIM_DRAIN_SECONDS=-1 cannot be used: allowed is a number of seconds above 0"),
        ({"SLA_SECONDS": "500ms"}, "LOADTRIM_SLA_SECONDS=500ms cannot be used: allowed is a number of .*, e.g. 0.5"),
        ({"SLA_SHARE": "99.9"}, "LOADTRIM_SLA_SHARE=99.9 cannot be used: allowed is a share .*, e.g. 0.999"),
        ({"ENABLED": "maybe"}, "LOADTRIM_ENABLED=maybe cannot be used: allowed is true or false"),
        ({"MAX_REPLICAS": "many"}, "LOADTRIM_MAX_REPLICAS=many cannot be used: allowed is 1 or more"),
        ({"SCALER": "webhook"}, "LOADTRIM_SCALER=webhook cannot be used: .*LOADTRIM_SCALER_URL"),
        (
            {"KUBERNETES_TARGET": "payments"},
            "LOADTRIM_KUBERNETES_TARGET=payments cannot be used: 'payments' names no workload",
        ),
        (
            {"KUBERNETES_FOREIGN": "ignore"},
            "LOADTRIM_KUBERNETES_FOREIGN=ignore cannot be used: allowed is respect, correct",
        ),
        ({"SCALER": "swarm"}, "LOADTRIM_SCALER=swarm cannot be used: allowed is none, webhook, kubernetes"),
        ({"TIME_ZONE": "Europe/Atlantis"}, "LOADTRIM_TIME_ZONE=Europe/Atlantis cannot be used: .*IANA name"),
    ],
)
def test_a_variable_out_of_its_range_stops_the_start_with_one_line(environment: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        Settings.from_env({f"LOADTRIM_{name}": value for name, value in environment.items()})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"MIN_REPLICAS": "3", "MAX_REPLICAS": "3"}, {"min_replicas": 3, "max_replicas": 3}),
        ({"SCALER": "webhook", "SCALER_URL": "http://h/s"}, {"scaler": "webhook", "scaler_url": "http://h/s"}),
        ({"SCALER_URL": "http://h/s"}, {"scaler": "webhook", "scaler_url": "http://h/s"}),
        ({"SCALER": "none", "SCALER_URL": "http://h/s"}, {"scaler": "none", "scaler_url": "http://h/s"}),
        ({"TIME_ZONE": "Europe/Berlin"}, {"time_zone": "Europe/Berlin"}),
        ({"SLA_SECONDS": "", "MAX_REPLICAS": " ", "MODE": "", "ENABLED": ""}, {}),
        ({"SLA_SECONDS": " 0.5 "}, {"sla_seconds": 0.5}),
    ],
)
def test_variables_that_may_be_set_and_those_that_are_empty(
    environment: dict[str, str], settings: dict[str, Any]
) -> None:
    """An empty value is as good as none: deployments have variables that are not filled in."""
    assert Settings.from_env({f"LOADTRIM_{name}": value for name, value in environment.items()}) == Settings(**settings)


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("yes", True),
        ("On", True),
        ("TRUE", True),
        ("1", True),
        ("no", False),
        ("OFF", False),
        ("false", False),
        ("0", False),
    ],
)
def test_a_switch_is_on_or_off_in_any_of_the_usual_words(text: str, enabled: bool) -> None:
    assert Settings.from_env({"LOADTRIM_ENABLED": text}).enabled is enabled


def test_another_word_for_a_switch_is_refused() -> None:
    with pytest.raises(SettingsError, match="LOADTRIM_ENABLED=maybe cannot be used"):
        Settings.from_env({"LOADTRIM_ENABLED": "maybe"})


def test_a_variable_that_is_none_is_warned_about_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"LOADTRIM_MAX_REPLICA": "3", "LOADTRIM_XYZZY": "1", "LOADTRIM_DATA": "/data", "OTHER": "1"}
    with caplog.at_level(logging.WARNING, "loadtrim"):
        assert Settings.from_env(environment) == Settings()
    assert caplog.messages == [
        "LOADTRIM_MAX_REPLICA is no setting of loadtrim and is ignored. Did you mean LOADTRIM_MAX_REPLICAS?",
        "LOADTRIM_XYZZY is no setting of loadtrim and is ignored.",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", "false"),
        ("instance", 5),
        ("http", None),
        ("policy", None),
        ("scaler_token", 5),
        ("time_zone", None),
        ("instance", "pay-\udcff"),
        ("concurrency", 1e300),
        ("sla_seconds", 1e13),
        ("min_replicas", 10**7),
        ("control_topic", "bad topic!"),
        ("control_topic", "__loadtrim-baselines"),
        ("baseline_topic", ""),
    ],
)
def test_a_value_of_another_type_or_range_is_refused_by_its_name(name: str, value: object) -> None:
    """``enabled="false"``, from a YAML file, was true."""
    with pytest.raises(SettingsError, match=f"LOADTRIM_{name.upper()}=.* cannot be used: "):
        Settings(**{name: value})


@pytest.mark.parametrize(
    "environ",
    [
        {"LOADTRIM_KUBERNETES_POD_SELECTOR": "app=payments"},
        {"LOADTRIM_KUBERNETES_LEASE": "payments"},
        {"LOADTRIM_KUBERNETES_FOREIGN": "respect", "LOADTRIM_SCALER_URL": "http://127.0.0.1:1/"},
    ],
)
def test_a_setting_that_does_nothing_is_told(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    Settings.from_env(environ)
    assert [next(iter(environ)) in record.getMessage() for record in caplog.records] == [True]


def test_what_looks_on_reaches_back_beyond_the_longest_interval() -> None:
    """A beat comes up to 1.1 intervals after the last. `status` saw no report of a group that reported less often."""
    assert min(RECENT_SECONDS, DECISION_SECONDS_MAX) > 1.1 * INTERVAL_SECONDS_MAX
