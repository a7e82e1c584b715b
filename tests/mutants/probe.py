"""``python -m mutants.probe MODULE KILLER ...``: imports the module, runs the killers, prints a JSON line for each.

An outcome is ``passed``, ``failed`` with what was raised, or ``missing`` where the killer did not get as far as its own
code. A module that cannot be imported ends the process with code 3: such a mutant is no mutant.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import sys
from pathlib import Path

import pytest

NOT_IMPORTED = 3


class Outcomes:
    """A plugin of pytest that notes what became of each test."""

    def __init__(self) -> None:
        self.by_node: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:  # a fixture of the test is its own code too
            told = getattr(report.longrepr, "reprcrash", None)
            said = told.message if told is not None else str(report.longrepr or "")
            self.by_node[report.nodeid] = (report.outcome, said)

    def of(self, killer: str) -> tuple[str, str]:
        """Return the outcome of a killer: failed where one of the parameter sets of its test failed."""
        found = [told for node, told in self.by_node.items() if node == killer or node.startswith(f"{killer}[")]
        failed = [told for told in found if told[0] == "failed"]
        return (failed or found or [("missing", "no such test ran")])[0]


def _seed(kind: str, seed: int) -> tuple[str, str]:
    simulate = importlib.import_module(f"{kind}.chaos").simulate
    try:
        simulate(seed)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def main(arguments: list[str]) -> int:
    module, *killers = arguments
    try:
        loaded = importlib.import_module(module)
    except Exception as error:
        print(f"{module} cannot be imported: {error!r}", file=sys.stderr)
        return NOT_IMPORTED
    assert loaded.__file__ is not None
    assert Path(loaded.__file__).is_relative_to(Path.cwd()), f"{loaded.__file__} is not of the copy"
    nodes = [killer for killer in killers if "::" in killer]
    outcomes = Outcomes()
    if nodes:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=60", *nodes], plugins=[outcomes])
        if not outcomes.by_node:
            print(said.getvalue(), file=sys.stderr)
    logging.disable(logging.CRITICAL)
    for killer in killers:
        kind, _, seed = killer.partition(" ")
        outcome, said_of_it = outcomes.of(killer) if "::" in killer else _seed(kind, int(seed))
        print(json.dumps({"killer": killer, "outcome": outcome, "said": said_of_it}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
