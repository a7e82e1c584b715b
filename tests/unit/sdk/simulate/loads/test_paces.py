"""How long rows last where partitions or series have times of their own, and where they only miss common ones."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from loadtrim.simulate.loads.load import Load, LoadFileError
from loadtrim.simulate.loads.readers import read_load

BEGIN = 1_714_564_800

Line = list[tuple[float, float]]
"""Time and rate of each row."""


def of_series(tmp_path: Path, *lines: Line) -> Load:
    result = [
        {"metric": {"pod": str(at)}, "values": [[BEGIN + time, str(rate)] for time, rate in line]}
        for at, line in enumerate(lines)
    ]
    path = tmp_path / "range.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    return read_load(path)


def of_partitions(tmp_path: Path, *lines: Line, name: str = "records_per_second") -> Load:
    rows = sorted((time, at, rate) for at, line in enumerate(lines) for time, rate in line)
    path = tmp_path / "load.csv"
    path.write_text(f"time,partition,{name}\n" + "".join(f"{time},{at},{rate}\n" for time, at, rate in rows))
    return read_load(path)


def every(step: float, begin: float = 0.0, rows: int = 5, rate: float = 10.5) -> Line:
    return [(begin + step * number, rate) for number in range(rows)]


@pytest.mark.parametrize("read", [of_series, of_partitions], ids=["series", "partitions"])
@pytest.mark.parametrize(
    "lines",
    [
        (every(15), every(15, 7)),
        (every(15), every(15, 7.5)),
        (every(15), every(15, 0.5)),
        (every(15), every(15), every(15, 7)),
        (every(15, rows=9), every(60, 7, rows=3)),
        (every(15), every(15, 4), every(15, 11), every(15, 13, rows=1)),
    ],
    ids=["by 7 s", "by half", "by half a second", "one of three", "of unlike steps", "one row alone"],
)
def test_rates_at_times_of_their_own_last_until_the_next_one_of_the_same(
    tmp_path: Path, read: object, lines: tuple[Line, ...]
) -> None:
    made = read(tmp_path, *lines)  # type: ignore[operator]
    lasting = [line[1][0] - line[0][0] if len(line) > 1 else 15 for line in lines]
    assert sum(made.per_second) == pytest.approx(sum(10.5 * len(line) * lasting[at] for at, line in enumerate(lines)))
    assert any(f"{len(lines)} series or partitions have rows at times of their own" in note for note in made.notes)
    assert made.read_as is not None
    assert made.read_as.step_seconds == 15 or len(lines[1]) == 3


def test_so_they_do_where_no_distance_is_like_another(tmp_path: Path) -> None:
    rng = Random(5)
    lines = []
    for begin in (0.0, 7.0):
        times = [begin]
        for _ in range(20):
            times.append(round(times[-1] + rng.uniform(12.0, 18.0), 3))
        lines.append([(time, 10.5) for time in times])
    made = of_series(tmp_path, *lines)
    seconds = [line[-1][0] + line[-1][0] - line[-2][0] - line[0][0] for line in lines]
    assert sum(made.per_second) == pytest.approx(10.5 * sum(seconds))


def test_a_missing_row_of_one_that_has_times_of_its_own_is_a_gap(tmp_path: Path) -> None:
    second = [each for each in every(15, 7) if each[0] != 37]
    made = of_series(tmp_path, every(15), second)
    assert sum(made.per_second) == pytest.approx(10.5 * 15 * 9)
    assert "1 of 10 steps of 15 s are missing and count as no load" in made.notes


@pytest.mark.parametrize(
    "second",
    [
        [(60, 10.5), (180, 10.5), (420, 10.5)],
        [(120, 10.5), (240, 10.5), (360, 10.5)],
        every(60, 300, rows=9),
        every(120, 300),
    ],
    ids=["some", "every other one", "from then on", "every other one from then on"],
)
def test_a_partition_without_a_row_at_a_common_time_has_no_load_there(tmp_path: Path, second: Line) -> None:
    made = of_partitions(tmp_path, every(60, rows=8), second)
    assert sum(made.per_second) == pytest.approx(10.5 * 60 * (8 + len(second)))
    assert not any("of their own" in note for note in made.notes)


def test_records_of_single_moments_stay_at_these(tmp_path: Path) -> None:
    rng = Random(3)
    lines: list[Line] = [[], [], []]
    at = 0.0
    for _ in range(200):
        at += rng.uniform(0.1, 1.0)
        rng.choice(lines).append((round(at, 3), 1))
    made = of_partitions(tmp_path, *lines, name="records")
    assert made.arrivals == "recorded"
    assert sum(made.per_second) == pytest.approx(200)


def test_whole_numbers_are_asked_about_with_the_step_of_a_series(tmp_path: Path) -> None:
    with pytest.raises(LoadFileError, match=r"rows are 15 s apart, .*\(20.0/s on average\) or the records of 15 s"):
        of_series(tmp_path, every(15, rate=10), every(15, 7, rate=10))
