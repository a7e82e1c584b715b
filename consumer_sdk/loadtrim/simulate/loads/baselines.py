"""Baselines from a file: what the history expects, for a leader in the simulator."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

from loadtrim_agent.wire.baseline_records import BaselineRecord, decode_baseline
from loadtrim_agent.wire.envelope import UnreadableRecord

from .load import LoadFileError, WrongLoadError

__all__ = ["parse_moment", "read_baselines"]


def read_baselines(path: Path) -> tuple[BaselineRecord, ...]:
    """Read the values of the baseline topic from a file, one JSON object a line, in the order of the topic.

    Returns:
        The records of whole topics; of one topic the last. Those of partitions and groups are not needed.

    Raises:
        LoadFileError: it is not there, a line cannot be read, or two groups have the same topic.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise LoadFileError(
            f"{path} cannot be read ({error.strerror}), so nothing is expected; check the name."
        ) from None
    found: dict[str, BaselineRecord] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = decode_baseline(line)
        except UnreadableRecord as error:
            raise LoadFileError(
                f"{path}, line {number}: this is no baseline ({error}); write one value of the baseline topic a line."
            ) from None
        if record is None:
            continue
        if (known := found.get(record.topic)) is not None and known.group != record.group:
            raise LoadFileError(
                f"{path}, line {number}: the topic {record.topic!r} is there for the groups {known.group!r} and "
                f"{record.group!r}, and one group is simulated; leave the lines of the other out."
            )
        found[record.topic] = record
    if not found:
        raise LoadFileError(f"{path} has no baseline of a whole topic, so nothing is expected; name another file.")
    return tuple(found.values())


def parse_moment(text: str) -> float:
    """Seconds since the epoch, from such a number or a date like ``2024-05-01 12:30:00`` (UTC where it says no zone).

    Raises:
        WrongLoadError: it is neither.
    """
    try:
        moment = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text.strip())
        except ValueError:
            date = None
        moment = math.nan if date is None else (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(moment):
        raise WrongLoadError(
            f"{text!r} is no moment, so it is not known when the load began; write it like 2024-05-01T12:30:00+02:00, "
            "or as seconds since the epoch."
        )
    return moment
