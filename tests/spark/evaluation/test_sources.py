"""Where back-tests get their loads from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from loadtrim_spark.errors import PipelineError
from loadtrim_spark.evaluation.sources import recorded


def test_recorded_loads_are_read(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("period,count\n1998-06-01 00:00:00,5\n1998-06-01 00:01:00,6\nspoilt,7\n1998-06-01 00:02:00,8\n")
    study = recorded(spark, str(file), 300, "UTC")
    assert study.bucket_seconds == 300
    (bucket,) = study.days.where(F.col("part") == "bucket").collect()
    assert (bucket["start"], bucket["arrived"], bucket["minutes"]) == (896_659_200, 19, [5, 6, 8])
    # From the middle of one minute to that of the next.
    load = study.load(896_659_200 + 30, 61)
    assert [load.per_second[second] * 60 for second in (0, 60)] == pytest.approx([5 + 0.5 / 60, 6 + 2 * 0.5 / 60])
    for text, why in (("a\n1\n", "1 columns"), ("a,b\n1,2\n", "fewer than two counts")):
        file.write_text(text)
        with pytest.raises(PipelineError, match=why):
            recorded(spark, str(file), 300, "UTC")
    with pytest.raises(PipelineError, match=r"gone\.csv is no recorded load"):
        recorded(spark, str(tmp_path / "gone.csv"), 300, "UTC")


def test_counts_that_are_missing_make_the_others_no_longer(spark: SparkSession, tmp_path: Path) -> None:
    """With half of the minutes missing each count was taken for two minutes, and all rates were twice too large."""
    file = tmp_path / "load.csv"
    minutes = [minute for minute in range(60) if minute % 4 < 2]
    file.write_text("time,count\n" + "".join(f"{60 * minute},6\n" for minute in minutes))
    days = recorded(spark, str(file), 3600, "UTC").days
    (bucket,) = days.where(F.col("part") == "bucket").collect()
    assert (bucket["arrived"], len(bucket["minutes"]), bucket["covered"]) == (180, 30, 30)


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ((0, 60, 150), "60 s apart, and 1 are at no multiple"),
        ((0, 90, 180), "90 s apart, which is no whole number"),
        ((0, 20, 60), "20 s apart, which is no whole number"),
    ],
)
def test_counts_that_are_not_on_one_grid_are_refused(
    times: tuple[int, ...], why: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "load.csv"
    file.write_text("time,count\n" + "".join(f"{time},6\n" for time in times))
    with pytest.raises(PipelineError, match=why):
        recorded(spark, str(file), 300, "UTC")
