"""Loads from files: every format, and everything that is wrong with files."""

from __future__ import annotations

import gzip
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from loadtrim.simulate.loads.load import Load, LoadFileError, WrongLoadError
from loadtrim.simulate.loads.readers import Reading, read_load
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord


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
    assert made.arrivals == "recorded"


def came(made: Load) -> list[tuple[float, int, int]]:
    """(time, partition, records) of all batches."""
    return [
        (round(second + batch.offset_seconds, 6), index, count)
        for second, batches in enumerate(made.batches(Random(1)))
        for batch in batches
        for index, count in batch.counts
    ]


def test_records_come_at_the_moments_that_a_file_tells(tmp_path: Path) -> None:
    """They were played as one burst a second, without a word."""
    rows = "".join(f"{7 + at},{partition},2\n" for at, partition in ((0, 1), (0.1, 0), (0.25, 1), (0.25, 3), (1.5, 0)))
    path = file(tmp_path, "time,partition,records\n" + rows)
    made = read_load(path)
    assert made.arrivals == "recorded"
    assert came(made) == [(0, 1, 2), (0.1, 0, 2), (0.25, 1, 2), (0.25, 2, 2), (1.5, 0, 2)]
    assert came(made.part(1, 1)) == [(0.5, 0, 2)]
    assert [count for _, _, count in came(made.scaled(1.5))] == [3] * 5
    assert [(at, count) for at, _, count in came(made.dealt(1, [1.0]))] == [
        (0, 2),
        (0.1, 2),
        (0.25, 2),
        (0.25, 2),
        (1.5, 2),
    ]
    dealt = read_load(path, Reading(partitions=2))
    assert sum(count for *_, count in came(dealt)) == 10
    assert sorted({at for at, *_ in came(dealt)}) == [0, 0.1, 0.25, 1.5]
    assert came(replace(made, arrivals="burst"))[0] == (0, 0, 2)
    assert read_load(file(tmp_path, "time,records\n0,5\n1,5\n")).arrivals == "poisson"


def test_moments_keep_their_rate_when_time_runs_faster(tmp_path: Path) -> None:
    path = file(tmp_path, "time,records\n" + "".join(f"{at / 10},2\n" for at in range(40)))
    fast = read_load(path, Reading(speed_up=2))
    assert fast.per_second == pytest.approx((20, 20))
    assert [at for at, *_ in came(fast)] == [round(at / 20, 6) for at in range(40)]
    assert read_load(path, Reading(speed_up=0.1)).arrivals == "poisson", "a step is a second then"


def test_a_load_that_tells_no_moments_cannot_arrive_as_recorded(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,records\n0,5\n1,5\n"))
    with pytest.raises(WrongLoadError, match="does not tell at which moments"):
        replace(made, arrivals="recorded")


def test_bytes_need_the_size_of_a_record(tmp_path: Path) -> None:
    path = file(tmp_path, "time,bytes\n0,1000\n1,500\n")
    assert read_load(path, Reading(record_bytes=100)).per_second == (10, 5)
    with pytest.raises(LoadFileError, match="--record-bytes"):
        read_load(path)
    with pytest.raises(WrongLoadError, match="--record-bytes is 0; .* above 0"):
        Reading(record_bytes=0)


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


@pytest.mark.parametrize(
    ("rows", "speed_up", "records"),
    [("0,100\n10,100\n", 15.0, 200 / 15), ("0,10\n2,10\n4,10\n4.9,10\n5.8,10\n", 1.0, 50.0)],
)
def test_what_the_last_row_says_is_played_to_its_end(
    tmp_path: Path, rows: str, speed_up: float, records: float
) -> None:
    """It was cut off at the second's end where it lasts for less than one."""
    made = read_load(file(tmp_path, "time,records\n" + rows), Reading(speed_up=speed_up))
    assert made.arrivals == "poisson"
    assert made.records == pytest.approx(records)


def test_a_rate_that_lasts_for_an_odd_time_goes_on_until_the_next_row(tmp_path: Path) -> None:
    """100/s every 0.1 s, and one row 5.05 s before the next: 505 records came at once, and 4 s without any."""
    times = [at / 10 for at in range(10)] + [5.95 + at / 10 for at in range(11)]
    rows = "".join(f"{at},{partition},{rate}\n" for at in times for partition, rate in ((0, 75), (1, 25)))
    made = read_load(file(tmp_path, "time,partition,rate\n" + rows))
    assert made.arrivals == "recorded"
    assert made.per_second == pytest.approx([100.0] * 5 + [105.0, 100.0])
    assert max(count for *_, count in came(made)) <= 8
    offsets = [[moment.offset_seconds for moment in second] for second in made.moments]
    assert offsets == [sorted(second) for second in offsets]
    (note,) = made.notes
    assert note.startswith("1 rows are followed by the next one after 5.05 s, which are no steps of 0.1 s")
    slow = read_load(file(tmp_path, "time,rate\n" + "".join(f"{at},0.5\n" for at in times)))
    assert len(slow.moments[3]) <= 1, "no more moments than records"
    assert slow.records == pytest.approx(0.5 * 7.05)


@pytest.mark.parametrize(
    ("rows", "line", "forms"),
    [
        (
            ("1700000000", "1700000001000", "1700000002000000"),
            3,
            "is a number of milliseconds since the epoch, and that of line 2 is a number of seconds",
        ),
        (("1", "1700000001000"), 3, "is a number of milliseconds since the epoch"),
        (("1700000001000000", "1700000002000000000"), 3, "is a number of nanoseconds.* line 2 is .* of microseconds"),
    ],
)
def test_times_of_unlike_units_are_refused(tmp_path: Path, rows: tuple[str, ...], line: int, forms: str) -> None:
    """Each row's unit was told alone."""
    path = file(tmp_path, "time,records\n" + "".join(f"{at},1\n" for at in rows))
    with pytest.raises(LoadFileError, match=f"line {line}: .* {forms}"):
        read_load(path, Reading(seconds=2))


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize(
    "text",
    [
        "time,partition,records\n0,0,30\n0,1,10\n",
        '[{"a": {"0": 30, "1": 10}}]',
        encode(report(101.0, 10)).decode(),
    ],
    ids=["csv", "landau", "telemetry"],
)
def test_any_file_is_dealt_out_anew_over_as_many_partitions_as_are_asked_for(
    tmp_path: Path, text: str, partitions: int
) -> None:
    """Not those of the papers and of telemetry, nor in the same way where the file has as many."""
    made = read_load(file(tmp_path, text), Reading(partitions=partitions))
    assert made.partitions == tuple(Partition("load", index) for index in range(partitions))
    assert (made.keys, made.shares) == ("random", ((1 / partitions,) * partitions,))


@pytest.mark.parametrize("worth", [1, 10**3, 10**6, 10**9])
def test_a_time_is_in_seconds_milliseconds_microseconds_or_nanoseconds(tmp_path: Path, worth: int) -> None:
    """Microseconds were taken for milliseconds: ten seconds became ten thousand."""
    rows = "".join(f"{(1_700_000_000 + at) * worth},{at}\n" for at in range(10))
    assert read_load(file(tmp_path, "time,records\n" + rows)).per_second == tuple(range(10))


@pytest.mark.parametrize(("begin", "step"), [("20240501123000", 1), ("202405011230", 60)])
def test_dates_of_digits_alone_are_read_as_dates_and_said(tmp_path: Path, begin: str, step: int) -> None:
    """They were taken for milliseconds: seconds became thousandths."""
    made = read_load(file(tmp_path, f"time,rate\n{begin},10\n{int(begin) + 1},20\n"))
    assert made.per_second == (10,) * step + (20,) * step
    (note,) = made.notes
    assert note.startswith(f"times like {begin} were read as dates: from 2024-05-01 12:30:00 to 2024-05-01 12:3")


def test_numbers_that_are_dates_in_part_only_are_numbers(tmp_path: Path) -> None:
    """Seconds since a machine started may look like the 30th of a month; the next one is no day."""
    rows = "".join(f"{at},1\n" for at in range(20240520, 20240540))
    assert read_load(file(tmp_path, "time,records\n" + rows)).seconds == 20
    assert read_load(file(tmp_path, "time,records\n20240501.0,1\n20240502.0,1\n")).seconds == 2


def test_rows_of_the_same_time_are_added_up_and_said(tmp_path: Path) -> None:
    made = read_load(file(tmp_path, "time,partition,records\n0,0,1\n0,0,2\n0,1,4\n1,0,8\n"))
    assert made.per_second == (7, 8)
    assert made.notes == ("1 row was added to an earlier one of the same time and partition",)


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
    path = file(tmp_path, "10,20,30", "koper.txt")
    made = read_load(path)
    assert made.seconds == 180
    assert made.arrivals == "burst", "as the paper's producers send"
    assert made.per_second[60] == 20
    fast = read_load(path, Reading(speed_up=40))
    assert fast.per_second == pytest.approx((10, 15, 20, 30, 15)), "a minute in 1.5 s"
    assert fast.source == "koper.txt (records/s, one a minute), 40 times as fast"
    assert read_load(path, Reading(speed_up=600)).per_second == pytest.approx([6.0]), "it was played 60 times as fast"


def test_landau_has_percent_of_a_capacity(tmp_path: Path) -> None:
    rows = [{"a": {"0": 50, "1": 25}}, {"a": {"1": 100, "0": 0}}]
    made = read_load(file(tmp_path, json.dumps(rows), "stream.json"), Reading(capacity=200, interval=2))
    assert made.per_second == (150, 150, 200, 200)
    assert made.rates(0) == {Partition("a", 0): 100, Partition("a", 1): 50}
    assert made.arrivals == "even"
    fast = read_load(file(tmp_path, json.dumps(rows), "stream.json"), Reading(interval=3, speed_up=2))
    assert fast.per_second == pytest.approx((75, 87.5, 100))
    assert fast.source == "stream.json, 2 times as fast"


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, 1e300])
@pytest.mark.parametrize("name", ["capacity", "interval", "record_bytes", "speed_up"])
def test_what_no_load_could_be_read_with_is_refused(name: str, value: float) -> None:
    """An infinite interval was a traceback."""
    with pytest.raises(WrongLoadError, match=f"--{name.replace('_', '-')} is .*; it must be a number"):
        Reading(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("time,records\n0,1\n", {"capacity": 5}, "--capacity is for files of Landau'24's streams, and this is a table"),
        ("time,records\n0,1\n", {"record_bytes": 5}, "--record-bytes is for files that tell bytes"),
        ("time,bytes\n0,1\n", {"record_bytes": 5, "interval": 1}, "--interval is for files of Landau"),
        ("1,2,3", {"interval": 5}, "--interval is for files of Landau"),
        ('[{"a": {"0": 50}}]', {"record_bytes": 5}, "--record-bytes is for files that tell bytes"),
        (encode(report(101.0, 10)).decode(), {"capacity": 5}, "--capacity is for files of Landau"),
    ],
)
def test_what_does_not_apply_to_a_file_is_refused(
    tmp_path: Path, text: str, given: dict[str, float], said: str
) -> None:
    """It was ignored."""
    with pytest.raises(WrongLoadError, match=said):
        read_load(file(tmp_path, text), Reading(**given))  # type: ignore[arg-type]


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
    for name in ("load.parquet.gz", "load.pq", "LOAD.PARQUET", "load"):
        data = path.read_bytes()
        assert read_load(file(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name)) == replace(
            made, source=name
        )
    (tmp_path / "many.parquet").mkdir()
    (tmp_path / "many.parquet" / "part-0.parquet").write_bytes(path.read_bytes())
    assert read_load(tmp_path / "many.parquet").per_second == (5, 6), "as Spark writes it"
    with pytest.raises(LoadFileError, match="There is no file"):
        read_load(tmp_path / "none.parquet")
    path.write_bytes(b"no parquet")
    with pytest.raises(LoadFileError, match="cannot be read as Parquet"):
        read_load(path)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "+02:00"])
def test_times_of_parquet(tmp_path: Path, unit: str, zone: str | None) -> None:
    """Nanoseconds asked for pandas."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    worth = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = [(1_700_000_000 + at) * worth + (1 if unit == "ns" else 0) for at in range(3)]
    path = tmp_path / "load.parquet"
    parquet.write_table(
        arrow.table({"time": arrow.array(times, arrow.timestamp(unit, zone)), "count": [1, 2, 3]}), path
    )
    assert read_load(path).per_second == (1, 2, 3)


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(LoadFileError, match="pip install pyarrow"):
        read_load(file(tmp_path, "", "load.parquet"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("time,records\n", "no row"),
        ("time,partition,records\n", "no row"),
        ('"","",""\n', "no row"),
        ("\n\ntime,records\n0,1\n\n1,-1\n", "line 6: records"),
        ('time,partition,topic,records\n0,0,"a\nb",1\n1,0,b,-1\n', "line 4: records"),
        ("100,200\n", "one line of two numbers, .*a time and records/s or .* two minutes"),
        ("time,topic,partition,records\n0,a,0,1\n1,,0,1\n", "line 3: the topic is missing"),
        ('time,records\n0,1\n1,"5\n2,3\n', "line 3: what begins there cannot be read as CSV"),
        ("1,x,3\n", "value 2: records/s is 'x'"),
        ("time,records\n20240501,1\n20240502,1\n", "line 2: the time '20240501' may be seconds or the date 2024-05-01"),
        ("time,records\n2024050111,1\n2024050112,1\n", "may be seconds or the date 2024-05-01 11:00"),
        (
            "time,records\n20240501123000,1\n20240501126000,1\n",
            "line 3: .* milliseconds since the epoch, and that of line 2 is a date",
        ),
        ("time,records\n0,1\n2024-05-01,1\n", "line 3: .* is a date without one, and that of line 2 is a number"),
        ("time,records\n2024-05-01 12:00:00,1\n2024-05-01 12:00:01Z,1\n", "line 3: .* is a date with a time zone"),
        ("time,records\n1e300,1\n", "line 2: the time '1e300'"),
        ("time,records\n0,1\n1,1e12\n", "line 3: 1,000,000,000,000 records/s are more than the 10,000,000"),
        ("time,records\n0,1e7\n0,1\n1,1\n", "load.csv: The load at second 0 is 10,000,001 records/s"),
        ("1,1e12,3\n", "value 2: 1,000,000,000,000 records/s"),
        ('[{"a": {"0": 5}}, {"a": {"0": -5}}]', "row 2: a-0"),
        ("partition,records\n0,1\n", "a column 'time'"),
        ("time,partition\n0,1\n", "'records' or 'bytes'"),
        ("time,amount\n0,1\n", "names that are not known: 'amount'"),
        ("when,how_many\n0,1\n", "'when', 'how_many'. What they tell .* Rename them"),
        ('{"status":"succ', r"begins like JSON and ends or breaks off as none \(Unterminated string"),
        ("PK\x03\x04", "is a packed archive, as spreadsheets are"),
        ("time,partitions,records\n0,1,1\n", "the nearest is 'partition'"),
        ("time,records,records\n0,1,2\n", "more than one column 'records'"),
        ("time,records,count\n0,1,2\n", "'records' and 'count', which both tell the records"),
        ("time,timestamp,count\n0,1,2\n", "both tell the time"),
        ("0,1,2\n1,2,3\n", "no header and 3 columns"),
        ("time,records\n0,1\n1\n", "line 3: 1 columns"),
        ("0 5\n1 6\n", "has one column only, '0 5', .* commas, semicolons, tabs"),
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
        ('{"kind": "hello"}', "none is a member's report"),
        ('[{"time": 0, "records": %s}]' % ("9" * 400), r"object 1: records is 9+\.\.\. \(400 characters\), which"),
        ('[{"time": %s, "records": 1}]' % ("9" * 400), r"object 1: the time 9+\.\.\. \(400 characters\) is neither"),
        (
            '[{"time": 0, "partition": %s, "records": 1}]' % ("9" * 400),
            "object 1: the partition 9+.* is no whole number",
        ),
        ('[{"a": {"0": %s}}]' % ("9" * 400), "streams are"),
        ("1," + "9" * 400 + ",3", "value 2: records/s is '9+"),
        ("[" * 100_000 + "]" * 100_000, "deeper than can be read"),
        ('{"time": 0, "records": 1}\n{"time": 1, "records": ' + "[" * 100_000 + "]" * 100_000 + "}", "deeper than"),
        ('{"kind": "hello"}\n{\n' + "[" * 100_000 + "]" * 100_000, r"3 lines are no record"),
        ('[{"a": {"0": ' + "[" * 100_000 + "]" * 100_000 + "}}]", "deeper than can be read"),
        ('{"status": "success", "data": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, "deeper than can be read"),
    ],
    ids=lambda value: None if len(value) < 200 else f"{value[:30]}...",
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
