"""The rooms' contracts hold, and each of them finds a violation that is put into a copy of the tree."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from architecture.tree import ROOT, ROOTS, Module, ours, packages

TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
LINTER = TOOLS["importlinter"]
CONTRACTS = [each["id"] for each in LINTER["contracts"]]

AGENT = "agent/loadtrim_agent"
SDK = "consumer_sdk/loadtrim"
SPARK = "spark/loadtrim_spark"

Edits = dict[str, str]
"""Text to append by file; a file that is not there is made."""

VIOLATIONS: dict[str, dict[str, Edits]] = {
    "packages": {
        "the agent imports the SDK": {f"{AGENT}/delivery/listener.py": "import loadtrim.errors\n"},
        "the SDK imports the pipeline": {f"{SDK}/cli/text.py": "import loadtrim_spark.errors\n"},
        "an example imports the laboratory": {"examples/payments/clients.py": "import benchmarks.run_cache\n"},
        "two examples import each other": {"examples/batches/gathering.py": "import nexmark.state\n"},
        "in a function": {f"{AGENT}/delivery/listener.py": "def later():\n    from loadtrim import errors\n"},
    },
    "no-tests": {
        "the SDK imports the simulator of the tests": {f"{SDK}/testing/ports.py": "from sim import world\n"},
        "an example imports the walks": {"examples/payments/service.py": "from walks import broker\n"},
        "a benchmark imports a test": {"benchmarks/run_cache.py": "import tests.unit.common.test_clock\n"},
    },
    "agent": {
        "upwards": {f"{AGENT}/wire/topic_names.py": "from loadtrim_agent.kafka import client\n"},
        "upwards past a floor": {f"{AGENT}/common/checks.py": "from loadtrim_agent.runtime import thread\n"},
        "beside: metering imports planning": {
            f"{AGENT}/metering/cost.py": "from loadtrim_agent.planning import history\n"
        },
        "beside: protocol imports metering": {
            f"{AGENT}/protocol/lease.py": "from loadtrim_agent.metering import cost\n"
        },
        "beside: delivery imports leader": {
            f"{AGENT}/delivery/listener.py": "from loadtrim_agent.leader import loop\n"
        },
        "for types only": {
            f"{AGENT}/wire/ownership_records.py": (
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from loadtrim_agent.protocol import lease\n"
            )
        },
        "a module outside every room": {f"{AGENT}/helpers.py": "COUNT = 1\n"},
        "a package outside every room": {f"{AGENT}/util/__init__.py": ""},
    },
    "planning": {
        "sizing imports the planner": {f"{AGENT}/planning/sizing/policy.py": "from .. import planner\n"},
        "placement imports sizing": {f"{AGENT}/planning/placement/state.py": "from ..sizing import policy\n"},
        "beside: placement imports the estimate": {f"{AGENT}/planning/placement/state.py": "from .. import estimate\n"},
        "a module on no floor": {f"{AGENT}/planning/helpers.py": "COUNT = 1\n"},
    },
    "published": {
        "the planner": {f"{AGENT}/planning/planner.py": "from .published.policies import keda\n"},
        "sizing": {f"{AGENT}/planning/sizing/objective.py": "from ..published.policies import keda\n"},
        "placement": {f"{AGENT}/planning/placement/repair.py": "from ..published.packers import any_fit\n"},
        "through another module": {
            f"{AGENT}/planning/advice.py": "from .published.policies import keda\n",
            f"{AGENT}/planning/planner.py": "from . import advice\n",
        },
    },
    "pure": {
        "a clock": {f"{AGENT}/protocol/lease.py": "import time\n"},
        "a clock through the common room": {f"{AGENT}/protocol/lease.py": "from loadtrim_agent.common import clock\n"},
        "a clock through a new module": {
            f"{AGENT}/common/ticks.py": "from time import monotonic\n",
            f"{AGENT}/common/naming.py": "from loadtrim_agent.common.ticks import monotonic\n",
        },
        "asyncio in metering": {f"{AGENT}/metering/cost.py": "import asyncio\n"},
        "a file in planning": {f"{AGENT}/planning/history.py": "import os.path\n"},
        "chance in a published policy": {f"{AGENT}/planning/published/policies/keda.py": "import random\n"},
        "a log in the wire formats": {f"{AGENT}/wire/codec.py": "def warn():\n    import logging\n"},
    },
    "simulated": {
        "a clock": {f"{SDK}/simulate/model/world.py": "import time\n"},
        "a file through the loads": {
            f"{SDK}/simulate/loads/load.py": "from .tables import io\n",
        },
    },
    "sdk": {
        "upwards": {f"{SDK}/errors.py": "from loadtrim.observer import view\n"},
        "upwards through the package": {f"{SDK}/settings.py": "import loadtrim\n"},
        "beside: the observer imports the simulator": {
            f"{SDK}/observer/view.py": "from loadtrim.simulate.loads import load\n"
        },
        "the consumer imports an integration": {f"{SDK}/consumer.py": "from .integrations import taskiq\n"},
        "a module outside every room": {f"{SDK}/helpers.py": "COUNT = 1\n"},
    },
    "extras": {
        "the consumer imports OpenTelemetry": {f"{SDK}/consumer.py": "from opentelemetry import trace\n"},
        "a benchmark imports a framework": {"benchmarks/run_cache.py": "import faststream.kafka\n"},
        "the agent imports another client": {f"{AGENT}/kafka/connections.py": "from kafka.admin import NewTopic\n"},
    },
    "integrations": {
        "a framework needs another one": {f"{SDK}/integrations/taskiq.py": "from . import faststream\n"},
    },
    "simulate": {
        "loads import the model": {f"{SDK}/simulate/loads/load.py": "from ..model import world\n"},
        "the model imports the report": {f"{SDK}/simulate/model/world.py": "from ..report import show\n"},
        "a module outside every room": {f"{SDK}/simulate/helpers.py": "COUNT = 1\n"},
    },
    "spark": {
        "learning imports the pipeline": {f"{SPARK}/learning/days.py": "from loadtrim_spark.pipeline import parse\n"},
        "the pipeline imports the evaluation": {
            f"{SPARK}/pipeline/parse.py": "from loadtrim_spark.evaluation import truth\n"
        },
        "a module outside every room": {f"{SPARK}/helpers.py": "COUNT = 1\n"},
    },
    "laboratory": {
        "papers import the suite": {"benchmarks/papers/traces.py": "from benchmarks.suite import results\n"},
        "beside: the comparison imports the suite": {
            "benchmarks/compare/page.py": "from benchmarks.suite import results\n"
        },
        "a module outside every room": {"benchmarks/helpers.py": "COUNT = 1\n"},
    },
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all packages, with the contracts."""
    copied = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", copied)
    for module in ours():
        assert module.path is not None
        target = copied / module.path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(module.text)
    return copied


def linted(copy: Path, cases: list[tuple[str, Edits]]) -> list[str]:
    """Return what the linter prints in the copy after each case's edits."""
    path = os.pathsep.join(str(copy / folder) for folder in ROOTS)
    done = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("linter.py")), str(copy)],
        input=json.dumps(cases),
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "400"},
        cwd=copy,
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[str] = json.loads(done.stdout)
    return answers


def test_contracts_hold(copy: Path) -> None:
    [printed] = linted(copy, [("", {})])
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in printed, printed


def test_every_package_is_under_the_contracts() -> None:
    """An example that is new takes a place in the layers; without one it could import the laboratory."""
    [layers, no_tests] = [each for each in LINTER["contracts"] if each["id"] in ("packages", "no-tests")]
    layered = [name.strip() for layer in layers["layers"] for name in layer.split("|")]
    listed = {
        "root_packages": LINTER["root_packages"],
        "packages": layered,
        "no-tests": no_tests["source_modules"],
        "mypy": TOOLS["mypy"]["packages"],
    }
    assert {name: sorted(names) for name, names in listed.items()} == dict.fromkeys(listed, packages(ROOT))


def test_packages_are_the_folders_with_python_files(tmp_path: Path) -> None:
    for folder in ("agent/one", "consumer_sdk", "spark", "examples/fresh", "examples/pictures", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("agent/one/a.py", "examples/fresh/__init__.py", "benchmarks/b.py"):
        (tmp_path / file).touch()
    assert packages(tmp_path) == ["benchmarks", "fresh", "one"]


def test_everything_below_tests_is_forbidden_to_what_is_shipped() -> None:
    [contract] = [each for each in LINTER["contracts"] if each["id"] == "no-tests"]
    there = {path.stem for path in (ROOT / "tests").iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))}
    assert sorted(contract["forbidden_modules"]) == sorted({"tests", *there})


def test_the_map_counts_the_rooms_and_the_arrows_between_them() -> None:
    graph = grimp.build_graph("loadtrim_agent", cache_dir=None)
    room = {module: module.split(".")[1] for module in graph.modules if "." in module}
    arrows = {
        (room[one], room[other])
        for one in room
        for other in graph.find_modules_directly_imported_by(one)
        if other in room and room[one] != room[other]
    }
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert f"it is {len(set(room.values()))} rooms on 7 floors with {len(arrows)} arrows and none" in page


def test_every_contract_has_a_violation() -> None:
    assert sorted(VIOLATIONS) == sorted(CONTRACTS)


@pytest.mark.slow
@pytest.mark.parametrize("contract", VIOLATIONS)
def test_violations_are_found(copy: Path, contract: str) -> None:
    violations = VIOLATIONS[contract]
    answers = linted(copy, [(contract, edits) for edits in violations.values()])
    missed = [name for name, printed in zip(violations, answers, strict=True) if "0 kept, 1 broken." not in printed]
    assert not missed, "\n".join([f"{contract} does not find: {missed}", *answers])


def test_imports_of_the_agent_are_relative_inside_a_room_and_absolute_across_rooms() -> None:
    wrong = [
        f"{module.name}: {'.' * node.level}{node.module or ''}"
        for module in ours()
        if module.package == "loadtrim_agent" and module.name.count(".") > 1
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and _style_is_wrong(module, node)
    ]
    assert not wrong


def _style_is_wrong(module: Module, node: ast.ImportFrom) -> bool:
    assert module.path is not None
    own = module.name.split(".") + ["__init__"] * (module.path.name == "__init__.py")
    if node.level:
        return len(own) - node.level < 2  # it leads out of the room
    return (node.module or "").split(".")[:2] == own[:2]
