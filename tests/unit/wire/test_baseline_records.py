"""Records of the baseline topic: read as they were meant, or counted and left out; curves over absolute time."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.wire import baseline_records
from loadtrim_agent.wire.baseline_records import WEEK_SECONDS, Baselines, TopicCurve, decode_baseline
from loadtrim_agent.wire.envelope import UnreadableRecord
from unit.planning.baseline_feed import MONDAY, data, key, record, utc_slots, value

HOUR = 3600


def test_a_record_as_the_pipeline_writes_it() -> None:
    read = decode_baseline(data(value(growth=0.02, quantiles=[0.98, 1.2, 1.6], time_zone="Europe/Berlin")))
    assert read is not None
    assert (read.group, read.topic, read.rate, read.growth) == ("g", "orders", 100.0, 0.02)
    assert (read.quantiles, read.time_zone, read.error) == ((0.98, 1.2, 1.6), "Europe/Berlin", 0.1)
    assert (read.since, read.until, read.at) == (MONDAY - 6 * WEEK_SECONDS, MONDAY, MONDAY)
    assert len(read.shape) == 672


@pytest.mark.parametrize(
    "later",
    [{"v": 2, "trend_of_the_moon": [1]}, {"quantiles": [0.9, 1.0, 1.1, 1.4]}, {"error": None, "from": None}],
)
def test_what_later_and_earlier_versions_have_more_or_less_of(later: dict[str, Any]) -> None:
    assert decode_baseline(data(value(**later))) is not None


@pytest.mark.parametrize(
    "other", [{"partition": 3}, {"topic": None}, {"kind": "seasons"}, {"topic": None, "speeds": {"m5": 1.1}}]
)
def test_partitions_groups_and_unknown_kinds_are_not_needed(other: dict[str, Any]) -> None:
    assert decode_baseline(data(value(**other))) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": -1.0},
        {"rate": "many"},
        {"rate": None},
        {"growth": -1.0},
        {"growth": 1e9},
        {"bucket_seconds": 7},
        {"bucket_seconds": 30},
        {"bucket_seconds": 1800},
        {"shape": None},
        {"shape": [1000] * 671},
        {"shape": [-1] * 672},
        {"quantiles": [1.0, 1.2]},
        {"quantiles": [1.0, 1.2, 1.1]},
        {"quantiles": [0.0, 1.2, 1.3]},
        {"error": -0.1},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecord):
        decode_baseline(data(value() | wrong))


@pytest.mark.parametrize("junk", [b"{", b"null", b"[]", b"\xff\xfe", b'{"topic":"t"}'])
def test_junk_is_refused(junk: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_baseline(junk)


def test_a_fold_of_the_topic_knows_its_own_group_only() -> None:
    known = Baselines("g", utc_slots)
    assert known.apply(key(), data(value()))
    assert not known.apply(key(), data(value())), "the same again is nothing new"
    for other in (
        key(group="h"),
        key(partition=0),
        b"",
        None,
        b"{",
        b'["g"]',
        b'["g","orders",null,1]',
    ):
        assert not known.apply(other, b"never looked at")
    assert set(known.curves(MONDAY)) == {"orders"}
    assert known.apply(key("payments"), data(value(topic="payments")))
    assert known.apply(key(), None), "withdrawn"
    assert not known.apply(key(), b"")
    assert set(known.curves(MONDAY)) == {"payments"}
    known.clear()
    assert len(known) == 0


def group_value(**changes: Any) -> bytes:
    told = {"kind": "baseline", "v": 1, "at": MONDAY, "group": "g", "startup_quantiles": [19.0, 22.5, 40.0]}
    return data(told | changes)


def test_of_the_group_as_a_whole_the_start_up_time_is_kept() -> None:
    known = Baselines("g", utc_slots)
    assert known.startup_seconds is None
    assert known.apply(key(topic=None), group_value(speeds={"m5": 1.1}))
    assert known.startup_seconds == 22.5, "p90, as what is measured"
    assert not known.apply(key(topic=None), group_value())
    assert not known.apply(key(topic=None, group="h"), group_value(startup_quantiles=[1.0, 1.0, 1.0]))
    assert (known.startup_seconds, len(known)) == (22.5, 0)
    assert known.apply(key(topic=None), group_value(startup_quantiles=None)), "nobody told of a start-up lately"
    assert known.startup_seconds is None
    for other in (None, group_value(kind="seasons")):
        known.apply(key(topic=None), group_value())
        assert known.apply(key(topic=None), other)
        assert known.startup_seconds is None
    known.apply(key(topic=None), group_value())
    known.clear()
    assert known.startup_seconds is None


@pytest.mark.parametrize("wrong", [[1.0, -2.0, 3.0], [1.0, 2.0], ["soon"], "1"])
def test_start_up_times_that_cannot_be_are_refused(wrong: Any) -> None:
    known = Baselines("g", utc_slots)
    known.apply(key(topic=None), group_value())
    with pytest.raises(UnreadableRecord):
        known.apply(key(topic=None), group_value(startup_quantiles=wrong))
    assert known.startup_seconds is None


@pytest.mark.parametrize("broken", [b"{", data(value(topic="payments")), data(value(rate=-1.0))])
def test_what_replaced_a_record_and_cannot_be_read_leaves_nothing(broken: bytes) -> None:
    known = Baselines("g", utc_slots)
    known.apply(key(), data(value()))
    with pytest.raises(UnreadableRecord):
        known.apply(key(), broken)
    assert len(known) == 0


def test_no_more_topics_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_records, "TOPICS_MAX", 2)
    known = Baselines("g", utc_slots)
    for topic in ("a", "b", "c"):
        known.apply(key(topic), data(value(topic=topic)))
    assert (sorted(known.curves(MONDAY)), known.left_out) == (["a", "b"], 1)
    assert known.apply(key("a"), data(value(topic="a", rate=2.0))), "one that is there may change"


def test_the_curve_is_the_published_formula() -> None:
    """Twice the load from 01:00 to 02:00; 10 % growth a week; half a week later."""
    at = MONDAY - WEEK_SECONDS // 2
    one = record(lambda second: 2.0 if HOUR <= second < 2 * HOUR else 1.0, growth=0.1, at=at, rate=50.0)
    (curve,) = Baselines.of([one], utc_slots).curves(MONDAY + 100.0).values()
    assert (curve.begins_at, curve.bucket_seconds) == (MONDAY - 900, 900.0)
    assert curve.rates[1] == pytest.approx(50.0 * 1.1**0.5)
    assert curve.rates[5] == pytest.approx(100.0 * 1.1 ** (0.5 + HOUR / WEEK_SECONDS))
    assert len(curve.rates) == 26, "six hours, the bucket that has begun and the one before"
    assert (curve.step(MONDAY), curve.step(MONDAY + HOUR)) == pytest.approx((1.0, 2.0), rel=1e-3)


def test_growth_does_not_run_away() -> None:
    one = record(growth=9.0, at=0.0, rate=1.0)
    (curve,) = Baselines.of([one], utc_slots).curves(MONDAY).values()
    assert curve.rates[0] == pytest.approx(10.0**4)


def test_in_a_zone_that_nobody_knows_there_are_no_rates() -> None:
    records = [record(time_zone="Moon/Sea"), record(topic="payments")]
    known = Baselines.of(records, lambda zone, *rest: None if "Moon" in zone else utc_slots(zone, *rest))
    curves = known.curves(MONDAY)
    assert (curves["orders"].rates, curves["orders"].time_zone) == ((), "Moon/Sea")
    assert curves["orders"].most(MONDAY, MONDAY) is None
    assert curves["payments"].rates


def test_curves_are_made_anew_when_something_changes_and_as_time_goes_by() -> None:
    known = Baselines("g", utc_slots)
    known.apply(key(), data(value()))
    first = known.curves(MONDAY)
    assert known.curves(MONDAY + 2 * HOUR) is first
    for later in (MONDAY + 3 * HOUR, MONDAY + 40 * HOUR, MONDAY - HOUR):
        (curve,) = known.curves(later).values()
        assert curve.begins_at + curve.bucket_seconds == later
    known.apply(key(), data(value(rate=7.0)))
    assert known.curves(MONDAY - HOUR)["orders"].rates[0] == 7.0


def test_the_most_of_the_buckets_in_between() -> None:
    curve = TopicCurve(
        begins_at=100.0, bucket_seconds=10.0, rates=(1.0, 5.0, 2.0), quantiles=(1.0, 1.0, 1.0), learnt_until=0.0
    )
    assert curve.most(100.0, 100.0) == 1.0
    assert curve.most(100.0, 109.9) == 1.0
    assert curve.most(100.0, 110.0) == 5.0
    assert curve.most(120.0, 1e6) == 2.0
    assert curve.most(105.0, 0.0) == 1.0
    assert curve.most(99.0, 120.0) is None
    assert curve.most(130.0, 140.0) is None
