"""The payments service: its settings, its time per record, its journal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from payments.service import Journal, Pace, ServiceOptions


class TestOptions:
    def test_defaults(self) -> None:
        options = ServiceOptions.from_env({})
        assert (options.topics, options.busy_seconds, options.burn, options.client) == (
            ("payments",),
            0.0059,
            False,
            "loadtrim",
        )
        assert options.journal is None
        assert options.instance

    def test_everything_set(self, tmp_path: Path) -> None:
        options = ServiceOptions.from_env(
            {
                "PAYMENTS_BOOTSTRAP": "kafka:1",
                "PAYMENTS_TOPIC": "a,b",
                "PAYMENTS_GROUP": "g",
                "PAYMENTS_BUSY_SECONDS": "0.25",
                "PAYMENTS_BURN": "1",
                "PAYMENTS_JOURNAL": str(tmp_path),
                "PAYMENTS_CLIENT": "aiokafka",
                "PAYMENTS_OPTIONS": '{"session_timeout_ms": 6000}',
                "LOADTRIM_INSTANCE": "pod-3",
            }
        )
        assert options == ServiceOptions(
            bootstrap="kafka:1",
            topics=("a", "b"),
            group="g",
            busy_seconds=0.25,
            burn=True,
            journal=tmp_path,
            client="aiokafka",
            extra={"session_timeout_ms": 6000},
            instance="pod-3",
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("PAYMENTS_BUSY_SECONDS", "fast"),
            ("PAYMENTS_BUSY_SECONDS", "-1"),
            ("PAYMENTS_BUSY_SECONDS", "nan"),
            ("PAYMENTS_CLIENT", "librdkafka"),
            ("PAYMENTS_OPTIONS", "[1]"),
        ],
    )
    def test_what_cannot_be_used_names_variable_and_value(self, name: str, value: str) -> None:
        with pytest.raises(ValueError, match=name) as caught:
            ServiceOptions.from_env({name: value})
        assert repr(value) in str(caught.value)
        assert "allowed" in str(caught.value)


class TestPace:
    @pytest.mark.parametrize("burn", [False, True])
    async def test_takes_at_least_the_time_it_says(self, burn: bool) -> None:
        begun = time.perf_counter()
        await Pace(0.0059, burn=burn).take()
        assert time.perf_counter() - begun >= 0.0059

    async def test_counts_from_when_it_began(self) -> None:
        begun = time.perf_counter()
        await Pace(3600.0).take(begun - 3600.0)
        assert time.perf_counter() - begun < 60.0, "what was over is not waited for again"

    async def test_what_one_took_too_long_is_taken_off_the_next(self) -> None:
        pace = Pace(20.0)
        begun = time.perf_counter()
        await pace.take(begun - 30.0)
        await pace.take(time.perf_counter() - 10.0)
        assert time.perf_counter() - begun < 5.0, "10 s were left, and 10 s too many were taken before"

    async def test_at_most_a_payments_time_is_made_up_for(self) -> None:
        pace = Pace(0.02)
        begun = time.perf_counter()
        await pace.take(begun - 60.0)
        for _ in range(3):
            await pace.take(time.perf_counter())
        assert time.perf_counter() - begun >= 0.04


def test_journal_lines_survive_without_closing(tmp_path: Path) -> None:
    """Nothing is kept back in the process: what was written is in the file although nobody flushed."""
    journal = Journal(tmp_path, "payments-1")
    journal.write("H", "payments", 0, 1, "x", 5)
    assert journal.path.read_text().splitlines()[-1] == "H,payments,0,1,x,5"
