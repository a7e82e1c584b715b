"""``loadtrim policies``: the policies by name, with what they look at and what can be set about each."""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from loadtrim.errors import EXIT_DONE, UsageError
from loadtrim_agent.planning.parameters import Described, described
from loadtrim_agent.planning.registry import POLICIES, make_policy
from loadtrim_agent.planning.sizing.policy import MEASURED, Measure, Policy

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["PolicyDescription", "add_parser", "describe"]

EVERYTHING = "everything that is measured: work curves, forecast, partitions, past decisions"
ROLE = re.compile(r":\w+:`~?\.*([\w.]+)`")
"""A reference to a module or a class, as documentation tools read it."""


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """The name of a policy, what it looks at, the text of its module, and its parameters."""

    name: str
    looks_at: str
    text: str
    parameters: tuple[Described, ...]


def describe(name: str) -> PolicyDescription:
    """Return what the module of a policy says, and the policy's parameters."""
    make = POLICIES[name]
    policy = make_policy(name, MEASURED | {Measure.FUTURE})
    module = importlib.import_module((make.func if isinstance(make, partial) else make).__module__)
    text = ROLE.sub(r"\1", (module.__doc__ or "").strip()).replace("``", "")
    return PolicyDescription(name, _looks_at(policy), text, tuple(described(policy.kind)))


def add_parser(subparsers: SubParsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser("policies", help="the policies by name, and what can be set about each")
    parser.add_argument("names", nargs="*", metavar="NAME", help="say all of these; none: list all")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if unknown := [name for name in args.names if name not in POLICIES]:
        nearest = difflib.get_close_matches(unknown[0], POLICIES, n=1, cutoff=0.0)[0]
        raise UsageError(
            f"there is no policy {unknown[0]!r}",
            "nothing can be told of it",
            f"choose one that `loadtrim policies` lists; the nearest is {nearest!r}",
        )
    told = [describe(name) for name in args.names or POLICIES]
    if args.json:
        print(json.dumps(msgspec.to_builtins(told), indent=2))
    elif args.names:
        print("\n\n".join(map(_page, told)))
    else:
        width = max(map(len, POLICIES))
        print(*(f"{one.name:{width}}  {one.looks_at}" for one in told), sep="\n")
        print("\nSet one with LOADTRIM_POLICY. What it does, and its parameters: loadtrim policies NAME")
    return EXIT_DONE


def _page(one: PolicyDescription) -> str:
    lines = [
        f"{one.name}: looks at {one.looks_at}",
        "",
        one.text,
        "",
        "Parameters:" if one.parameters else "No parameters.",
    ]
    for each in one.parameters:
        default = f" (default {each.default})" if each.default else ""
        lines.append(f"  {each.name}{default}: {each.meaning}; {each.allowed}")
    return "\n".join(lines)


def _looks_at(policy: Policy) -> str:
    needs = getattr(policy, "needs", None)
    if needs is None:
        return EVERYTHING
    return ", ".join(measure.value for measure in Measure if measure in needs) or "nothing"
