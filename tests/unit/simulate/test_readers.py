"""Loads from files: every format, and everything that is wrong with files."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from loadtrim.simulate.loads import LoadFileError
from loadtrim.simulate.readers import Reading, read_load
from loadtrim_agent.core.model import Partition
from loadtrim_agent.core.records import PartitionReport, ReportRecord, encode


def file(tmp_path: Path, text: str | bytes, name: str = "load.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_times_and_rates_without_a_header(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "0,10\n1,20\n2,30\n"), Reading(partitions=2))
    assert made.per_second == (10, 20, 30)
    assert made.partitions == (Partition("load", 0), Partition("load", 1))
    assert made.notes == ()


def test_times_partitions_and_records(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,partition,records\n0,0,10\n0,1,30\n1,1,5\n"))
    assert made.per_second == (40, 5)
    assert made.row(0) == (0.25, 0.75)
    assert made.row(1) == (0.0, 1.0)
    assert made.keys == "fixed"


def test_topics_are_kept_apart(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "topic;partition;time;count\na;0;0;1\nb;0;0;1\n"))
    assert made.partitions == (Partition("a", 0), Partition("b", 0))


def test_records_of_a_minute_are_spread_over_it_and_rates_are_kept(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "period,count\n2024-05-01 00:00:00,60\n2024-05-01 00:01:00,120\n"))
    assert made.seconds == 120
    assert (made.per_second[0], made.per_second[60]) == (1.0, 2.0)
    fast = read_load(
        file(tmp_path, "period,count\n2024-05-01 00:00:00,60\n2024-05-01 00:01:00,120\n"), Reading(speed_up=60)
    )
    assert fast.per_second == pytest.approx((1.0, 2.0))


def test_records_with_their_own_time_stamps_fall_into_seconds(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000_000 + at},1\n" for at in (0, 100, 200, 1300, 1400))
    made = read_load(file(tmp_path, "timestamp,records\n" + rows))
    assert made.per_second == (3, 2)


def test_bytes_need_the_size_of_a_record(tmp_path: Path) -> None:
    path = file(tmp_path, "time,bytes\n0,1000\n1,500\n")
    assert read_load(path, Reading(record_bytes=100)).per_second == (10, 5)
    with pytest.raises(LoadFileError, match="--record-bytes"):
        read_load(path)
    with pytest.raises(LoadFileError, match="above 0"):
        read_load(path, Reading(record_bytes=0))


def test_gaps_and_disorder_are_read_and_said(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,records\n4,7\n0,1\n1,2\n2,3\n"))
    assert made.per_second == (1, 2, 3, 0, 7)
    assert any("order" in note for note in made.notes)
    assert any("1 of 5 steps of 1 s are missing" in note for note in made.notes)


def test_a_byte_order_mark_windows_lines_and_gzip(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbftime,records\r\n0,1\r\n1,2\r\n\r\n"
    assert read_load(file(tmp_path, text)).per_second == (1, 2)
    assert read_load(file(tmp_path, gzip.compress(text), "load.csv.gz")).per_second == (1, 2)
    assert read_load(file(tmp_path, "time,records\n0,1\n1,2\n".encode("utf-16"))).per_second == (1, 2)


def test_koper_has_one_rate_a_minute(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "10,20,30", "koper.txt"))
    assert made.seconds == 180
    assert made.per_second[60] == 20


def test_landau_has_percent_of_a_capacity(tmp_path: Path) -> None:
    rows = [{"a": {"0": 50, "1": 25}}, {"a": {"1": 100, "0": 0}}]
    made = read_load(file(tmp_path, json.dumps(rows), "stream.json"), Reading(capacity=200, interval=2))
    assert made.per_second == (150, 150, 200, 200)
    assert made.rates(0) == {Partition("a", 0): 100, Partition("a", 1): 50}
    assert made.arrivals == "even"


def report(at: float, arrived: int) -> ReportRecord:
    part = PartitionReport(topic="t", partition=3, arrived=arrived, done=arrived, cost_mean=0.004)
    return ReportRecord(group="g", member="m", at=at, sequence=round(at), generation=1, partitions=(part,))


def test_telemetry_tells_what_arrived_and_what_it_cost(tmp_path: Path) -> None:
    records = [encode(report(101.0 + second, 10 + second)).decode() for second in range(3)]
    bare = read_load(file(tmp_path, "\n".join([*records, "not a record"]), "control.jsonl"))
    assert bare.per_second == pytest.approx((10, 11, 12))
    assert bare.partitions == (Partition("t", 3),)
    assert bare.cost_seconds == pytest.approx(0.004)
    assert "1 lines" in bare.notes[0]
    placed = [json.dumps([1, offset, 0.0, record]) for offset, record in enumerate(records)]
    assert read_load(file(tmp_path, "\n".join(placed), "control.jsonl")).per_second == bare.per_second


def test_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "load.parquet"
    parquet.write_table(arrow.table({"time": [0, 1], "partition": [0, 1], "records": [5.0, 6.0]}), path)
    made = read_load(path)
    assert made.per_second == (5, 6)
    path.write_bytes(b"no parquet")
    with pytest.raises(LoadFileError, match="cannot be read as Parquet"):
        read_load(path)


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(LoadFileError, match=r"loadtrim\[parquet\]"):
        read_load(file(tmp_path, "", "load.parquet"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("time,records\n", "no row"),
        ("when,records\n0,1\n", "a column 'time'"),
        ("time,amount\n0,1\n", "'records' or 'bytes'"),
        ("0,1,2\n1,2,3\n", "no header and 3 columns"),
        ("time,records\n0,1\n1\n", "line 3: 1 columns"),
        ("time,records\n0,-1\n", "line 2: records is '-1'"),
        ("time,records\n0,nan\n", "line 2: records is 'nan'"),
        ("time,records\n0,inf\n", "line 2: records is 'inf'"),
        ("time,records\n0,\n", "line 2: records is ''"),
        ("time,records\n0,many\n", "line 2: records is 'many'"),
        ("time,records\nsoon,1\n", "the time 'soon'"),
        ("time,records\nnan,1\n", "the time 'nan'"),
        ("time,partition,records\n0,-1,1\n", "partition '-1'"),
        ("time,partition,records\n0,x,1\n", "partition 'x'"),
        ("time,records\n0,1\n1000000000,1\n", "31 days"),
        ('[{"a": {"0": -5}}]', "negative"),
        ('[{"a": {"x": 5}}]', "partition 'x'"),
        ('[{"a": 5}]', "percent"),
        ('[{"a": {}}]', "no partition"),
        ('{"kind": "hello"}', "no member's report"),
    ],
)
def test_what_is_no_load_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LoadFileError, match=said):
        read_load(file(tmp_path, text))


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(LoadFileError, match="There is no file"):
        read_load(tmp_path / "none.csv")
    with pytest.raises(LoadFileError, match="as text"):
        read_load(file(tmp_path, b"\xff\x00\x80abc"))
    with pytest.raises(LoadFileError, match="as text"):
        read_load(tmp_path)
    with pytest.raises(LoadFileError, match="--speed-up"):
        read_load(file(tmp_path, "0,1\n"), Reading(speed_up=0.0))
