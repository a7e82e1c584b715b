"""Columns of the history, from the types of the records that it is made of. Pure, and without Spark.

One flat row serves reports and decisions: what one does not have is null, and so is what the writer left out because it
is the default. Fields that this version does not know are passed over; a later version adds their columns.
"""

from __future__ import annotations

import msgspec
from msgspec import inspect

from loadtrim_agent.wire.telemetry_records import DecisionRecord, ReportRecord

__all__ = ["FIELDS", "HISTORY_COLUMNS", "QUARANTINE_COLUMNS", "RECORDS", "columns_of"]

RECORDS: dict[str, type[msgspec.Struct]] = {"report": ReportRecord, "decision": DecisionRecord}
"""Kinds of records that become rows of the history."""
PASSED_OVER = frozenset({"work_windows", "slots_second", "slots_open"})
"""Figures for the leader's next decisions, from which nothing is learnt later: 24 numbers per partition, where in a
slot its work came, and slots that the next report tells for good."""
VERSION = "v"
"""A record's format, told once a row: not again in what a record holds."""
INT_MAX = 2**31 - 1


def columns_of(records: dict[str, type[msgspec.Struct]], passed_over: frozenset[str] = PASSED_OVER) -> str:
    """Return the columns that hold records of several kinds, as DDL.

    Args:
        records: kind -> type of record.
        passed_over: fields without a column.

    Raises:
        ValueError: two kinds have a field of one name and two types, so that no column can hold both.
    """
    columns = {"kind": "string"}
    for record in records.values():
        for name, column in _fields(inspect.type_info(record), passed_over).items():
            if columns.setdefault(name, column) != column:
                raise ValueError(f"{name} is {columns[name]} in one kind of record and {column} in another")
    return _listed(columns, " ")


def _fields(record: inspect.Type, passed_over: frozenset[str]) -> dict[str, str]:
    assert isinstance(record, inspect.StructType)
    return {f.encode_name: _column(f.type, passed_over) for f in record.fields if f.encode_name not in passed_over}


def _column(written: inspect.Type, passed_over: frozenset[str]) -> str:
    """Return the type of the column that holds values of a type."""
    match written:
        case inspect.UnionType(types=types):
            (told,) = (one for one in types if not isinstance(one, inspect.NoneType))
            return _column(told, passed_over)
        case inspect.IntType(le=most):
            return "int" if most is not None and most <= INT_MAX else "bigint"
        case inspect.FloatType():
            return "double"
        case inspect.BoolType():
            return "boolean"
        case inspect.StrType():
            return "string"
        case inspect.VarTupleType(item_type=item):
            return f"array<{_column(item, passed_over)}>"
        case inspect.TupleType():
            # JSON has one kind of number, and a row of an array one type.
            return "array<double>"
        case inspect.DictType(value_type=item):
            return f"map<string, {_column(item, passed_over)}>"
        case inspect.StructType():
            return f"struct<{_listed(_fields(written, passed_over | {VERSION}), ': ')}>"
    raise ValueError(f"no column holds {written}")


def _listed(columns: dict[str, str], separator: str) -> str:
    return ", ".join(f"`{name}`{separator}{column}" for name, column in columns.items())


FIELDS = columns_of(RECORDS)
"""Columns that the records themselves have."""
HISTORY_COLUMNS = f"date date, {FIELDS}, topic string, offset bigint, appended double, ingest string"
"""Schema of the history as DDL. ``date`` is the UTC day of ``at``; ``appended`` the broker's time, seconds."""
QUARANTINE_COLUMNS = (
    "topic string, partition int, offset bigint, appended double, quarantined_for string, key binary, value binary, "
    "ingest string"
)
"""Schema of the quarantine as DDL: the record as it was, and why it is no row of the history."""
