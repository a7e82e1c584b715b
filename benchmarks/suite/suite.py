"""What every benchmark is given, and what it gives back."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.code_state import commit_now
from benchmarks.run_cache import machine
from loadtrim.testing import Cluster, LocalKafka, any_kafka

from .results import BenchmarkResult, Figure, stamp

__all__ = [
    "CONSUMER",
    "PIPELINE",
    "PLANNING",
    "PRODUCT",
    "READER",
    "SIMULATOR",
    "WITHOUT",
    "Benchmark",
    "BenchmarkChoice",
    "BenchmarkContext",
    "Finding",
    "measure",
]


@dataclass(frozen=True, slots=True)
class BenchmarkContext:
    """Where and how long to measure."""

    quick: bool
    scratch: Path
    """A directory of this benchmark's own."""
    kafka: Cluster | None = None
    """None: the benchmark needs none."""
    minutes: float | None = None
    """Length that was asked for, of benchmarks that can be of any; None: theirs."""
    parts: tuple[str, ...] = ()
    """Parts that were asked for, of benchmarks that have some; empty: all."""
    seed: int | None = None
    """Of random loads; None: drawn, and told."""
    runs: int = 1
    """Number of runs of each part, of benchmarks whose parts are whole runs: medians are told, and the worst."""

    def cluster(self) -> Cluster:
        assert self.kafka is not None
        return self.kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one benchmark measured."""

    figures: tuple[Figure, ...]
    setting: str = ""
    notes: tuple[str, ...] = ()
    details: dict[str, Any] | None = None


WITHOUT = ":(exclude)"
"""Before a path, as git takes it: what lies below it is not measured."""
PRODUCT = ("agent/loadtrim_agent", "consumer_sdk/loadtrim", "examples/payments")
CONSUMER = (*PRODUCT, f"{WITHOUT}consumer_sdk/loadtrim/simulate")
READER = (*CONSUMER, f"{WITHOUT}consumer_sdk/loadtrim/cli", f"{WITHOUT}agent/loadtrim_agent/planning")
"""Of a consumer that is alone: what is decided takes no part of its time that could be seen."""
PLANNING = ("agent/loadtrim_agent/common", "agent/loadtrim_agent/planning")
SIMULATOR = (*PLANNING, "agent/loadtrim_agent/metering", "consumer_sdk/loadtrim/simulate")
PIPELINE = ("agent/loadtrim_agent/wire", "spark/loadtrim_spark")
"""Files and folders that benchmarks measure, from the repository's root on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One target."""

    name: str
    title: str
    run: Callable[[BenchmarkContext], Awaitable[Finding]]
    seconds: int
    """About how long it takes on two free cores."""
    quick_seconds: int
    needs_kafka: bool = True
    by_name_only: bool = False
    """Too long to be one of all."""
    measures: tuple[str, ...] = CONSUMER
    """A figure is of older code once one of these has changed."""

    @property
    def code(self) -> tuple[str, ...]:
        """The files and folders that are measured, and the module that measures them."""
        run = self.run.func if isinstance(self.run, partial) else self.run
        return (*self.measures, f"{run.__module__.replace('.', '/')}.py")


@dataclass(frozen=True, slots=True)
class BenchmarkChoice:
    """The choices of the command line, beside which benchmark."""

    quick: bool = False
    minutes: float | None = None
    parts: tuple[str, ...] = ()
    seed: int | None = None
    runs: int = 1

    def words(self) -> list[str]:
        """Return it as it is typed."""
        return [
            *(["--quick"] if self.quick else []),
            *([f"--minutes {self.minutes:g}"] if self.minutes is not None else []),
            *([f"--parts {' '.join(self.parts)}"] if self.parts else []),
            *([f"--seed {self.seed}"] if self.seed is not None else []),
            *([f"--runs {self.runs}"] if self.runs != 1 else []),
        ]


async def measure(benchmark: Benchmark, choice: BenchmarkChoice, keep: Path | None = None) -> BenchmarkResult:
    """Run one benchmark on a fresh broker and in a scratch directory that is removed afterwards."""
    load_average, commit = os.getloadavg()[0], commit_now()
    begun = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f"bench-{benchmark.name}-", dir=keep))
    try:
        needed = any_kafka(partial(LocalKafka, heap_mb=1024)) if benchmark.needs_kafka else contextlib.nullcontext()
        with needed as kafka:
            found = await benchmark.run(
                BenchmarkContext(choice.quick, scratch, kafka, choice.minutes, choice.parts, choice.seed, choice.runs)
            )
    finally:
        if keep is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return BenchmarkResult(
        name=benchmark.name,
        title=benchmark.title,
        command=" ".join([f"python -m benchmarks {benchmark.name}", *choice.words()]),
        at=stamp(),
        seconds=round(time.monotonic() - begun, 1),
        machine=machine(),
        load_average=round(load_average, 2),
        commit=commit,
        code=benchmark.code,
        quick=choice.quick,
        figures=found.figures,
        setting=found.setting,
        notes=found.notes,
        details=found.details or {},
    )
