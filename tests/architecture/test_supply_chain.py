"""What is fetched is named exactly: Python's packages, the container's, and Java's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from architecture.tree import ROOT, ours

PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([\w.!+-]+)$")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Name -> version of each line of constraints.txt."""
    lines = [line for line in text_of("constraints.txt").splitlines() if line and not line.startswith("#")]
    found = [PIN.match(line) for line in lines]
    assert None not in found, "a line that is no exact version"
    return {canonical(pin[1]): pin[2] for pin in found if pin}


RUNS, BUILDS = "requirements-container.txt", "requirements-container-build.txt"


def container(file: str) -> dict[str, tuple[str, int]]:
    """Name -> version and number of hashes of each requirement of the container."""
    text = "\n".join(line for line in text_of(file).splitlines() if not line.startswith("#"))
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines()]
    heads = [PIN.match(entry[0]) for entry in entries]
    assert None not in heads
    return {
        canonical(head[1]): (head[2], sum(bool(HASH.fullmatch(word)) for word in entry[1:]))
        for head, entry in zip(heads, entries, strict=True)
        if head
    }


@pytest.mark.parametrize("file", [RUNS, BUILDS])
def test_the_container_installs_the_versions_that_are_tested_by_their_hashes(file: str) -> None:
    installed, tested = container(file), pins()
    assert {name: version for name, (version, _) in installed.items() if version != tested[name]} == {}
    assert [name for name, (_, hashes) in installed.items() if not hashes] == []


def test_what_the_project_and_its_build_ask_for_is_in_the_container() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))
    extras = project["project"]["optional-dependencies"]
    for file, asked in (
        (RUNS, [*project["project"]["dependencies"], *extras["kubernetes"]]),
        (BUILDS, project["build-system"]["requires"]),
    ):
        names = {canonical(re.split(r"[\s<>=!~;\[]", each)[0]) for each in asked}
        assert names <= container(file).keys()
        assert names <= pins().keys()
    assert not {"hatchling", "pip"} & container(RUNS).keys()


def test_the_container_runs_as_nobody_in_particular() -> None:
    lines = [line for line in text_of("Dockerfile").splitlines() if line and not line.startswith("#")]
    last = max(at for at, line in enumerate(lines) if line.startswith("FROM "))
    (user,) = [line for line in lines[last:] if line.startswith("USER ")]
    assert int(user.split()[1].partition(":")[0]) >= 1000
    assert [line for line in lines[last:] if line.startswith("RUN ")] == [], "the last stage only takes over"
    installs = [line for line in lines if re.search(r"pip .*(install|wheel) ", line)]
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-deps --no-" in line for line in installs)


def test_the_dockerfile_passes_its_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint has no wheel for this machine")
    ran = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_signals_reach_the_container_s_python_itself() -> None:
    """The shell form starts a shell, which does not pass SIGTERM on."""
    for word in ("ENTRYPOINT ", "    CMD "):
        (line,) = [line for line in text_of("Dockerfile").splitlines() if line.startswith(word)]
        assert json.loads(line.removeprefix(word))[0] == "python"


def test_the_builder_is_sent_what_the_dockerfile_copies() -> None:
    sent = {line.removeprefix("!") for line in text_of(".dockerignore").splitlines() if line.startswith("!")}
    copies = [line.split()[1:-1] for line in text_of("Dockerfile").splitlines() if line.startswith("COPY ")]
    assert sent == {name for names in copies for name in names if not name.startswith(("--from", "/"))}


def test_maven_refuses_what_has_another_checksum() -> None:
    calls = [module for module in ours() if "--batch-mode" in module.text]
    assert [
        module.name for module in calls if module.text.count("--batch-mode") > module.text.count("strict-check")
    ] == []
    assert len(calls) == 2


def test_builds_of_make_read_the_constraints() -> None:
    assert "export PIP_CONSTRAINT := $(CURDIR)/constraints.txt" in text_of("Makefile")
