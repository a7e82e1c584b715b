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
        (["--replicas", "3", "--max", "2"], {}, "--replicas 3 is more than --max 2"),
        (["--replicas", "3"], {"LOADTRIM_MAX_REPLICAS": "1"}, "--replicas 3 is more than LOADTRIM_MAX_REPLICAS=1"),
        (["--replicas", "1", "--min", "2"], {}, "--replicas 1 is less than --min 2"),
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


@pytest.mark.parametrize(("words", "env", "begins"), [([], {}, 1), (["--min", "2"], {}, 2), ([], {"MIN": "3"}, 3)])
def test_the_least_is_where_it_begins(
    words: list[str], env: dict[str, str], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started(args: argparse.Namespace, connection: object) -> int:
        return int(args.replicas)

    for name, value in env.items():
        monkeypatch.setenv(f"LOADTRIM_{name}_REPLICAS", value)
    monkeypatch.setattr(up, "_run", started)
    assert run(*words) == begins
