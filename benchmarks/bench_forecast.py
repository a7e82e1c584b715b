"""How good baselines are: of recorded loads, judged day by day by the very command that users have."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorded import DATA_VARIABLE, data_file

from .results import Figure
from .suite import Benchmark, Context, Finding

__all__ = ["FORECAST"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded load and the days that are judged."""

    name: str
    file: str
    words: str
    first: str
    end: str
    end_quick: str
    bucket_minutes: int
    is_target: bool = False


TAXI = Recorded(
    name="taxi",
    file="nab_nyc_taxi_30min.csv",
    words="taxi rides in New York, November to January, storm and holidays included",
    first="2014-11-01",
    end="2015-02-01",
    end_quick="2014-11-08",
    bucket_minutes=30,
    is_target=True,
)
"""Nothing was chosen by these months (decisions 31 and 37)."""
WORLD_CUP = Recorded(
    name="World Cup",
    file="worldcup98_per_minute.csv.gz",
    words="requests to the World Cup's site of 1998, the weeks with matches: no choice was made by them",
    first="1998-06-10",
    end="1998-07-12",
    end_quick="1998-06-12",
    bucket_minutes=15,
)
P90_COVERAGE = (87.0, 93.0)
"""Percent."""
PINBALL_BESIDE_NAIVE_MAX = -20.0
"""Percent."""


async def run(context: Context) -> Finding:
    """Each load by ``python -m loadtrim_spark backtest``; what is not there is told."""
    figures: list[Figure] = []
    notes = []
    for load in (TAXI, WORLD_CUP):
        path = data_file(load.file)
        if path is None:
            notes.append(f"{load.file} is not there (see {DATA_VARIABLE}): not judged")
            continue
        end = load.end_quick if context.quick else load.end
        figures += _figures(load, await _scores(path, load, end))
        notes.append(f"{load.file}: {load.words}; {load.first} to {end}, {load.bucket_minutes} minutes a bucket")
    return Finding(
        setting="Learnt at each midnight from the six weeks before it, judged on every count of the day after. "
        "Seasonal-naive: the rate of a week ago, with factors of its own for the quantiles.",
        figures=tuple(figures),
        notes=tuple(notes),
    )


async def _scores(path: Path, load: Recorded, end: str) -> list[dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtrim_spark", "backtest", "--trace", str(path), "--from", load.first, "--to", end,
        "--bucket-minutes", str(load.bucket_minutes), "--json", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answer, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"backtest of {path.name} ended with {process.returncode}; it says why above")
    scores: list[dict[str, Any]] = json.loads(answer)["scores"]
    return scores


def _figures(load: Recorded, scores: list[dict[str, Any]]) -> list[Figure]:
    covered = {score["quantile"]: 100 * score["coverage"] for score in scores if score["method"] == "baseline"}
    naive = _loss(scores, "seasonal_naive")
    beside = {method: _loss(scores, method) / naive * 100 - 100 for method in ("baseline", "last_value", "none")}
    low, high = P90_COVERAGE if load.is_target else (None, None)
    return [
        Figure(name=f"{load.name}: counts not above p50", value=covered[0.5], unit="%"),
        Figure(name=f"{load.name}: counts not above p90", value=covered[0.9], unit="%", at_least=low, at_most=high),
        Figure(name=f"{load.name}: counts not above p99", value=covered[0.99], unit="%"),
        Figure(
            name=f"{load.name}: pinball loss beside seasonal-naive's",
            value=beside["baseline"],
            unit="%",
            at_most=PINBALL_BESIDE_NAIVE_MAX if load.is_target else None,
            peer=f"the bucket before {beside['last_value']:+.0f} %, the mean {beside['none']:+.0f} %",
        ),
    ]


def _loss(scores: list[dict[str, Any]], method: str) -> float:
    return sum(float(score["pinball"]) for score in scores if score["method"] == method)


FORECAST = Benchmark(
    name="spark-forecast", title="Spark: how good baselines are", run=run, seconds=400, quick_seconds=120,
    needs_kafka=False,
)  # fmt: skip
