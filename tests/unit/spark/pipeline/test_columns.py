"""The history has a column for every field of its records. Needs no Spark."""

from __future__ import annotations

import msgspec
import pytest

from loadtrim_spark.pipeline.columns import FIELDS, PASSED_OVER, RECORDS, columns_of


class Counted(msgspec.Struct):
    seen: int


class Named(msgspec.Struct):
    seen: str


class Odd(msgspec.Struct):
    seen: set[int]


def test_every_field_of_a_report_and_of_a_decision_has_a_column() -> None:
    written = {field.encode_name for record in RECORDS.values() for field in msgspec.structs.fields(record)}
    assert {name for name in written if f"`{name}` " not in FIELDS} == PASSED_OVER - {"work_windows"}
    assert "work_windows" not in FIELDS


def test_a_column_has_the_type_of_its_field() -> None:
    for column in (
        "`kind` string", "`v` int", "`generation` int", "`in_time` bigint", "`startup_seconds` double",
        "`slicing` boolean",
        "`latency_counts` array<array<double>>", "`late` map<string, bigint>",
        "`moves` array<struct<`topic`: string, `partition`: int, `from`: string, `to`: string, `reason`: string>>",
    ):  # fmt: skip
        assert column in FIELDS


def test_a_record_within_a_row_has_no_version_of_its_own() -> None:
    brake = FIELDS[FIELDS.index("`brake`") :]
    assert "`v`" not in brake
    assert "`forced`: boolean" in brake


def test_a_name_with_two_types_is_refused() -> None:
    with pytest.raises(ValueError, match="seen is bigint in one kind of record and string in another"):
        columns_of({"counted": Counted, "named": Named})


def test_a_type_that_no_column_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="no column holds"):
        columns_of({"odd": Odd})
