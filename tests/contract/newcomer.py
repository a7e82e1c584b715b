"""What a newcomer does with the templates of docs/templates, by the steps in their first lines, in a copy."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

__all__ = ["STEPS", "copied"]

ROOT = Path(__file__).parents[2]
PLANNING = "agent/loadtrim_agent/planning"
REGISTRY = f"{PLANNING}/registry.py"


def copied(target: Path) -> Path:
    """Copy all that is tracked, or new and not ignored."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def add_policy(tree: Path) -> None:
    """Follow ``docs/templates/policy.py``."""
    text = (tree / "docs/templates/policy.py").read_text()
    text = text.replace("loadtrim_agent.planning.published.policies.", ".").replace("loadtrim_agent.planning.", "...")
    (tree / PLANNING / "published/policies/lag_per_replica.py").write_text(text)
    insert(
        tree / REGISTRY,
        ("* :mod:`.published.policies.li_ku`", "* :mod:`.published.policies.lag_per_replica`  waiting records"),
        ("from .published.policies.landau24 ", "from .published.policies.lag_per_replica import LagPerReplica"),
        ("    LiKu.name: LiKu,", "    LagPerReplica.name: LagPerReplica,"),
    )
    insert(
        tree / "tests/golden/test_policies.py",
        ('    "closer24": [5],', '    "lag_per_replica": [1],'),
        ('    "closer24": [2],', '    "lag_per_replica": [1],'),
    )
    choice = '    "lag_per_replica": "lag_records=60,every_seconds=2,cooldown_seconds=5",'
    insert(tree / "tests/property/test_policies_play.py", ('    "li_ku": "",', choice))
    choice = '    Choice(name="lag_per_replica", policy="lag_per_replica"),'
    insert(tree / "benchmarks/compare/runs.py", ('    Choice(name="linear", ', choice))


def add_packer(tree: Path) -> None:
    """Follow ``docs/templates/packer.py``."""
    text = (tree / "docs/templates/packer.py").read_text()
    (tree / PLANNING / "published/packers/most_room.py").write_text(text.replace("loadtrim_agent.planning.", "..."))
    insert(
        tree / REGISTRY,
        ("* :mod:`.published.packers.kafka_assignors`", "* :mod:`.published.packers.most_room`  the most room"),
        ("from .published.policies.clairvoyant ", "from .published.packers.most_room import MostRoom"),
        ("    Sticky.name: Sticky,", "    MostRoom.name: MostRoom,"),
    )
    insert(tree / "docs/packers.md", ("| `sticky` |", "| `most_room` | a template | mean work | all |"))


def add_scaler(tree: Path) -> None:
    """Follow ``docs/templates/scaler.py``."""
    text = (tree / "docs/templates/scaler.py").read_text()
    text = text.replace("loadtrim_agent.leader.scaling.port import", ".port import").replace('"template"\n', '"hook"\n')
    (tree / "agent/loadtrim_agent/leader/scaling/hook.py").write_text(text)
    settings = tree / "agent/loadtrim_agent/common/settings.py"
    settings.write_text(re.sub(r"(ScalerName = Literal\[.*?)\]", r'\1, "hook"]', settings.read_text()))
    insert(
        tree / "agent/loadtrim_agent/runtime/scaling.py",
        ("from loadtrim_agent.leader.scaling.none ", "from loadtrim_agent.leader.scaling.hook import template"),
        ("    return NoneScaler()", '    if settings.scaler == "hook":\n        return template()[0]'),
    )
    reference = tree / "docs/reference.md"
    reference.write_text(reference.read_text().replace("`none`, `webhook`, or", "`none`, `webhook`, `hook`, or"))


def insert(file: Path, *lines: tuple[str, str]) -> None:
    """Put text before the first line that begins so, searching on from where the one before went."""
    text, at = file.read_text(), 0
    for before, new in lines:
        at = text.index(f"\n{before}", at) + 1
        text = f"{text[:at]}{new}\n{text[at:]}"
        at += len(new)
    file.write_text(text)


STEPS: dict[str, Callable[[Path], None]] = {"policy": add_policy, "packer": add_packer, "scaler": add_scaler}
