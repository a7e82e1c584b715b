"""``python -m benchmarks [NAME ...] [--quick] [--json] [--list] [--changed]``."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
import traceback
from pathlib import Path

import msgspec

from .suite import (
    bench_crash,
    bench_forecast,
    bench_idle,
    bench_large,
    bench_log_records,
    bench_measuring,
    bench_membership,
    bench_memory,
    bench_move,
    bench_packers,
    bench_planner,
    bench_programs,
    bench_simulator,
    bench_sliced,
    bench_slices_cost,
    bench_soak,
    bench_spark,
    bench_steady,
    bench_step,
    bench_takeover,
    bench_throughput,
    bench_trace,
    bench_unmoved,
    bench_user_code,
    bench_wide,
    page,
    results,
)
from .suite.results import merge, render_text
from .suite.suite import Benchmark, BenchmarkChoice, measure

SPARK = (bench_spark.INGEST, bench_spark.BASELINES, bench_forecast.FORECAST, bench_forecast.STEEP)
"""Listed and run only where pyspark is installed."""
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        bench_move.BENCHMARK,
        bench_takeover.BENCHMARK,
        bench_user_code.BENCHMARK,
        bench_unmoved.BENCHMARK,
        bench_membership.BENCHMARK,
        bench_crash.BENCHMARK,
        bench_throughput.BENCHMARK,
        bench_slices_cost.BENCHMARK,
        bench_wide.BENCHMARK,
        bench_memory.BENCHMARK,
        bench_idle.BENCHMARK,
        bench_large.BENCHMARK,
        bench_log_records.BENCHMARK,
        bench_measuring.BENCHMARK,
        bench_packers.BENCHMARK,
        bench_packers.GRID,
        bench_planner.BENCHMARK,
        bench_simulator.BELIEVABLE,
        bench_simulator.SPEED,
        bench_step.BENCHMARK,
        bench_steady.BENCHMARK,
        bench_soak.BENCHMARK,
        bench_programs.BENCHMARK,
        bench_sliced.BENCHMARK,
        bench_trace.CLOSER24,
        bench_trace.OBJECTIVE_STRICT,
        bench_trace.OBJECTIVE,
        *(SPARK if importlib.util.find_spec("pyspark") else ()),
    )
}


def names_apart() -> str:
    """Return the names of the benchmarks that are too long to be some of all."""
    return " and ".join(name for name, each in BENCHMARKS.items() if each.by_name_only)


def changed() -> int:
    """Tell the state of each published run. Returns 1 where the page does not say that a run's code has changed."""
    known = {**BENCHMARKS, **{benchmark.name: benchmark for benchmark in SPARK}}
    lines, unmarked = page.compared(page.runs_of(page.PAGE.read_text()), known)
    print("\n".join(lines))
    for name in unmarked:
        print(
            f"{name} was measured with other code: measure it again, or write `changed` into its row", file=sys.stderr
        )
    return 1 if unmarked else 0


def main() -> int:
    """Run benchmarks. Returns the exit code: 0 all ran, 1 one failed, 2 wrong use.

    A target that is missed is no failure, but with ``--strict``.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; none: all but {names_apart()}"
    )
    parser.add_argument("--quick", action="store_true", help="a fraction of the time; printed only, nothing is written")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--list", action="store_true", help="tell what there is and how long it takes")
    parser.add_argument("--minutes", type=float, metavar="M", help="length of the soak (default: 60)")
    parser.add_argument("--parts", nargs="+", default=(), metavar="PART", help="of programs: cells, as gather/1.5")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of sliced: runs of each part (default: 1)")
    parser.add_argument("--seed", type=int, help="of loads that are drawn (default: drawn too, and printed)")
    parser.add_argument("--strict", action="store_true", help="end with 1 where a target is missed")
    parser.add_argument("--out", type=Path, help="write results and table there instead of out/")
    parser.add_argument("--keep", type=Path, help="keep the scratch directories there")
    parser.add_argument(
        "--changed", action="store_true", help="tell which figures of docs/results.md are of code that has changed"
    )
    options = parser.parse_args()
    if options.changed:
        return changed()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        spark = "; those of Spark come with `make bench-spark`" if importlib.util.find_spec("pyspark") is None else ""
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(BENCHMARKS)}{spark}")
    every = [name for name, each in BENCHMARKS.items() if not each.by_name_only]
    chosen = [BENCHMARKS[name] for name in options.names or (BENCHMARKS if options.list else every)]
    if options.list:
        for each in chosen:
            print(f"{each.name:<12} {each.seconds:>5} s  quick {each.quick_seconds:>4} s  {each.title}")
        return 0
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: nothing would be measured; give at least 1")
    choice = BenchmarkChoice(options.quick, options.minutes, tuple(options.parts), options.seed, options.runs)
    results.ORDER[:] = list(BENCHMARKS)
    directory = options.out or (None if options.quick else results.OUT)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    failed = 0
    for benchmark in chosen:
        print(f"# {benchmark.name} ...", file=sys.stderr, flush=True)
        try:
            result = asyncio.run(measure(benchmark, choice, options.keep))
        except Exception:
            traceback.print_exc()
            failed += 1
            continue
        print(msgspec.json.encode(result).decode() if options.json else render_text(result), flush=True)
        if directory is not None:
            merge(result, directory)
        missed = [figure.name for figure in result.figures if figure.met is False]
        if options.strict and missed:
            print(f"{benchmark.name} missed its targets: {'; '.join(missed)}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
