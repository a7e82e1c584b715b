"""Runs groups of our members on brokers of several Kafka versions.

    python tests/compat/versions.py [VERSION ...]

For each version a broker of it is fetched once and started, and the tests below run on it: members as processes that
come, go, hand partitions over, are killed and frozen; plain aiokafka members beside them; members of the consumer
protocol (KIP-848) where the broker has it; planned moves, transactions, and what Kafka's tools show.

Prints the tests that failed and a table. Exit codes: 0 all passed or were skipped with a reason, 1 something failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.9.1", "4.0.1", "4.1.1")
TESTS = (
    "tests/chaos/test_members.py",
    "tests/chaos/test_migration.py",
    "tests/integration/test_moves.py",
    "tests/integration/test_guarantees.py",
    "tests/integration/test_consumer_protocol.py",
    "tests/integration/test_exactly_once.py",
    "tests/integration/test_kafka_tools.py",
)
RUN_SECONDS_MAX = 1800


class Run(NamedTuple):
    """The tests on one version."""

    version: str
    counts: Counter[str]
    """Outcome -> tests."""
    seconds: float
    skipped: frozenset[str]
    """Reasons."""

    @property
    def well(self) -> bool:
        """Return whether nothing failed and something passed."""
        return not self.counts["failed"] and self.counts["passed"] > 0


def main(arguments: list[str]) -> int:
    """Run all versions, print the table."""
    runs = [run(version) for version in arguments or VERSIONS]
    print("| Kafka | passed | skipped | failed | s |\n|---|---|---|---|---|")
    for each in runs:
        passed, skipped, failed = (each.counts[outcome] for outcome in ("passed", "skipped", "failed"))
        print(f"| {each.version} | {passed} | {skipped} | {failed} | {each.seconds:.0f} |")
    for reason in sorted(frozenset().union(*(each.skipped for each in runs))):
        print(f"skipped: {reason}")
    return 0 if all(each.well for each in runs) else 1


def run(version: str) -> Run:
    """Run the tests on one version."""
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "results.xml"
        command = [sys.executable, "-m", "pytest", *TESTS, "-q", "--tb=short", f"--junitxml={found}"]
        environment = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP"}
        environment["LOADTRIM_KAFKA_VERSION"] = version
        subprocess.run(command, cwd=PROJECT, env=environment, timeout=RUN_SECONDS_MAX, check=False)
        suite = ElementTree.parse(found).getroot().find("testsuite")
    assert suite is not None, "pytest writes one"
    counts, skipped = Counter[str](), set[str]()
    for case in suite.iter("testcase"):
        reason = case.find("skipped")
        if reason is not None:
            skipped.add(f"{version}: {reason.get('message', '')}")
        failed = case.find("failure") is not None or case.find("error") is not None
        counts["failed" if failed else "skipped" if reason is not None else "passed"] += 1
    return Run(version, counts, float(suite.get("time", "0")), frozenset(skipped))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
