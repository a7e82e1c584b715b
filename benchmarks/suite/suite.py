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

from benchmarks.run_cache import machine
from loadtrim.testing import Cluster, LocalKafka, any_kafka

from .results import BenchmarkResult, Figure, stamp

__all__ = ["Benchmark", "BenchmarkContext", "Finding", "measure"]


@dataclass(frozen=True, slots=True)
class BenchmarkContext:
    """Where and how long to measure."""

    quick: bool
    scratch: Path
    """A directory of this benchmark's own."""
    kafka: Cluster | None = None
    """None: the benchmark needs none."""

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


async def measure(benchmark: Benchmark, *, quick: bool, keep: Path | None = None) -> BenchmarkResult:
    """Run one benchmark on a fresh broker and in a scratch directory that is removed afterwards."""
    load_average = os.getloadavg()[0]
    begun = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f"bench-{benchmark.name}-", dir=keep))
    try:
        needed = any_kafka(partial(LocalKafka, heap_mb=1024)) if benchmark.needs_kafka else contextlib.nullcontext()
        with needed as kafka:
            found = await benchmark.run(BenchmarkContext(quick, scratch, kafka))
    finally:
        if keep is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return BenchmarkResult(
        name=benchmark.name,
        title=benchmark.title,
        command=f"python -m benchmarks {benchmark.name}{' --quick' if quick else ''}",
        at=stamp(),
        seconds=round(time.monotonic() - begun, 1),
        machine=machine(),
        load_average=round(load_average, 2),
        quick=quick,
        figures=found.figures,
        setting=found.setting,
        notes=found.notes,
        details=found.details or {},
    )
