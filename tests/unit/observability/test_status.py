"""What /status shows."""

from __future__ import annotations

import msgspec

from loadtrim_agent.common.settings import HIDDEN
from loadtrim_agent.observability.status import OwnedPartition, ScalerStatus, Status, shown_settings
from loadtrim_agent.wire.telemetry_records import DecisionRecord


def test_secrets_are_hidden_and_their_absence_is_shown() -> None:
    shown = shown_settings(
        {
            "LOADTRIM_SLA_SECONDS": 0.5,
            "LOADTRIM_SCALER_TOKEN": "hush",
            "sasl_plain_password": "hush",
            "SSL_KEY_SECRET": "",
            "LOADTRIM_SCALER_URL": None,
        }
    )
    assert list(shown.items()) == [
        ("LOADTRIM_SCALER_TOKEN", HIDDEN),
        ("LOADTRIM_SCALER_URL", ""),
        ("LOADTRIM_SLA_SECONDS", "0.5"),
        ("SSL_KEY_SECRET", ""),
        ("sasl_plain_password", HIDDEN),
    ]


def test_an_address_is_shown_without_its_query() -> None:
    """``/status`` needs no password, and a query may be one."""
    shown = shown_settings({"scaler_url": "https://hooks.example/scale?key=hush"})
    assert shown == {"scaler_url": "https://hooks.example/scale?(hidden)"}


def test_a_status_is_json_and_back() -> None:
    decision = DecisionRecord(group="g", member="m", at=1.0, generation=1, sequence=2, outcome="up", reason="r")
    status = Status(
        group="g",
        client_id="c",
        at=1.0,
        leads=True,
        partitions=(OwnedPartition(topic="t", partition=0, lag_records=3),),
        scaler=ScalerStatus(scaler="webhook", replicas=3, delivered=True, answer="accepted"),
        last_decision=decision,
    )
    text = msgspec.json.encode(status)
    assert msgspec.json.decode(text, type=Status) == status
    page = msgspec.json.decode(text)
    assert page["state"] == "starting"
    assert page["partitions"][0]["lag_records"] == 3
    assert page["last_decision"]["kind"] == "decision"
