"""The steps that the templates name are all there are: what is added by them passes the checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contract.newcomer import ROOT, STEPS, copied

JUDGES = [
    "tests/architecture/test_contracts.py",
    "tests/architecture/test_exceptions.py",
    "tests/architecture/test_links.py",
    "tests/architecture/test_mirror.py",
    "tests/architecture/test_reference.py",
    "tests/contract/test_packer_contract.py",
    "tests/contract/test_policy_contract.py",
    "tests/contract/test_scaler_contract.py",
    "tests/golden/test_policies.py",
    "tests/golden/test_walks.py",
    "tests/property/test_policies_play.py",
    "tests/unit/benchmarks/test_compare.py",
    "tests/unit/planning/placement",
    "tests/unit/planning/published",
    "tests/unit/planning/test_policy_state.py",
    "tests/unit/planning/test_rate_source.py",
    "tests/unit/planning/test_values.py",
    "tests/unit/runtime/test_services.py",
    "tests/unit/sdk/test_settings.py",
]
"""Tests that know policies, packers, scalers or files by name; a whole ``make test-unit`` takes minutes."""


@pytest.mark.parametrize("template", STEPS)
def test_files_that_a_template_names_exist(template: str) -> None:
    text = (ROOT / "docs" / "templates" / f"{template}.py").read_text()
    named = re.findall(r"``((?:agent|tests|docs|benchmarks)/[\w./]+\.(?:py|md))``", text)
    assert len(named) >= 2
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
@pytest.mark.weekly
def test_a_policy_a_packer_and_a_scaler_are_added_by_the_steps_of_their_templates(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    for add in STEPS.values():
        add(tree)
    path = [str(tree / folder) for folder in ("agent", "consumer_sdk", "spark", "examples", ".")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "HYPOTHESIS_PROFILE": "fast"}
    environment |= {"SCALER": str(tree / "agent/loadtrim_agent/leader/scaling/hook.py")}

    def runs(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tree, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    runs("ruff", "check", "--fix", "agent", "benchmarks", "tests")
    runs("ruff", "format", "agent", "benchmarks", "tests")
    told = runs("pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *JUDGES)
    assert " passed" in told
    runs("pytest", "-q", "-p", "no:cacheprovider", "tests/property/test_policies_play.py", "-k", "lag_per_replica")
