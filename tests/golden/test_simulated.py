"""A simulated run whose every figure is kept: what changes one of them is to be looked at, and told.

``REWRITE=1 pytest tests/golden/test_simulated.py`` writes the file anew; commit only what you understand.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from loadtrim.cli import main
from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, protocol_of, simulate, summary_of

KEPT = Path(__file__).parent / "simulated.json"
PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"
RUNS = {
    "objective": ("objective", "trim", "loadtrim"),
    "closer24": ("closer24:mu=200", "least_loaded", "loadtrim"),
    "fixed, eager": ("fixed:replicas=3", "sticky", "eager"),
    "fixed, cooperative": ("fixed:replicas=3", "sticky", "cooperative"),
    "fixed, kip848": ("fixed:replicas=3", "sticky", "kip848"),
}


def played(policy: str, packer: str, protocol: str) -> dict[str, object]:
    load = parse_generator("cosine:mean=150,amplitude=-120,period=60,seconds=60", 5)
    config = PlanConfig(group="g", sla_seconds=0.5, policy=policy, packer=packer, startup_seconds=1.0)
    options = Options(costs=Costs(mean_seconds=0.0059), protocol=protocol_of(protocol))
    outcome = simulate(load, config, options)
    told = summary_of([outcome], policy=policy, packer=packer, protocol=protocol, slicing=False, seeds=(1,))
    return asdict(told) | {"wanted": list(outcome.curves.wanted), "replicas": list(outcome.curves.replicas)}


@pytest.mark.parametrize("name", RUNS)
def test_the_figures_are_those_that_were_kept(name: str) -> None:
    kept = msgspec.json.decode(KEPT.read_bytes()) if KEPT.exists() else {}
    now = msgspec.json.decode(msgspec.json.encode(played(*RUNS[name])))
    if os.environ.get("REWRITE"):
        kept[name] = now
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    for field, value in now.items():
        assert kept[name][field] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), field


@pytest.mark.slow
def test_the_example_of_the_documentation_prints_what_stands_there(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```\n\$ loadtrim ((?:.*\\\n)*.*\n)((?:.*\n)*?)```", PAGE.read_text())
    assert example is not None
    assert main(shlex.split(example[1].replace("\\\n", ""))) == 0
    assert capsys.readouterr().out == example[2]
