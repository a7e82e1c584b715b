"""What is fetched is named exactly: Python's packages, the container's, and Java's."""

from __future__ import annotations

import re
import tomllib

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


def container() -> dict[str, tuple[str, int]]:
    """Name -> version and number of hashes of each requirement of the container."""
    text = "\n".join(line for line in text_of("requirements-container.txt").splitlines() if not line.startswith("#"))
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines()]
    heads = [PIN.match(entry[0]) for entry in entries]
    assert None not in heads
    return {
        canonical(head[1]): (head[2], sum(bool(HASH.fullmatch(word)) for word in entry[1:]))
        for head, entry in zip(heads, entries, strict=True)
        if head
    }


def test_the_container_installs_the_versions_that_are_tested_by_their_hashes() -> None:
    installed, tested = container(), pins()
    assert {name: version for name, (version, _) in installed.items() if version != tested[name]} == {}
    assert [name for name, (_, hashes) in installed.items() if not hashes] == []


def test_what_the_project_and_its_build_ask_for_is_in_the_container() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    names = {canonical(re.split(r"[\s<>=!~;\[]", each)[0]) for each in asked}
    assert names <= container().keys()
    assert names <= pins().keys()


def test_the_container_runs_as_nobody_in_particular() -> None:
    lines = [line for line in text_of("Dockerfile").splitlines() if line and not line.startswith("#")]
    assert lines[-2].startswith("USER ")
    assert int(lines[-2].split()[1].partition(":")[0]) >= 1000
    installs = [line for line in lines if "pip install" in line]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)


def test_maven_refuses_what_has_another_checksum() -> None:
    calls = [module for module in ours() if "--batch-mode" in module.text]
    assert [
        module.name for module in calls if module.text.count("--batch-mode") > module.text.count("strict-check")
    ] == []
    assert len(calls) == 2


def test_builds_of_make_read_the_constraints() -> None:
    assert "export PIP_CONSTRAINT := $(CURDIR)/constraints.txt" in text_of("Makefile")
