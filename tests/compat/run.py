"""Runs aiokafka's own consumer tests against ``loadtrim.Consumer``: the yardstick of "drop-in".

    python tests/compat/run.py --aiokafka DIR [--client aiokafka] [-k EXPRESSION]

``DIR`` is a checkout of aiokafka of the version that is installed. Nothing is written there: its test modules are
copied to a temporary directory, beside a ``conftest.py`` of ours. The broker is a local one.

Prints one line per test, with the reason where a failure is expected (:mod:`differences`), and the count. Exit codes:
0 what was expected, 1 something else (a test that should pass failed, or the other way round), 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import aiokafka
from differences import BASELINE, DIFFERENCES, Difference

from loadtrim.testing import LocalKafka

HERE = Path(__file__).parent
MODULES = ("test_consumer.py", "test_pep492.py", "test_transactional_consumer.py")
SUPPORT = ("__init__.py", "_testutil.py")
BROKER = {"auto.create.topics.enable": "true", "num.partitions": "2"}
"""As the image has it that aiokafka's own tests run against."""
TEST_SECONDS_MAX = 120
RUN_SECONDS_MAX = 1800


@dataclass(frozen=True, slots=True)
class Result:
    """How one test ended: ``passed``, ``failed`` or ``skipped``."""

    name: str
    outcome: str
    message: str = ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests/compat/run.py", description=__doc__.splitlines()[0])
    parser.add_argument("--aiokafka", type=Path, required=True, metavar="DIR", help="a checkout of aiokafka")
    parser.add_argument("--client", choices=("loadtrim", "aiokafka"), default="loadtrim", help="whose consumer runs")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only these tests, as pytest has it")
    parser.add_argument("--verbose", action="store_true", help="print the failures in full")
    options = parser.parse_args(arguments)
    tests = options.aiokafka / "tests"
    missing = [name for name in (*MODULES, *SUPPORT) if not (tests / name).is_file()]
    if missing:
        print(f"{tests} has no {', '.join(missing)}: give a checkout of aiokafka's repository.", file=sys.stderr)
        return 2
    if f'"{aiokafka.__version__}"' not in (options.aiokafka / "aiokafka" / "__init__.py").read_text():
        print(
            f"{options.aiokafka} is not aiokafka {aiokafka.__version__}, the version installed here.", file=sys.stderr
        )
        return 2
    with LocalKafka(properties=BROKER, short_run=True) as kafka, tempfile.TemporaryDirectory() as directory:
        results = run(tests, Path(directory), kafka.bootstrap, options.client, options.k, options.verbose)
    return report(results, DIFFERENCES if options.client == "loadtrim" else BASELINE)


def run(tests: Path, directory: Path, bootstrap: str, client: str, expression: str, verbose: bool) -> list[Result]:
    """Returns how each test ended, in the order of the files."""
    package = directory / "tests"
    package.mkdir()
    for name in (*MODULES, *SUPPORT):
        shutil.copy(tests / name, package / name)
    shutil.copy(HERE / "aiokafka_conftest.py", package / "conftest.py")
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n  ssl: needs certificates\n")
    found = directory / "results.xml"
    command = [sys.executable, "-m", "pytest", *(str(package / name) for name in MODULES), "-m", "not ssl"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", f"--timeout={TEST_SECONDS_MAX}", f"--junitxml={found}"]
    command += ["-rN", "-v" if verbose else "-q", "--tb=long" if verbose else "--tb=no"]
    if expression:
        command += ["-k", expression]
    environment = {**os.environ, "COMPAT_BOOTSTRAP": bootstrap, "COMPAT_CLIENT": client}
    subprocess.run(command, cwd=directory, env=environment, timeout=RUN_SECONDS_MAX, check=False)
    return [_result(case) for case in ElementTree.parse(found).iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    name = case.get("name", "")
    # A test whose tear-down fails has two entries; either makes it a failure.
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        entry = case.find(kind)
        if entry is not None:
            return Result(name, outcome, entry.get("message", "").split("\n")[0])
    return Result(name, "passed")


def report(results: Iterable[Result], differences: dict[str, Difference]) -> int:
    """Prints each test and the count; returns the exit code."""
    worst: dict[str, Result] = {}
    for result in results:
        if result.name not in worst or result.outcome == "failed":
            worst[result.name] = result
    unexpected = 0
    counts: dict[str, int] = {}
    for result in worst.values():
        difference = differences.get(result.name)
        kind = difference.kind.value if difference is not None and result.outcome == "failed" else result.outcome
        counts[kind] = counts.get(kind, 0) + 1
        odd = (result.outcome == "failed") != (difference is not None)
        odd = odd and not (difference is not None and difference.may_pass)
        unexpected += odd
        why = difference.why if difference is not None else result.message
        print(f"{'!' if odd else ' '} {kind:<9} {result.name:<62} {why if result.outcome != 'passed' else ''}".rstrip())
    print(f"{len(worst)} tests: " + ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    if unexpected:
        print(f"{unexpected} of them not as expected (marked !)")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
