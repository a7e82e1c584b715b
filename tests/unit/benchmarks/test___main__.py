"""The command that the pages name works as it is typed there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from benchmarks import __main__ as command

from architecture.tree import ROOT


@pytest.mark.slow
def test_the_list_needs_no_path_in_the_environment() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    typed = [sys.executable, "-m", "benchmarks", "--list"]
    told = subprocess.run(typed, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in told.splitlines()] == list(command.BENCHMARKS)
