"""How good baselines are, by the very command that users have: judged on recorded loads, played on a generated one."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.datasets import DATA_VARIABLE, TAXI_NAME, WORLD_CUP_NAME, data_file

from .results import Figure
from .suite import PIPELINE, SIMULATOR, Benchmark, BenchmarkContext, Finding

__all__ = ["FORECAST", "STEEP"]


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
    file=TAXI_NAME,
    words="taxi rides in New York, November to January, storm and holidays included",
    first="2014-11-01",
    end="2015-02-01",
    end_quick="2014-11-08",
    bucket_minutes=30,
    is_target=True,
)
"""Nothing was chosen by these months (docs/decisions/baselines.md)."""
WORLD_CUP = Recorded(
    name="World Cup",
    file=WORLD_CUP_NAME,
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
STEEP_DAYS = (("2026-11-16", "2026-11-17"), ("2026-11-17", "2026-11-18"))
"""A Monday and a Tuesday: what is known at the one's midnight is of a weekend, at the other's of a day like it."""
STEEP_LATE_MAX = 0.1
"""Times the late records without baselines."""
STEEP_MORE_MAX = 10.0
"""Percent of the replica-minutes without."""


async def run(context: BenchmarkContext) -> Finding:
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
    answer = await _backtest(
        "--trace", str(path), "--from", load.first, "--to", end, "--bucket-minutes", str(load.bucket_minutes)
    )  # fmt: skip
    scores: list[dict[str, Any]] = answer["scores"]
    return scores


async def _backtest(*options: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "loadtrim_spark", "backtest", *options, "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {process.returncode}; it says why above")
    found: dict[str, Any] = json.loads(answer)
    return found


async def run_steep(context: BenchmarkContext) -> Finding:
    """Whole days, each in a Spark and a simulator of its own, at once; ``quick``: one, with a fifth of the records."""
    days, peak = (STEEP_DAYS[:1], "1") if context.quick else (STEEP_DAYS, "5")
    options = ("--generated", "steep", "--play", "1", "--peak-replicas", peak, "--master", "local[1]")
    answers = await asyncio.gather(*(_backtest(*options, "--from", begin, "--to", end) for begin, end in days))
    played = [answer["played"][0] for answer in answers]
    return Finding(
        setting="Whole days of the generated load with steep rises, each played with what Spark would have published "
        "at its midnight, and without; a start-up of 60 s, W = 5 s, 99.9 % asked for.",
        figures=tuple(_steep_figures(played)),
        notes=tuple(_steep_note(day[0], each) for day, each in zip(days, played, strict=True)),
        details={"played": played},
    )


def _steep_figures(played: list[dict[str, Any]]) -> list[Figure]:
    with_them, without = (
        {name: sum(each[side][name] for each in played) for name in ("late", "arrived", "replica_minutes")}
        for side in ("with", "without")
    )
    return [
        Figure(
            name="steep rises: late records, times those without baselines",
            value=with_them["late"] / without["late"],
            at_most=STEEP_LATE_MAX,
            peer=f"{with_them['late']:,} beside {without['late']:,} of {without['arrived']:,}",
        ),
        Figure(
            name="steep rises: replica-minutes beside those without",
            value=(with_them["replica_minutes"] / without["replica_minutes"] - 1) * 100,
            unit="%",
            at_most=STEEP_MORE_MAX,
            peer=f"{with_them['replica_minutes']:,.0f} beside {without['replica_minutes']:,.0f}",
        ),
    ]


def _steep_note(day: str, played: dict[str, Any]) -> str:
    with_them, without = played["with"], played["without"]
    more = with_them["replica_minutes"] / without["replica_minutes"] - 1
    return f"{day}: {with_them['late']:,} late beside {without['late']:,}, {more * 100:+.1f} % replica-minutes"


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
    name="spark-forecast", title="Spark: how good baselines are", run=run, seconds=240, quick_seconds=90,
    needs_kafka=False, measures=PIPELINE,
)  # fmt: skip
STEEP = Benchmark(
    name="spark-steep", title="Spark: what baselines save where the load rises steeply", run=run_steep, seconds=3000,
    quick_seconds=300, needs_kafka=False, measures=(*PIPELINE, *SIMULATOR),
)  # fmt: skip
