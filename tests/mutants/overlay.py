"""A copy of the tree in which a mutant can be planted."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .catalogue import ROOT, Mutant

__all__ = ["Overlay"]

COPIED = ("agent", "consumer_sdk", "tests", "examples", "benchmarks", "pyproject.toml")
LINKED = ("docs", "spark", "Makefile")
ON_PATH = ("agent", "consumer_sdk", "tests", "examples", ".")


class Overlay:
    """A copy of the tree below a temporary folder; tests that run in it import from it alone."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.root = Path(self._folder.name)
        self._planted = 0
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, self.root / name)
        for name in LINKED:
            (self.root / name).symlink_to(ROOT / name)

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that is to import from the copy."""
        path = os.pathsep.join(str((self.root / name).resolve()) for name in ON_PATH)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Have the bug in the copy for a while."""
        path = self.root / mutant.file
        source, stat = path.read_text(), path.stat()
        # Byte code is taken for current where time and size of its source fit, and the next bug may be as long.
        self._planted += 1
        path.write_text(mutant.applied(source))
        os.utime(path, (stat.st_atime, stat.st_mtime - 10 * self._planted))
        try:
            yield
        finally:
            path.write_text(source)
            os.utime(path, (stat.st_atime, stat.st_mtime))

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs killers in the copy."""
        return [sys.executable, "-m", "mutants.probe", *arguments]

    def close(self) -> None:
        """Remove the copy."""
        self._folder.cleanup()
