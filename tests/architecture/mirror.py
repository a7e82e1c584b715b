"""Tests lie as the source does: ``tests/unit/protocol/test_lease.py`` tests ``loadtrim_agent.protocol.lease``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from architecture.ratchet import Ceiling

__all__ = ["MIRROR", "without_module"]

MIRROR = Ceiling("mirror", 0, "test files without their module", "name it test_<module>.py, in the module's room")

PACKAGES = {
    "unit/sdk": "loadtrim",
    "unit/spark": "loadtrim_spark",
    "unit/benchmarks": "benchmarks",
    "unit/examples": "",
    "unit": "loadtrim_agent",
}
"""Which package a folder of tests mirrors; the first that fits. Examples are packages each."""

SPARK = {"spark": "loadtrim_spark"}


def without_module(tests: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the test files that have no module of their name in their room, each with 1.

    ``test_lease_expiry.py`` belongs to ``lease`` as well: tests of one module may fill several files.

    Args:
        tests: the folder of all tests.
        names: modules as they are imported.
    """
    known = set(names)
    return {
        path.relative_to(tests).as_posix(): 1
        for folder, package in (SPARK | PACKAGES).items()
        for path in sorted((tests / folder).rglob("test_*.py"))
        if _package_of(path.relative_to(tests)) == (folder, package)
        and not _has_module(path.relative_to(tests / folder), package, known)
    }


def _package_of(path: Path) -> tuple[str, str]:
    return next(each for each in (SPARK | PACKAGES).items() if path.is_relative_to(each[0]))


def _has_module(path: Path, package: str, known: set[str]) -> bool:
    words = path.stem.removeprefix("test_").split("_")
    room = ".".join([*filter(None, [package]), *path.parts[:-1]])
    ends = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    if room:
        return any(f"{room}.{end}" in known for end in ends)
    return any(name.rpartition(".")[2] in ends for name in known if name.count(".") < 2)
