"""Checks the contracts in a copy of the tree, after each of the edits that standard input lists as JSON.

It runs in a process of its own, because the packages of the copy must be the ones that are found; in the tests' process
these are the repository's. The answer, JSON as well, is what ``lint-imports`` printed in each case.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from importlinter.cli import lint_imports


def report(copy: Path, contract: str, edits: dict[str, str]) -> str:
    """Return what ``lint-imports`` prints while each edit's text is appended to its file; the edits are taken back."""
    before = {copy / name: (copy / name).read_text() if (copy / name).exists() else None for name in edits}
    for path, added in zip(before, edits.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_text((before[path] or "") + added)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        lint_imports(str(copy / "pyproject.toml"), (contract,) if contract else (), cache_dir=str(copy), no_logo=True)
    for path, text in before.items():
        path.write_text(text) if text is not None else path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return printed.getvalue()


if __name__ == "__main__":
    json.dump([report(Path(sys.argv[1]), *case) for case in json.load(sys.stdin)], sys.stdout)
