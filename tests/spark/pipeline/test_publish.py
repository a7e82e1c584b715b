"""From a history to the baseline topic, and the command line around it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim.testing import LocalKafka
from loadtrim_agent.wire.topic_names import BASELINE_TOPIC, CONTROL_PREFIX, control_topic
from loadtrim_spark.cli import main as cli
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.pipeline import baselines as pipeline_baselines
from loadtrim_spark.pipeline.baselines import current_days, publish, update_days
from loadtrim_spark.pipeline.history import Tables, open_tables, take_in
from loadtrim_spark.pipeline.ingest import ingest
from loadtrim_spark.pipeline.source import Source
from spark.harness import DAY, MONDAY, make_control_topic, messages, produce, report

pytestmark = pytest.mark.kafka
NOBODY = "127.0.0.1:1"
WAIT_SECONDS = 30.0


def day_of(spark: SparkSession, tables: Tables, group: str, day: int, kind: str = "report") -> None:
    """A day of reports, one a minute and 60 records in each, into the history."""
    partition = F.struct(F.lit("t").alias("topic"), F.lit(0).alias("partition"), F.lit(60).alias("arrived"),
                         F.lit(60).alias("done"), F.lit(0.01).alias("cost_mean"))  # fmt: skip
    at = (F.lit(MONDAY + day * DAY) + 60 * (F.col("id") + 1) - 0.001).cast("double")
    value = F.to_json(F.struct(
        F.lit(kind).alias("kind"), F.lit(group).alias("group"), F.lit("m").alias("member"), at.alias("at"),
        F.col("id").alias("sequence"), F.lit(60.0).alias("interval"), F.array(partition).alias("partitions"),
    ))  # fmt: skip
    raw = spark.range(DAY // 60).select(
        F.lit(b"k").alias("key"), value.cast("binary").alias("value"), F.lit(control_topic(group)).alias("topic"),
        F.lit(1).alias("partition"), F.col("id").alias("offset"), F.timestamp_seconds(at).alias("timestamp"),
    )  # fmt: skip
    take_in(raw, tables, 60.0, f"{group}/{day}")


def topic_of(kafka: LocalKafka, topic: str = BASELINE_TOPIC) -> list[tuple[str, Any]]:
    """Key and value of every record, oldest first."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_SECONDS)
        records = []
        while len(records) < end:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None, f"{len(records)} of {end} records came"
            value = message.value()
            records.append((message.key().decode(), None if value is None else json.loads(value)))
        return records
    finally:
        consumer.close()


def test_changed_days_alone_are_read_and_what_goes_is_withdrawn(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    open_tables(spark, tables)
    for day in (0, 1):
        day_of(spark, tables, "g", day)
    day_of(spark, tables, "h", 0)
    lines: list[str] = []
    first = publish(spark, source, tables, bucket_seconds=3600, tell=lines.append)
    assert (first.records, first.withdrawn) == (6, 0)
    assert lines[0].startswith("3 days of groups are new or changed")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, BASELINE_TOPIC)
    configs = admin.describe_configs([resource])[resource].result()
    assert (configs["cleanup.policy"].value, configs["segment.ms"].value) == ("compact", str(DAY * 1000))
    records = dict(topic_of(kafka))
    assert sorted(records) == sorted(f'["{g}",{rest}]' for g in "gh" for rest in ('"t",0', '"t",null', "null,null"))
    topic = records['["g","t",null]']
    assert (topic["kind"], topic["v"], topic["rate"], topic["from"], topic["to"], topic["at"]) == (
        "baseline", 1, 1.0, MONDAY, MONDAY + 2 * DAY, MONDAY + 2 * DAY
    )  # fmt: skip
    assert topic["cost_mean"] == 0.01

    # Seven weeks later. The files of the old days are not there any more, and nobody misses them; the other group has
    # been silent for six weeks, so that nothing is to be expected of it.
    for path in (tmp_path / "history").glob("date=2025-11-*"):
        shutil.rmtree(path)
    day_of(spark, tables, "g", 50)
    second = publish(spark, source, tables, bucket_seconds=3600, tell=lines.append)
    assert (second.records, second.withdrawn) == (3, 3)
    assert lines[2].startswith("1 days of groups are new or changed")
    latest = dict(topic_of(kafka))
    assert {key for key, value in latest.items() if value is None} == {
        '["h","t",0]', '["h","t",null]', '["h",null,null]'
    }  # fmt: skip
    assert (latest['["g","t",0]']["from"], latest['["g","t",0]']["to"]) == (MONDAY + 50 * DAY, MONDAY + 51 * DAY)

    # A group is deleted: its baselines go, at once.
    arguments = ["--state", tables.root, "--bootstrap", kafka.bootstrap]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "session", lambda *_: spark)
        assert cli.main(["delete", "--group", "g", *arguments]) == 0
    assert set(dict(topic_of(kafka)).values()) == {None}
    assert spark.read.format("delta").load(tables.published).isEmpty()


def test_one_group_that_cannot_be_reckoned_with_leaves_the_others(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of 9 * 10^18 in one group's reports ended the command for all groups, until somebody found out which."""
    tables, source, topic = Tables(str(tmp_path)), Source(kafka.bootstrap, {}), "one-spoilt"
    open_tables(spark, tables)
    for group in ("e", "g"):
        day_of(spark, tables, group, 0)
    assert publish(spark, source, tables, bucket_seconds=3600, topic=topic).records == 6

    costs = pipeline_baselines.costs

    def spoilt(days: DataFrame) -> DataFrame:
        overflow = F.when(F.col("group") == "e", F.lit(2**62) * F.size("seconds").cast("bigint")).cast("double")
        many = F.array_repeat(F.lit(0.0), 9)
        return costs(days.withColumn("seconds", many).withColumn("cost", F.coalesce(overflow, F.col("cost"))))

    monkeypatch.setattr(pipeline_baselines, "costs", spoilt)
    day_of(spark, tables, "g", 1)
    lines: list[str] = []
    with pytest.raises(PipelineError, match=r"Of 1 group nothing could be learnt \(e: SparkArithmeticException"):
        publish(spark, source, tables, bucket_seconds=3600, topic=topic, tell=lines.append)
    assert lines[-1].startswith("3 baselines published")
    latest = dict(topic_of(kafka, topic))
    assert len(latest) == 6
    assert None not in latest.values(), "what the spoilt group had before stays"
    assert latest['["g","t",null]']["to"] == MONDAY + 2 * DAY


def test_a_record_that_kafka_does_not_take_leaves_the_other_groups(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report with a topic of 530 kB, taken in by an earlier version, ended every run for all groups."""
    tables, source, topic = Tables(str(tmp_path)), Source(kafka.bootstrap, {}), "one-too-large"
    open_tables(spark, tables)
    for group in ("e", "g"):
        day_of(spark, tables, group, 0)
    assert publish(spark, source, tables, bucket_seconds=3600, topic=topic).records == 6
    made = pipeline_baselines.messages

    def enlarged(*arguments: Any) -> DataFrame:
        forged = F.when(F.col("group") == "e", F.repeat(F.lit("t"), 1_060_000)).otherwise(F.lit(""))
        return made(*arguments).withColumn("value", F.concat("value", forged))

    monkeypatch.setattr(pipeline_baselines, "messages", enlarged)
    with pytest.raises(PipelineError, match=r"Of 1 group nothing could be learnt \(e: one record would have 1,06"):
        publish(spark, source, tables, bucket_seconds=3600, topic=topic)
    records = topic_of(kafka, topic)
    assert len(records) == 9
    assert None not in dict(records).values(), "what the group had before stays"


def test_a_foreign_row_of_an_earlier_version_goes_as_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    """Before there was a quarantine for them, reports on any control topic counted for the group that they named."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    day_of(spark, tables, "victim", 0)
    history = spark.read.format("delta").load(tables.history)
    foreign = history.where(F.col("sequence") < 60).withColumns({
        "topic": F.lit(control_topic("evil")), "member": F.lit("nobody"),
        "partitions": F.transform("partitions", lambda part: part.withField("arrived", F.lit(10**7).cast("bigint"))),
    })  # fmt: skip
    foreign.write.format("delta").mode("append").save(tables.history)
    assert update_days(spark, tables, 3600) == 1

    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    statements = [line for line in page.splitlines() if line.startswith(("SELECT ", "DELETE FROM "))]
    of_state = [
        line.replace("/data/loadtrim", tables.root).replace("payments-service", "victim") for line in statements
    ]
    looked, *changes = (spark.sql(statement).collect() for statement in of_state)
    assert [(row["group"], row["topic"], row["reports"]) for row in looked] == [
        ("victim", "__loadtrim.evil", 60), ("victim", "__loadtrim.victim", 1440)
    ]  # fmt: skip
    assert len(changes) == 2
    assert update_days(spark, tables, 3600) == 1
    buckets = spark.read.format("delta").load(tables.days).where(F.col("part") == "bucket")
    assert {row["arrived"] for row in buckets.collect()} == {3600}


def test_who_only_reads_sees_what_would_be_summed_up(spark: SparkSession, tmp_path: Path) -> None:
    """By two routes the same rows; nothing is written, and days whose files are gone stay what they are."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    for group in "gh":
        day_of(spark, tables, group, 0)
    seen = current_days(spark, tables, group="g")
    assert seen[1] == 900
    assert {row["group"] for row in seen[0].collect()} == {"g"}
    assert not (tmp_path / "days").exists()

    update_days(spark, tables, 3600)
    day_of(spark, tables, "g", 1)
    seen = current_days(spark, tables)
    assert seen[1] == 3600
    rows = sorted(map(str, seen[0].collect()))
    assert update_days(spark, tables, 3600) == 1
    assert rows == sorted(map(str, spark.read.format("delta").load(tables.days).collect()))

    for path in (tmp_path / "history").glob("date=*"):
        shutil.rmtree(path)
    assert rows == sorted(map(str, current_days(spark, tables, 3600)[0].collect()))


def test_a_day_of_which_nothing_can_be_summed_up_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """A single report covers no minute."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    raw = spark.createDataFrame(
        [
            (b"k", bytearray(value or b""), control_topic("g"), 1, 0, float(at))
            for at, value in messages(report(1, MONDAY + 1, partitions=()))
        ],
        "key binary, value binary, topic string, `partition` int, offset bigint, at double",
    ).withColumn("timestamp", F.timestamp_seconds("at"))
    take_in(raw, tables, 60.0, "b/0")
    assert update_days(spark, tables, 3600) == 1
    assert update_days(spark, tables, 3600) == 0


def test_empty_history_is_said_and_nothing_is_published(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cli, "session", lambda *_: spark)
    arguments = ["--state", str(tmp_path / "s"), "--bootstrap", kafka.bootstrap]
    assert cli.main(["baselines", *arguments]) == 0
    assert "nothing was learnt and nothing published" in capsys.readouterr().err
    assert cli.main(["ingest", *arguments]) == 0
    said = capsys.readouterr()
    assert said.out == "0 new, 0 copies, 0 quarantined\n"
    assert "no control topic" in said.err
    assert cli.main(["baselines", *arguments]) == 0
    assert "no reports that cover a minute yet" in capsys.readouterr().err
    assert BASELINE_TOPIC not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    for command in (["delete", "--group", "g"], ["compact"]):
        assert cli.main([*command, *arguments]) == 0


@pytest.mark.parametrize("command", [["ingest"], ["backfill", "--group", "g"]])
def test_wrong_broker(
    command: list[str], spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cli, "session", lambda *_: spark)
    monkeypatch.setattr("loadtrim_spark.pipeline.source.BROKER_SECONDS", 2)
    assert cli.main([*command, "--state", str(tmp_path), "--bootstrap", NOBODY]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"loadtrim_spark: No Kafka answers at {NOBODY}")
    assert "--bootstrap" in said


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["guess"],
        ["ingest", "--every", "0"],
        ["ingest", "--every", "1e-5"],
        ["ingest", "--state", ""],
        ["compact", "--state", "/"],
        ["ingest", "--kafka-option", "x"],
        ["backfill"],
        ["backfill", "--group", ""],
        ["delete", "--group", ""],
        ["baselines", "--time-zone", "Mars/Olympus"],
        ["baselines", "--weeks", "0"],
        ["backtest", "--weeks", "0"],
        ["backtest", "--group", ""],
        ["backtest", "--share", "1"],
        ["backtest", "--share", "nan"],
        ["backtest", "--startup", "-1"],
        ["backtest", "--startup", "inf"],
        ["backtest", "--play", "1"],
        ["backtest", "--group", "g", "--play", "99999999999"],
        ["backtest", "--time-zone", "Mars/Olympus"],
        ["backtest", "--from", "yesterday"],
        ["backtest", "--every-days", "0"],
        ["report", "--weeks", "0"],
        ["report", "--days", "0"],
        ["generate", "--scenario", "calm"],
    ],
)
def test_wrong_use(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(wrong) == 2
    assert "usage: python -m loadtrim_spark" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "why"), [("--weeks", "'six': a whole number from 1 on"), ("--days", "'six' is no number")]
)
def test_wrong_use_is_told_in_words(flag: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It was an "invalid _weeks value"."""
    assert cli.main(["report", flag, "six"]) == 2
    assert f"argument {flag}: {why}" in capsys.readouterr().err


def test_a_zone_that_java_does_not_know_is_not_the_groups_fault(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It was told as something in every group's reports; and that all others' baselines were published."""
    monkeypatch.setattr(cli, "session", lambda *_: spark)
    monkeypatch.setattr("loadtrim_spark.cli.flags.zoneinfo.ZoneInfo", lambda key: SimpleNamespace(key=key))
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    day_of(spark, tables, "g", 0)
    arguments = ["--state", tables.root, "--bootstrap", kafka.bootstrap, "--time-zone", "posix/Europe/Berlin"]
    assert cli.main(["baselines", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith("loadtrim_spark: Java knows no time zone posix/Europe/Berlin")
    assert "--time-zone" in told


def test_where_every_group_fails_no_others_are_told_of(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    open_tables(spark, tables)
    day_of(spark, tables, "e", 0)
    nothing = spark.createDataFrame([], pipeline_baselines.RECORD_COLUMNS)
    monkeypatch.setattr(pipeline_baselines, "_of_each", lambda *_: (nothing, {"e": "why"}))
    with pytest.raises(PipelineError, match=r"nothing could be learnt \(e: why\)") as caught:
        publish(spark, source, tables, bucket_seconds=3600, topic="none-learnt")
    assert "all others" not in str(caught.value)
    assert "nothing new was published" in str(caught.value)


def test_no_rights(
    spark: SparkSession, kafka: LocalKafka, eve: Source, eve_with_a_wrong_password: Source, tmp_path: Path
) -> None:
    """Unknown; known and blind; seeing and not reading; reading; and not publishing."""
    tables = Tables(str(tmp_path))
    make_control_topic(kafka, "g")
    produce(kafka.bootstrap, "g", messages(report(1, MONDAY + 1)))
    with pytest.raises(PipelineError, match="does not know this user"):
        ingest(spark, eve_with_a_wrong_password, tables)

    lines: list[str] = []
    assert ingest(spark, eve, tables, tell=lines.append).accepted == 0
    assert lines[-1].startswith("nothing new: no control topic that this user may see")

    allow(kafka, AclOperation.DESCRIBE)
    with pytest.raises(PipelineError, match="does not allow it") as caught:
        ingest(spark, eve, tables)
    assert "READ and DESCRIBE" in str(caught.value)

    allow(kafka, AclOperation.READ)
    assert ingest(spark, eve, tables).accepted == 1
    day_of(spark, tables, "g", 0)
    with pytest.raises(PipelineError, match=f"The topic {BASELINE_TOPIC} is not there") as caught:
        publish(spark, eve, tables, bucket_seconds=3600)
    assert "--create" in str(caught.value)
    kafka.create_topic(1, BASELINE_TOPIC)
    with pytest.raises(PipelineError, match="could not be made|does not allow it"):
        publish(spark, eve, tables, bucket_seconds=3600)


def allow(kafka: LocalKafka, operation: AclOperation) -> None:
    """Eve may do this to the topics of all groups."""
    binding = AclBinding(
        ResourceType.TOPIC, CONTROL_PREFIX, ResourcePatternType.PREFIXED, "User:eve", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its futures end with it
    for future in admin.create_acls([binding]).values():
        future.result()
