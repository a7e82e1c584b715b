"""Exports of Prometheus, Grafana and other programs, as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtrim.simulate.loads.load import LoadFileError, WrongLoadError
from loadtrim.simulate.loads.readers import Reading, read_load
from loadtrim_agent.common.partition import Partition

BEGIN = 1_714_564_800
"""2024-05-01 12:00 UTC."""


def file(tmp_path: Path, text: str, name: str = "export.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def answer(tmp_path: Path, *series: tuple[dict[str, str], list[tuple[int, str]]]) -> Path:
    result = [{"metric": metric, "values": [[BEGIN + at, value] for at, value in values]} for metric, values in series]
    told = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return file(tmp_path, json.dumps(told), "range.json")


def test_a_range_of_a_rate_is_read_as_a_rate(tmp_path: Path) -> None:
    made = read_load(answer(tmp_path, ({}, [(0, "10.5"), (15, "20"), (30, "30")])))
    assert made.per_second == (10.5,) * 15 + (20,) * 15 + (30,) * 15
    assert made.arrivals == "poisson"
    assert made.partitions_assumed
    read = made.read_as
    assert read is not None
    assert (read.rows, read.step_seconds, read.quantity, read.why) == (3, 15, "rate", "for it has fractions")
    assert (read.begins_at, read.ends_at) == (BEGIN, BEGIN + 30)


def test_series_of_partitions_are_theirs_and_others_are_added_up(tmp_path: Path) -> None:
    values = [(0, "1.5"), (15, "2.5")]
    partitions = [({"partition": str(at), "topic": "Orders"}, values) for at in range(2)]
    made = read_load(answer(tmp_path, *partitions))
    assert made.partitions == (Partition("Orders", 0), Partition("Orders", 1))
    assert made.per_second == (3.0,) * 15 + (5.0,) * 15
    assert not made.partitions_assumed
    added = read_load(answer(tmp_path, ({"pod": "a"}, values), ({"pod": "b"}, values)))
    assert added.per_second == made.per_second
    assert added.notes == ("2 series were added up",)


def test_a_counter_is_read_by_its_differences_through_gaps_and_restarts(tmp_path: Path) -> None:
    """From 15 to 45 one row is missing; at 60 the counter begins anew."""
    path = answer(tmp_path, ({"__name__": "orders_total"}, [(0, "1000"), (15, "1150"), (45, "1750"), (60, "30")]))
    made = read_load(path)
    assert made.per_second == pytest.approx([10.0] * 15 + [20.0] * 30 + [2.0] * 15)
    assert made.read_as is not None
    assert made.read_as.quantity == "counter"
    assert made.notes == ("the counter began anew 1 time, and was counted from 0 then",)


def test_two_counters_in_one_are_refused(tmp_path: Path) -> None:
    """Their rows took turns, so that each step back was a counter that began anew: 6,600 times as much as came."""
    path = tmp_path / "two.csv"
    rows = [f"{at},{start + slope * at}" for at in range(0, 130, 10) for start, slope in ((5_000, 10), (100, 5))]
    path.write_text("\n".join(["time,messages_total", *rows]))
    with pytest.raises(LoadFileError, match="has 5000 and 100 of one counter at the same time"):
        read_load(path)
    path.write_text("\n".join(["time,messages_total", *(row for row in rows[::2] for _ in range(2))]))
    assert read_load(path).records == pytest.approx(1_200.0), "a row that is there twice is one"


def test_what_a_monitor_did_not_know_is_left_out(tmp_path: Path) -> None:
    made = read_load(answer(tmp_path, ({}, [(0, "1.5"), (15, "1.5"), (30, "NaN"), (45, "2.5"), (60, "2.5")])))
    assert made.notes == (
        "1 row has no value and was left out",
        "1 of 5 steps of 15 s are missing and count as no load",
    )


def prometheus(kind: str, result: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"status": "error", "error": "parse error"}, "says 'parse error'"),
        (prometheus("vector", [{"metric": {}, "value": [BEGIN, "3"]}]), "of the kind 'vector', .*query_range"),
        (prometheus("matrix", []), "no row"),
        (prometheus("matrix", [{"metric": {}}]), "series 1 has no list"),
        (prometheus("matrix", ["x"]), "series 1 has no list"),
        (prometheus("matrix", [{"metric": {}, "values": [[BEGIN, "NaN"]]}]), "no row with a value"),
        (
            prometheus("matrix", [{"metric": {"__name__": n}, "values": [[0, "1"]]} for n in "ab"]),
            r"unlike metrics \(a, b\)",
        ),
        (prometheus("matrix", [{"metric": {"__name__": "x_total"}, "values": [[0, "1"]]}]), "no two times"),
        ({"status": "success", "data": None}, "of the kind None"),
    ],
)
def test_an_answer_without_a_course_of_time_is_refused(tmp_path: Path, document: dict[str, Any], said: str) -> None:
    with pytest.raises(LoadFileError, match=said):
        read_load(file(tmp_path, json.dumps(document), "range.json"))


def test_a_table_of_grafana(tmp_path: Path) -> None:
    units = '"Time","Value"\n"2024-05-01 12:00:00","1.2 K c/s"\n"2024-05-01 12:00:15","300 c/s"\n'
    made = read_load(file(tmp_path, units))
    assert made.per_second == (1200,) * 15 + (300,) * 15
    assert made.read_as is not None
    assert made.read_as.why == "as its unit says"
    wide = (
        'sep=,\n"Time","{partition=""0"", topic=""Orders""}","{partition=""1"", topic=""Orders""}"\n'
        f"{BEGIN * 1000},1.5,2\n{(BEGIN + 15) * 1000},1.5,\n"
    )
    made = read_load(file(tmp_path, wide))
    assert made.partitions == (Partition("Orders", 0), Partition("Orders", 1))
    assert made.per_second == (3.5,) * 15 + (1.5,) * 15
    assert made.notes == ("1 row has no value and was left out",)
    named = read_load(file(tmp_path, f'Time,"sum(rate(x_total[5m]))"\n{BEGIN},10\n{BEGIN + 60},20\n'))
    assert named.per_second[0] == 10


def test_tables_of_json_objects(tmp_path: Path) -> None:
    rows = [{"time": "2024-05-01T12:00:00Z", "records": 60}, {"time": "2024-05-01T12:01:00Z", "records": 120}]
    assert read_load(file(tmp_path, json.dumps(rows), "load.json")).per_second == (1.0,) * 60 + (2.0,) * 60
    lines = "\n".join(json.dumps({"t": at, "partition": at % 2, "count": 4}) for at in range(3))
    assert read_load(file(tmp_path, lines, "load.jsonl")).per_second == (4, 4, 4)
    with pytest.raises(LoadFileError, match="object 2 has the names 'time'"):
        read_load(file(tmp_path, json.dumps([rows[0], {"time": 1}]), "load.json"))


WHOLE = "timestamp,value\n" + "".join(f"{BEGIN + 15 * at},{at + 10}\n" for at in range(4))


def test_whole_numbers_that_may_be_rates_are_asked_about(tmp_path: Path) -> None:
    """They were taken for records per row: fifteen times too few, without a word."""
    path = file(tmp_path, WHOLE)
    with pytest.raises(LoadFileError, match=r"15 s apart.*per second \(11\.5/s .* of 15 s \(0\.8/s\).*--values rate"):
        read_load(path)
    rate, count = (read_load(path, Reading(values=each)) for each in ("rate", "count"))  # type: ignore[arg-type]
    assert rate.per_second[0] == 10.0
    assert count.per_second[0] == pytest.approx(10.0 / 15.0)
    assert rate.read_as is not None
    assert rate.read_as.why == "as --values rate says"


def test_values_a_second_apart_need_no_question(tmp_path: Path) -> None:
    assert read_load(file(tmp_path, "timestamp,value\n0,7\n1,9\n2,8\n")).per_second == (7, 9, 8)


@pytest.mark.parametrize("text", ["1,2,3", '[{"a": {"0": 50}}]'])
def test_what_a_tables_numbers_count_is_not_said_of_other_files(tmp_path: Path, text: str) -> None:
    with pytest.raises(WrongLoadError, match="--values is for tables"):
        read_load(file(tmp_path, text), Reading(values="rate"))  # type: ignore[arg-type]
    with pytest.raises(WrongLoadError, match="--values is 'rates'; it can be rate, count, counter"):
        Reading(values="rates")  # type: ignore[arg-type]
