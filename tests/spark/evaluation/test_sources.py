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
