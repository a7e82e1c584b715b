"""Loads from files: every format, and everything that is wrong with files."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from loadtrim.simulate.loads import LoadFileError, WrongLoadError
from loadtrim.simulate.readers import Reading, read_load
from loadtrim_agent.core.model import Partition
from loadtrim_agent.core.records import PartitionReport, ReportRecord, encode


def file(tmp_path: Path, text: str | bytes, name: str = "load.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def report(at: float, arrived: int) -> ReportRecord:
    part = PartitionReport(topic="t", partition=3, arrived=arrived, done=arrived, cost_mean=0.004)
    return ReportRecord(group="g", member="m", at=at, sequence=round(at), generation=1, partitions=(part,))


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


def test_a_row_at_an_odd_time_counts_until_the_next_one(tmp_path: Path) -> None:
    """Each was pressed into the shortest distance, at a rate up to three times as high, and the rest was silent."""
    made = read_load(file(tmp_path, "time,records\n0,100\n10,100\n30,300\n60,300\n"))
    assert made.seconds == 90
    assert made.per_second == pytest.approx([10.0] * 10 + [5.0] * 20 + [10.0] * 60)
    (note,) = made.notes
    assert note.startswith("3 rows are followed by the next one after 10 to 30 s, which are no regular steps")
    rates = read_load(file(tmp_path, "time,rate\n0,7\n10,8\n30,9\n60,1\n"))
    assert rates.per_second == pytest.approx([7.0] * 10 + [8.0] * 20 + [9.0] * 30 + [1.0] * 30)


def test_a_regular_file_may_have_gaps_and_a_row_at_an_odd_time(tmp_path: Path) -> None:
    """From 40 to 80 three rows are missing; from 20 to 35 the row says what arrived in 15 s."""
    rows = "".join(f"{at},30\n" for at in (0, 10, 20, 35, 45, 55, 95, 105))
    made = read_load(file(tmp_path, "time,records\n" + rows))
    assert made.per_second == pytest.approx([3.0] * 20 + [2.0] * 15 + [3.0] * 30 + [0.0] * 30 + [3.0] * 20)
    assert made.notes[0] == "3 of 11 steps of 10 s are missing and count as no load"
    assert made.notes[1].startswith("1 rows are followed by the next one after 15 s, which are no steps of 10 s")


def test_records_at_odd_moments_fall_into_their_seconds(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,records\n0.013,1\n0.847,1\n0.9,2\n3.2,1\n3.21,1\n"))
    assert made.per_second == (4, 0, 0, 2)


@pytest.mark.parametrize("worth", [1, 10**3, 10**6, 10**9])
def test_a_time_is_in_seconds_milliseconds_microseconds_or_nanoseconds(tmp_path: Path, worth: int) -> None:
    """Microseconds were taken for milliseconds: ten seconds became ten thousand."""
    rows = "".join(f"{(1_700_000_000 + at) * worth},{at}\n" for at in range(10))
    assert read_load(file(tmp_path, "time,records\n" + rows)).per_second == tuple(range(10))


def test_rows_of_the_same_time_are_added_up_and_said(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,partition,records\n0,0,1\n0,0,2\n0,1,4\n1,0,8\n"))
    assert made.per_second == (7, 8)
    assert made.notes == ("1 rows have the time and partition of another one and were added to it",)


def test_columns_that_nothing_is_played_by_are_said(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,topic,bytes,records\n0,a,100,1\n"))
    assert made.per_second == (1,)
    assert [note.partition(" was not needed")[0] for note in made.notes] == ["the column 'bytes'", "the column 'topic'"]


LONG = {
    "minutes": "period,count\n2024-01-01 00:00:00,60\n2024-01-01 00:01:00,120\n2024-01-01 00:02:00,6\n"
    "2024-02-28 00:00:00,180\n",
    "koper": ",".join(["7", "9", *["8"] * 50_000]),
}


@pytest.mark.parametrize("name", LONG)
def test_only_what_is_played_of_a_long_file_has_to_be_short_enough(tmp_path: Path, name: str) -> None:
    path = file(tmp_path, LONG[name])
    with pytest.raises(LoadFileError, match="31 days.*--begin and --seconds"):
        read_load(path)
    made = read_load(path, Reading(begin=50, seconds=20))
    assert made.seconds == 20
    assert made.per_second == ((1.0,) * 10 + (2.0,) * 10 if name == "minutes" else (7.0,) * 10 + (9.0,) * 10)


@pytest.mark.parametrize(
    "text",
    [
        "time,partition,records\n0,0,7\n1.5,1,3\n3,1,4\n4.5,0,9\n7.5,2,1\n",
        "time,records\n0,7\n0.3,3\n0.6,4\n0.9,9\n1.2,1\n2.1,1\n4.2,1\n5.3,2\n",
        "1,2,3",
        '[{"a": {"0": 50, "1": 25}}, {"a": {"1": 100, "0": 0}}]',
        "\n".join(encode(report(101.0 + second, 10 + second)).decode() for second in range(9)),
    ],
    ids=["steps", "moments", "koper", "landau", "telemetry"],
)
@pytest.mark.parametrize("speed_up", [1.0, 0.5])
def test_a_part_that_is_read_is_the_part_of_all(tmp_path: Path, text: str, speed_up: float) -> None:
    path = file(tmp_path, text)
    whole = read_load(path, Reading(speed_up=speed_up))
    part = read_load(path, Reading(speed_up=speed_up, begin=2, seconds=3))
    assert part == whole.part(2, 3)
    with pytest.raises(WrongLoadError, match="no part that begins at second 100000"):
        read_load(path, Reading(speed_up=speed_up, begin=100_000))


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
        ("partition,records\n0,1\n", "a column 'time'"),
        ("time,partition\n0,1\n", "'records' or 'bytes'"),
        ("time,amount\n0,1\n", "a column 'amount', which is not known"),
        ("time,part,records\n0,1,1\n", "the nearest is 'partition'"),
        ("time,records,records\n0,1,2\n", "more than one column 'records'"),
        ("time,records,count\n0,1,2\n", "'records' and 'count', which both tell the records"),
        ("time,timestamp,count\n0,1,2\n", "both tell the time"),
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
    with pytest.raises(LoadFileError, match="is a directory"):
        read_load(tmp_path)
    packed = gzip.compress(b"time,records\n" + b"0,1\n" * 100)
    for broken in (packed[:-12], packed[:20] + b"\0\0\0\0" + packed[24:]):
        with pytest.raises(LoadFileError, match="cannot be unpacked .* copy it again"):
            read_load(file(tmp_path, broken, "load.csv.gz"))
    with pytest.raises(LoadFileError, match="--speed-up"):
        read_load(file(tmp_path, "0,1\n"), Reading(speed_up=0.0))
