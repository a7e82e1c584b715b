from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from loadtrim_spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session("local[1]", "700m")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.stop()
