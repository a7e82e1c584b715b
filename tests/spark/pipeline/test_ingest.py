"""The stream on a real Kafka: exactly once, whatever is written twice, and whoever dies in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim.testing import LocalKafka
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.ownership_records import HelloRecord
from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.pipeline.baselines import update_days
from loadtrim_spark.pipeline.history import HistoryBatch, Tables, compact, delete_group, forget, open_tables
from loadtrim_spark.pipeline.ingest import Source, backfill, ingest
from spark.harness import DAY, MONDAY, decision, make_control_topic, messages, produce, report

pytestmark = pytest.mark.kafka
NOBODY = Source("127.0.0.1:1", {})
STOP_SECONDS = 60


def of_group(spark: SparkSession, path: str, group: str) -> DataFrame:
    return spark.read.format("delta").load(path).where(F.col("group") == group)


def table(spark: SparkSession, path: str) -> list[tuple[object, ...]]:
    rows = spark.read.format("delta").load(path).select("kind", "group", "member", "sequence").collect()
    return sorted(tuple(row) for row in rows)


def quarantined_once(spark: SparkSession, tables: Tables) -> bool:
    return spark.read.format("delta").load(tables.quarantine).count() == 1


def sequences(spark: SparkSession, tables: Tables, group: str) -> list[int]:
    return sorted(row["sequence"] for row in of_group(spark, tables.history, group).select("sequence").collect())


def reports(kafka: LocalKafka, group: str, numbers: Iterable[int]) -> None:
    produce(kafka.bootstrap, group, messages(*(report(n, MONDAY + n, group=group) for n in numbers)))


def delete(kafka: LocalKafka, *groups: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_topics([control_topic(group) for group in groups], operation_timeout=30).values():
        future.result()


def delete_records(kafka: LocalKafka, group: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(control_topic(group), TELEMETRY, before)]).values():
        future.result()


def test_stream_takes_each_record_once_and_keeps_what_it_cannot_read(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    for group in ("g", "h"):
        make_control_topic(kafka, group)
    written = messages(report(2, MONDAY + 2), report(1, MONDAY + 1), report(2, MONDAY + 2), decision(1, MONDAY + 3))
    foreign = encode(HelloRecord(group="g", member="m", at=float(MONDAY)))
    late = (MONDAY + 9 * DAY, encode(report(3, MONDAY)))
    ahead = (MONDAY, encode(report(4, MONDAY + DAY)))
    spoilt = [
        (MONDAY, b"{"),
        (MONDAY, None),
        (MONDAY, foreign),
        (MONDAY, b'{"kind":"report","group":"g"}'),
        late,
        ahead,
        (MONDAY, encode(report(5, MONDAY, group="h"))),
    ]
    produce(kafka.bootstrap, "g", [*written, *spoilt])
    produce(kafka.bootstrap, "g", [(MONDAY, foreign)], partition=0)
    lines: list[str] = []
    reasons = tuple((reason, 1) for reason in sorted(
        ("ahead", "empty", "foreign_group", "late", "malformed", "missing_field", "unknown_kind")))  # fmt: skip
    spoilt_batch = HistoryBatch(accepted=3, copies=1, quarantined=7, reasons=reasons)
    assert ingest(spark, source, tables, tell=lines.append) == spoilt_batch
    assert lines == [f"batch 0: {spoilt_batch}"]
    assert "7 quarantined (ahead 1, empty 1, foreign_group 1," in lines[0]

    # Started again: a new group, a copy of what the first run wrote, and nothing else.
    produce(kafka.bootstrap, "h", messages(report(1, MONDAY + DAY, group="h")))
    produce(kafka.bootstrap, "g", messages(report(1, MONDAY + 1)))
    assert ingest(spark, source, tables) == HistoryBatch(accepted=1, copies=1, quarantined=0)
    everything = [
        ("decision", "g", "m", 1), ("report", "g", "m", 1), ("report", "g", "m", 2), ("report", "h", "m", 1)
    ]  # fmt: skip
    assert table(spark, tables.history) == everything
    assert spark.read.format("delta").load(tables.quarantine).count() == 7

    # One group is deleted, all of it, and read again from what Kafka holds; twice, and the quarantine does not grow.
    assert delete_group(spark, tables, "g") == 3
    assert table(spark, tables.history) == everything[3:]
    assert spark.read.format("delta").load(tables.quarantine).isEmpty()
    again = HistoryBatch(accepted=3, copies=2, quarantined=7, reasons=reasons)
    assert backfill(spark, source, tables, "g", late_seconds=2 * DAY) == again
    assert backfill(spark, source, tables, "g", late_seconds=2 * DAY).accepted == 0
    assert table(spark, tables.history) == everything
    assert spark.read.format("delta").load(tables.quarantine).count() == 7


def test_small_files_of_closed_days_are_put_together(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    make_control_topic(kafka, "g")
    for number in (1, 2):
        produce(kafka.bootstrap, "g", messages(report(number, MONDAY + number)))
        ingest(spark, source, tables)
    assert compact(spark, tables, "2025-11-24") == 0  # the day is not closed yet
    assert compact(spark, tables, "2025-11-25") == 2
    assert len(table(spark, tables.history)) == 2


def test_days_that_are_not_kept_go_from_all_tables(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    """Each run read every day and every batch that there ever was."""
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    make_control_topic(kafka, "g")
    produce(kafka.bootstrap, "g", messages(*(report(n, MONDAY + n * DAY) for n in range(3))))
    produce(kafka.bootstrap, "g", [(MONDAY, b"spoilt"), (MONDAY + 2 * DAY, b"spoilt")])
    ingest(spark, source, tables)
    update_days(spark, tables, 900)
    assert forget(spark, tables, "2025-11-26") == 2
    assert sequences(spark, tables, "g") == [2]
    assert quarantined_once(spark, tables)
    for path in (tables.ledger, tables.days):
        assert {row["date"] for row in of_group(spark, path, "g").collect()} == {date(2025, 11, 26)}
    assert update_days(spark, tables, 900) == 0
    assert forget(spark, tables, "2025-11-26") == 0


def test_driver_killed_twice_in_the_middle(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    """SIGKILL between a batch's writes, then again after all of them and before Spark notes it."""
    tables, group = Tables(str(tmp_path)), "killed"
    make_control_topic(kafka, group)
    good = messages(*(report(n, MONDAY + n, group=group) for n in range(300)))
    produce(kafka.bootstrap, group, [*good[:50], good[3], (MONDAY, b"{"), *good[50:]])
    script = str(Path(__file__).parents[1] / "dying_driver.py")
    for where in ("ledger", "checkpoint"):
        environment = {**os.environ, "STATE": tables.root, "BOOTSTRAP": kafka.bootstrap, "DIE": where}
        died = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, timeout=280, check=False,
            start_new_session=True,
        )  # fmt: skip
        assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
        entries = of_group(spark, tables.ledger, group).count()
        began = of_group(spark, tables.history, group).count()
        assert 0 < began < 300  # in the middle: one batch is written, and not yet known as done
        assert entries == {"ledger": 0, "checkpoint": 1}[where]
        assert quarantined_once(spark, tables)
        assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))

    lines: list[str] = []
    brought = ingest(spark, Source(kafka.bootstrap, {}), tables, batch_records_max=100, tell=lines.append)
    assert brought == HistoryBatch(accepted=300, copies=1, quarantined=1, reasons=(("malformed", 1),))
    assert lines[0].startswith("batch 0: 98 new, 1 copies, 1 quarantined")  # the one that both died in, a third time
    rows = of_group(spark, tables.history, group).select("sequence").collect()
    assert sorted(row[0] for row in rows) == list(range(300))
    ledger = of_group(spark, tables.ledger, group).collect()
    assert (sum(row["accepted"] for row in ledger), sum(row["copies"] for row in ledger)) == (300, 1)
    assert quarantined_once(spark, tables)


def test_what_kafka_deleted_unread_is_told_and_a_topic_that_goes_stops_nobody(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    make_control_topic(kafka, "short")
    make_control_topic(kafka, "going")
    produce(kafka.bootstrap, "short", messages(report(1, MONDAY + 1, group="short")))
    produce(kafka.bootstrap, "going", messages(report(1, MONDAY + 1, group="going")))
    ingest(spark, source, tables)
    produce(kafka.bootstrap, "short", messages(*(report(n, MONDAY + n, group="short") for n in range(2, 6))))
    delete_records(kafka, "short", 3)
    delete(kafka, "going")
    lines: list[str] = []
    assert ingest(spark, source, tables, tell=lines.append) == HistoryBatch(accepted=2, lost=2)
    assert any(line.startswith("__loadtrim.short: Kafka deleted 2 records unread") for line in lines)
    assert any(line.startswith("__loadtrim.going is gone") for line in lines)
    assert of_group(spark, tables.history, "going").count() == 1


def test_what_kafka_deletes_while_a_run_lasts_is_counted(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    """Consumers fetch ahead, here a record or two: what came that way is not lost."""
    source, count = Source(kafka.bootstrap, {"max.partition.fetch.bytes": "1"}), 12
    make_control_topic(kafka, "short")
    for number in range(count):
        reports(kafka, "short", [number])  # each a batch of its own
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if line.startswith("batch 0:"):
            delete_records(kafka, "short", 10)

    tables = Tables(str(tmp_path))
    brought = ingest(spark, source, tables, batch_records_max=4, tell=tell)
    assert brought.lost > 0
    assert brought == HistoryBatch(accepted=count - brought.lost, lost=brought.lost)
    assert len(sequences(spark, tables, "short")) == brought.accepted
    assert any("__loadtrim.short: Kafka deleted" in line for line in lines)


def test_a_topic_made_again_is_read_from_its_beginning(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    """Its end is where the stream had been, before that, or beyond: Spark goes on from there each time."""
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    groups = {"same": 2, "shorter": 5, "longer": 2}
    for group, count in groups.items():
        make_control_topic(kafka, group)
        reports(kafka, group, range(count))
    ingest(spark, source, tables)
    lines: list[str] = []

    def made_again(group: str, numbers: Iterable[int]) -> None:
        delete(kafka, group)
        make_control_topic(kafka, group)
        reports(kafka, group, numbers)

    made_again("same", range(10, 12))
    assert ingest(spark, source, tables, tell=lines.append) == HistoryBatch(accepted=2)
    assert [line.partition(":")[0] for line in lines] == ["__loadtrim.same was deleted and made again"]
    made_again("shorter", range(10, 13))
    made_again("longer", range(10, 14))
    lines.clear()
    brought = ingest(spark, source, tables, tell=lines.append)
    assert brought == HistoryBatch(accepted=7, copies=2)  # the stream has read the longer one's end too
    assert [line.partition(":")[0] for line in lines] == [
        "__loadtrim.longer was deleted and made again", "__loadtrim.shorter was deleted and made again", "batch 1",
    ]  # fmt: skip

    for group in groups:
        reports(kafka, group, [20])
    assert ingest(spark, source, tables) == HistoryBatch(accepted=3)
    assert sequences(spark, tables, "same") == [0, 1, 10, 11, 20]
    assert sequences(spark, tables, "shorter") == [0, 1, 2, 3, 4, 10, 11, 12, 20]
    assert sequences(spark, tables, "longer") == [0, 1, 10, 11, 12, 13, 20]


def test_a_topic_made_again_without_telemetry_stops_nobody(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client asked for its offsets for 30 s, and ingest ended for all groups: no Kafka answered, it said."""
    monkeypatch.setattr("loadtrim_spark.pipeline.source.BROKER_SECONDS", 5)
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    for group in ("g", "one"):
        make_control_topic(kafka, group)
        reports(kafka, group, [1])
    ingest(spark, source, tables)
    delete(kafka, "one")
    kafka.create_topic(1, control_topic("one"), {"retention.ms": "-1"})
    reports(kafka, "g", [2])
    lines: list[str] = []
    assert ingest(spark, source, tables, tell=lines.append).accepted == 1
    assert any(line.startswith("__loadtrim.one has no partition 1, where telemetry is") for line in lines)
    with pytest.raises(PipelineError, match=r"__loadtrim\.one has no partition 1.*\n.*\n.*--alter"):
        backfill(spark, source, tables, "one")
    delete(kafka, "one")
    make_control_topic(kafka, "one")
    reports(kafka, "one", [7, 8])
    ingest(spark, source, tables)
    assert sequences(spark, tables, "one") == [1, 7, 8]
    assert sequences(spark, tables, "g") == [1, 2]


def test_tables_are_refused_where_java_cannot_write_the_name_of_every_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In the POSIX locale, as under spark-submit by cron, all went well until a group came whose id is not ASCII."""
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    usual = system.getProperty("sun.jnu.encoding")
    system.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")
    try:
        with pytest.raises(PipelineError, match=r"(?s)in ANSI_X3\.4-1968.*LC_ALL=C\.UTF-8"):
            open_tables(spark, Tables(str(tmp_path / "state")))
    finally:
        system.setProperty("sun.jnu.encoding", usual)
    assert not (tmp_path / "state").exists()


def test_a_group_that_is_called_as_a_variable_of_spark_is_that_group(spark: SparkSession, tmp_path: Path) -> None:
    """Spark put the value of spark.app.name in its place: the group "loadtrim" was deleted."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    rows = [(date(2025, 11, 24), "loadtrim", "report"), (date(2025, 11, 24), "${spark.app.name}", "report")]
    new = spark.createDataFrame(rows, "date date, `group` string, kind string")
    new.write.format("delta").mode("append").save(tables.history)
    assert delete_group(spark, tables, "${spark.app.name}") == 1
    assert [row["group"] for row in spark.read.format("delta").load(tables.history).collect()] == ["loadtrim"]


def test_a_topic_made_again_is_found_by_the_position_where_its_id_is_not_known(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    make_control_topic(kafka, "g")
    reports(kafka, "g", range(3))
    ingest(spark, source, tables)
    delete_group(spark, tables, "g")
    delete(kafka, "g")
    make_control_topic(kafka, "g")
    reports(kafka, "g", [10])
    assert ingest(spark, source, tables) == HistoryBatch(accepted=1)
    assert sequences(spark, tables, "g") == [10]


@contextmanager
def ingesting(kafka: LocalKafka, tables: Tables, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``ingest`` as a process of its own; killed at the end if it still runs."""
    command = [
        sys.executable, "-m", "loadtrim_spark", "ingest", "--bootstrap", kafka.bootstrap, "--state", tables.root,
        "--master", "local[1]", "--memory", "600m", *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], words: str) -> str:
    """What it says up to the line that holds the words."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_for_ever_until_stopped_and_started_again(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    make_control_topic(kafka, "g")
    written = 0
    for number, batches in ((signal.SIGTERM, 2), (signal.SIGINT, 1)):
        with ingesting(kafka, tables, "--every", "1") as process:
            for _ in range(batches):
                reports(kafka, "g", range(written, written + 3))
                written += 3
                until(process, "batch ")
            reports(kafka, "g", range(written, written + 1))  # read or not: it is stopped at any moment
            written += 1
            process.send_signal(number)
            _, errors = process.communicate(timeout=STOP_SECONDS)  # until its Java has ended as well
        if number == signal.SIGTERM:
            assert process.returncode == -signal.SIGTERM, errors
        else:
            assert process.returncode == 1, errors
            assert "loadtrim_spark: interrupted; starting again goes on where it stopped" in errors
    ingest(spark, Source(kafka.bootstrap, {}), tables)
    assert sequences(spark, tables, "g") == list(range(written))
    ledger = of_group(spark, tables.ledger, "g").collect()
    assert (sum(row["accepted"] for row in ledger), sum(row["copies"] for row in ledger)) == (written, 0)


def test_nobody_answers(spark: SparkSession, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(PipelineError, match=r"No Kafka answers at 127\.0\.0\.1:1"):
        ingest(spark, NOBODY, Tables(str(tmp_path)))
    assert time.monotonic() - begun < 60
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("offsets", ["spoilt\n", 'v1\n{"batchWatermarkMs":0}\n{"c":'])
def test_checkpoint_that_cannot_be_read(spark: SparkSession, kafka: LocalKafka, tmp_path: Path, offsets: str) -> None:
    for name, text in (("metadata", '{"id":"x"}'), ("offsets/0", offsets), ("commits/0", "v1\n{}")):
        file = tmp_path / "checkpoint" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.raises(PipelineError, match="checkpoint .* cannot be read") as caught:
        ingest(spark, Source(kafka.bootstrap, {}), Tables(str(tmp_path)))
    assert "Move it away and start again" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]  # nothing was written


def test_a_checkpoint_that_was_lost_costs_nothing(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    """All is read again and recognised, and its days are opened again: the lost stream may have died too early."""
    tables, source, group = Tables(str(tmp_path)), Source(kafka.bootstrap, {}), "forgotten"
    make_control_topic(kafka, group)
    produce(kafka.bootstrap, group, messages(report(1, MONDAY + 1, group=group)))
    ingest(spark, source, tables)
    shutil.rmtree(tmp_path / "checkpoint")
    ingest(spark, source, tables)
    ledger = of_group(spark, tables.ledger, group).orderBy("accepted").collect()
    assert [(row["accepted"], row["copies"]) for row in ledger] == [(0, 1), (1, 0)]
    assert of_group(spark, tables.history, group).count() == 1


def test_a_place_that_cannot_be_written(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(PipelineError, match="cannot be written") as caught:
        ingest(spark, Source(kafka.bootstrap, {}), Tables(f"{file}/tables"))
    assert "--state" in str(caught.value)


def test_a_group_that_never_was(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"There is no topic __loadtrim\.nobody"):
        backfill(spark, Source(kafka.bootstrap, {}), Tables(str(tmp_path)), "nobody")
