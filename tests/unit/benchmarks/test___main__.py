"""The command that the pages name works as it is typed there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from benchmarks import __main__ as command

from architecture.tree import ROOT
from loadtrim_agent.common.settings import DEFAULTS


@pytest.mark.slow
def test_the_list_needs_no_path_in_the_environment() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    typed = [sys.executable, "-m", "benchmarks", "--list"]
    told = subprocess.run(typed, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in told.splitlines()] == list(command.BENCHMARKS)


def test_the_default_share_is_published_before_the_one_that_suits_the_paper() -> None:
    names = list(command.BENCHMARKS)
    default, paper = names.index("trace-objective-999"), names.index("trace-objective")
    assert default < paper
    assert f"{DEFAULTS.sla_share * 100:g} % asked for" in command.BENCHMARKS["trace-objective-999"].title
