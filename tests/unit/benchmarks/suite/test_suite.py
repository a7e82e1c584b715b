"""Every benchmark that throws something away says so in its setting."""

from __future__ import annotations

import re

from architecture.tree import ROOT

SUITE = ROOT / "benchmarks" / "suite"
WARM = re.compile(r"^(?:WARM|SETTLE|FIRST)_?\w*(?:, \w+)* = ", re.MULTILINE)
"""Constants that say what does not count."""


def test_what_a_benchmark_throws_away_stands_in_its_setting() -> None:
    throwing = {path.name for path in SUITE.glob("bench_*.py") if WARM.search(path.read_text())}
    assert {"bench_move.py", "bench_takeover.py", "bench_membership.py", "bench_spark.py", "bench_step.py"} < throwing
    assert [name for name in sorted(throwing) if "hrown away" not in (SUITE / name).read_text()] == []
