"""The generated weeks are what they say they are."""

from __future__ import annotations

import datetime
import math
import statistics
import zoneinfo
from dataclasses import replace

import pytest

from hash_seeds import same_under_two_hash_seeds
from loadtrim_spark.evaluation.truth import SCENARIOS, Busy, Spell, Truth

END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
HOUR = 3600
PLAIN = Truth(
    seed=1, end=END, weeks=2, night=10.0,
    busy=(Busy(begin_minute=480, end_minute=600, height=90.0, ramp_seconds=120.0),), weekend=0.5,
)  # fmt: skip


def at(truth: Truth, day: int, hour: float) -> float:
    return truth.seconds(truth.begin + int(day * 86_400 + hour * HOUR), 1)[0]


def test_a_plain_week_is_exact() -> None:
    assert at(PLAIN, 0, 3) == at(PLAIN, 0, 12) == 10.0
    assert at(PLAIN, 0, 9) == at(PLAIN, 7, 9) == 100.0
    assert at(PLAIN, 5, 9) == at(PLAIN, 6, 9) == 55.0
    rise = PLAIN.seconds(PLAIN.begin + 8 * HOUR - 1, 122)
    assert (rise[0], rise[60], rise[121]) == pytest.approx((10.0, 10 + 90 * 59.5 / 120, 100.0))
    minutes = PLAIN.minutes()
    assert len(minutes) == 2 * 7 * 1440
    assert minutes[8 * 60] == pytest.approx(statistics.fmean(rise[1:61]))
    assert minutes[9 * 60 + 30] == 100.0


def test_what_befalls_it() -> None:
    truth = replace(
        PLAIN,
        growth=0.1,
        holidays=frozenset({1}),
        outages=(Spell(begin_hour=57, end_hour=58),),
        events=(Spell(begin_hour=81, end_hour=82, factor=3.0),),
        blind=(Spell(begin_hour=105, end_hour=106),),
    )
    assert at(truth, 7, 9) == pytest.approx(1.1 * at(truth, 0, 9))
    assert at(truth, 1, 9) == pytest.approx(55.0 * 1.1 ** (33 / 168))
    assert at(truth, 2, 9) == 0.0
    assert at(truth, 3, 9) == pytest.approx(300.0 * 1.1 ** (81 / 168))
    assert [truth.watched(minute) for minute in (105 * 60 - 1, 105 * 60, 106 * 60 - 1, 106 * 60)] == [
        True, False, False, True
    ]  # fmt: skip


def test_noise_is_as_strong_and_as_long_as_it_says() -> None:
    truth = replace(PLAIN, busy=(), noise=0.1, noise_minutes=10.0)
    logs = [math.log(rate / 10.0) for rate in truth.minutes()]
    spread = statistics.pstdev(logs)
    assert spread == pytest.approx(0.1, rel=0.1)
    assert statistics.correlation(logs[:-10], logs[10:]) == pytest.approx(math.exp(-1), abs=0.1)
    counts = replace(PLAIN, busy=(), night=0.05).counts()
    assert statistics.fmean(counts) == pytest.approx(3.0, rel=0.05)
    assert statistics.pvariance(counts) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenarios_end_on_a_local_monday(name: str) -> None:
    truth = SCENARIOS[name]
    for moment in (truth.begin, truth.end):
        local = datetime.datetime.fromtimestamp(moment, zoneinfo.ZoneInfo(truth.zone))
        assert (local.weekday(), local.hour, local.minute) == (0, 0, 0)
    assert sum(truth.shares) == pytest.approx(1.0)


def test_busy_times_follow_local_clocks() -> None:
    """Clocks in Berlin go back within these weeks: eight o'clock is another hour of UTC afterwards."""
    truth = replace(PLAIN, end=SCENARIOS["berlin"].end, weeks=8, zone="Europe/Berlin")
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    for date in (datetime.date(2026, 10, 23), datetime.date(2026, 10, 26)):
        nine = datetime.datetime.combine(date, datetime.time(9), berlin)
        assert truth.seconds(int(nine.timestamp()), 1)[0] == 100.0
        assert truth.seconds(int(nine.timestamp()) - 2 * HOUR, 1)[0] == 10.0


def test_what_is_played_is_what_was_told() -> None:
    """The simulator's seconds and the history's minutes are one load, whoever makes them."""
    truth = SCENARIOS["steep"]
    begin = truth.begin + 8 * HOUR
    load = truth.load(begin, 600)
    told = truth.minutes()[8 * 60 : 8 * 60 + 10]
    for minute, rate in enumerate(told):
        assert statistics.fmean(load.per_second[minute * 60 : minute * 60 + 60]) == pytest.approx(rate, rel=0.01)
    assert load.cost_seconds == truth.cost_seconds


def test_the_same_weeks_everywhere() -> None:
    same_under_two_hash_seeds(
        "from loadtrim_spark.evaluation.truth import SCENARIOS; print(SCENARIOS['steep'].counts()[:2000])"
    )
