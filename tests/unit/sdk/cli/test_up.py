"""What ``loadtrim up`` refuses before it starts anything."""

from __future__ import annotations

import argparse

import pytest

from loadtrim.cli import up
from loadtrim.errors import UsageError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    up.add_parser(parser.add_subparsers())
    args = parser.parse_args(["up", *words])
    args.command = ("python", "service.py")
    return up.run(args)


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--min", "4", "--max", "3"], {}, "--min 4 is more than --max 3"),
        (["--min", "4"], {"LOADTRIM_MAX_REPLICAS": "3"}, "--min 4 is more than LOADTRIM_MAX_REPLICAS=3"),
        (["--max", "2"], {"LOADTRIM_MIN_REPLICAS": "3"}, "LOADTRIM_MIN_REPLICAS=3 is more than --max 2"),
    ],
)
def test_bounds_that_no_number_keeps_are_refused_wherever_they_are_said(
    words: list[str], env: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of them in the environment every instance ended at its start, six times, before that was told."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said):
        run(*words)
