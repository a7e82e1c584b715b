"""The code that a figure is of: the commit at which it was measured, and whether it has changed since.

Git is asked, offline. A shallow clone or an unpacked archive has no history that reaches back: there the answer is that
it is not known. No figure is taken for current because nobody could look.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DIRTY", "changes_since", "commit_now", "told"]

ROOT = Path(__file__).resolve().parents[1]
GIT_SECONDS_MAX = 20.0
HASH_LENGTH = 9
DIRTY = "dirty"
"""Behind a commit: the work tree differed from it, so the figure is of no commit at all."""


def commit_now(root: Path = ROOT) -> str:
    """Return the short hash of the commit of ``root``, with :data:`DIRTY` where files differ; empty: not known."""
    commit = _git(root, "rev-parse", f"--short={HASH_LENGTH}", "HEAD")
    if not commit:
        return ""
    return f"{commit} {DIRTY}" if _git(root, "status", "--porcelain") != "" else commit


def changes_since(commit: str, paths: Sequence[str], root: Path = ROOT) -> int | None:
    """Return how many commits since ``commit`` changed one of ``paths``, and one more for what is not committed.

    Args:
        commit: as :func:`commit_now` gave it.
        paths: files and folders, from ``root`` on.
        root: of the repository.

    Returns:
        The number; None where it is not known. A figure of a dirty tree counts as changed once.
    """
    name = commit.removesuffix(DIRTY).strip()
    if not name or not paths or _git(root, "merge-base", "--is-ancestor", name, "HEAD") is None:
        return None
    later = _git(root, "rev-list", "--count", f"{name}..HEAD", "--", *paths)
    now = _git(root, "status", "--porcelain", "--", *paths)
    if later is None or now is None:
        return None
    return int(later) + bool(now) + commit.endswith(DIRTY)


def told(changes: int | None) -> str:
    """Say it in words."""
    if changes is None:
        return "not known (git's history does not reach there)"
    return f"changed ({changes})" if changes else "unchanged"


def _git(root: Path, *words: str) -> str | None:
    """Return what git says; None where it is not there, or says that something is wrong."""
    try:
        said = subprocess.run(
            ["git", *words], cwd=root, check=True, capture_output=True, text=True, timeout=GIT_SECONDS_MAX
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
