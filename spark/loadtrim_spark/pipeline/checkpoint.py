"""What a stream's checkpoint says, read without Spark's stream: who it is, and how far it came.

Layout (Spark's own): ``metadata`` holds the stream's id; ``offsets/N`` the end of batch N, written before it is
played; ``commits/N`` that it was played to its end. The files begin with a line "v1"; the last line of ``offsets/N`` is
the Kafka source's ``{"topic": {"partition": offset}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, reason_of

__all__ = ["Checkpoint", "read_checkpoint"]

VERSION_LINE = "v1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a stream stands.

    Attributes:
        stream: Spark's id of it: batch numbers are unique below it only.
        positions: control topic -> offset after the last telemetry that was played to its end; empty before the first
            batch was.
        ends: the same for the batch that is being played; those of ``positions`` where none is.
    """

    stream: str
    positions: Mapping[str, int]
    ends: Mapping[str, int]


def read_checkpoint(spark: SparkSession, path: str) -> Checkpoint | None:
    """Read it.

    Returns:
        None where no stream was started yet.

    Raises:
        PipelineError: it is there and cannot be read.
    """
    try:
        numbers = {name: _batches(spark, f"{path}/{name}") for name in ("offsets", "commits")}
        metadata = _text(spark, f"{path}/metadata")
        if metadata is None:
            if numbers["offsets"]:
                raise ValueError("it has batches and no file called metadata")
            return None
        # Every batch that has offsets is read on; those that were not played to their end are played again.
        ends = {number: _offsets(spark, f"{path}/offsets/{number}") for number in numbers["offsets"][-2:]}
        played = [number for number in ends if number in set(numbers["commits"])]
        positions = ends[played[-1]] if played else {}
        return Checkpoint(str(json.loads(metadata)["id"]), positions, ends[max(ends)] if ends else {})
    except (*JAVA_ERRORS, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"The stream's checkpoint {path} cannot be read: {reason_of(error)}",
            "Without it nobody knows how far the stream came. Nothing was read or written now.",
            "Move it away and start again: all that Kafka still holds is read once more, and what is in the history "
            "already is recognised.",
        ) from error


def _offsets(spark: SparkSession, path: str) -> dict[str, int]:
    lines = (_text(spark, path) or "").splitlines()
    if len(lines) < 3 or lines[0] != VERSION_LINE:
        raise ValueError(f"{path.rpartition('/')[2]} in offsets does not look like Spark's")
    source = json.loads(lines[-1])
    return {topic: int(ends[str(TELEMETRY)]) for topic, ends in source.items() if str(TELEMETRY) in ends}


def _batches(spark: SparkSession, path: str) -> list[int]:
    files, place = _files(spark, path)
    if not files.exists(place):
        return []
    names = [status.getPath().getName() for status in files.listStatus(place)]
    return sorted(int(name) for name in names if name.isdecimal())


def _text(spark: SparkSession, path: str) -> str | None:
    files, place = _files(spark, path)
    if not files.exists(place):
        return None
    jvm: Any = spark._jvm
    stream = files.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _files(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    java_context: Any = spark.sparkContext._jsc
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(java_context.hadoopConfiguration()), place
