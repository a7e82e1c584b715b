"""Exports of monitors and other programs, made into tables: Prometheus' JSON, JSON objects, a column per series.

A table has a row for each time and series. What its columns mean is :mod:`.tables`' part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .amounts import looks_like_series
from .load import LoadFileError
from .tables import COLUMNS, Table, check_names

__all__ = ["is_prometheus", "json_table", "melted", "prometheus_table"]

_LABEL = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_HINT = "export a range of times (query_range) whose values are records, or records per second"


def is_prometheus(document: Any) -> bool:
    """Return whether a JSON document is an answer of Prometheus' HTTP API."""
    return isinstance(document, dict) and "status" in document and ("data" in document or "error" in document)


def prometheus_table(path: Path, document: Mapping[str, Any]) -> Table:
    """Return the rows of an answer of ``query_range``: a row for each time of each series.

    Raises:
        LoadFileError: it is an error, of one moment only, empty, or has histograms.
    """
    if document["status"] != "success":
        raise LoadFileError(
            f"{path} is an answer of Prometheus that says {document.get('error', document['status'])!r}, so there is "
            f"no load in it; {_HINT}."
        )
    data = document.get("data")
    data = data if isinstance(data, dict) else {}
    kind, result = data.get("resultType"), data.get("result")
    if kind != "matrix" or not isinstance(result, list):
        raise LoadFileError(
            f"{path} is an answer of Prometheus with a result of the kind {kind!r}, which tells no course of time; "
            f"{_HINT}."
        )
    labels, points = [], []
    for number, series in enumerate(result, 1):
        metric = series.get("metric", {}) if isinstance(series, dict) else None
        values = series.get("values") if isinstance(series, dict) else None
        if not isinstance(metric, dict) or not isinstance(values, list) or not all(map(_is_point, values)):
            raise LoadFileError(
                f"{path}: series {number} has no list of (time, value), so it is not known what arrived; {_HINT}."
            )
        labels.append({str(name): str(value) for name, value in metric.items()})
        points.append(values)
    names = sorted({each.get("__name__", "value") for each in labels})
    if len(names) > 1:
        raise LoadFileError(
            f"{path} has series of unlike metrics ({', '.join(names[:5])}), so that adding them up would count records "
            "more than once; export one metric."
        )
    return _of_series(path, "value", labels, points, names[0] if names else "value")


def _is_point(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _of_series(
    path: Path, unit: str, labels: Sequence[Mapping[str, str]], points: Sequence[Sequence[Sequence[Any]]], name: str
) -> Table:
    """Return a table of series; where all of them tell their partition it is theirs, else they are added up."""
    placed = bool(labels) and all(each.get("partition", "").isdecimal() for each in labels)
    topics = placed and all(each.get("topic") for each in labels)
    names = ["time", name.lower(), *(["partition"] if placed else []), *(["topic"] if topics else [])]
    rows: list[tuple[int, tuple[Any, ...]]] = []
    series: list[int] = []
    for at, values in enumerate(points):
        told = labels[at]
        for time, value in values:
            partition = [told["partition"]] if placed else []
            rows.append((len(rows) + 1, (time, value, *partition, *([told["topic"]] if topics else []))))
            series.append(at)
    return Table(path, unit, names, rows, value=names[1], series=series, titles=("time", name))


def melted(table: Table) -> Table:
    """Return a table whose columns are a time and series, as Grafana exports it, with a row for each series.

    Any other table is returned as it is.
    """
    times = [at for at, name in enumerate(table.names) if name in COLUMNS["time"]]
    others = [at for at in range(len(table.names)) if at not in times]
    titles = table.titles or table.names
    known = {name for names in COLUMNS.values() for name in names}
    if table.value or len(times) != 1 or not others or any(table.names[at] in known for at in others):
        return table
    if not all(looks_like_series(table.names[at]) for at in others):
        return table
    labels = [dict(_LABEL.findall(titles[at])) for at in others]
    points = [[(values[times[0]], values[at]) for _, values in table.rows] for at in others]
    made = _of_series(table.path, table.unit, labels, points, titles[others[0]])
    numbers = [number for _ in others for number, _ in table.rows]
    rows = [(number, values) for number, (_, values) in zip(numbers, made.rows, strict=True)]
    return Table(table.path, table.unit, made.names, rows, value=made.value, series=made.series, titles=made.titles)


def json_table(path: Path, objects: Sequence[Any], unit: str) -> Table | None:
    """Return the table of a list of flat JSON objects with a time each; None: they are none.

    Args:
        path: for messages.
        objects: as decoded.
        unit: the word for one of them in messages.

    Raises:
        LoadFileError: they have unlike names.
    """
    if not objects or not all(isinstance(each, dict) and not _deep(each) for each in objects):
        return None
    names = list(objects[0])
    if not any(name.lower() in COLUMNS["time"] for name in names) or "kind" in names:
        return None
    rows = []
    for number, each in enumerate(objects, 1):
        if set(each) != set(names):
            raise LoadFileError(
                f"{path}, {unit} {number} has the names {', '.join(map(repr, each))}, and the first one "
                f"{', '.join(map(repr, names))}, so it is not known what it tells; give each object the same names."
            )
        rows.append((number, tuple(each[name] for name in names)))
    lower = [name.lower() for name in names]
    check_names(path, lower)
    return Table(path, unit, lower, rows, titles=names)


def _deep(each: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict | list) for value in each.values())
