"""Makes ``docs/policies.md`` from the policies themselves: ``python -m unit.planning.published.page`` in ``tests``."""

from __future__ import annotations

import importlib
import re
from functools import partial
from pathlib import Path

from loadtrim_agent.planning import registry
from loadtrim_agent.planning.parameters import Described, described
from loadtrim_agent.planning.published.policies.hpa import HpaParameters
from loadtrim_agent.planning.registry import POLICIES, make_policy
from loadtrim_agent.planning.sizing.policy import MEASURED, Measure, Policy

__all__ = ["PATH", "page"]

PATH = Path(__file__).parents[4] / "docs" / "policies.md"
INTRODUCTION = """\
# Policies

How many replicas, and when: `LOADTRIM_POLICY=name`, or with parameters `name:parameter=number,...`. This page is made
from the code (`tests/unit/planning/published/page.py`), and a test keeps it so.

All of them stay between `LOADTRIM_MIN_REPLICAS` and the smaller of `LOADTRIM_MAX_REPLICAS` and the number of
partitions, hold while reports are missing or too little was measured, give every decision a reason in words
(`loadtrim explain`), and answer alike for the same input, under every leader: what a policy must not forget travels
with the decision. *As many as before* is what was asked for last, whether or not it is there yet.

**Who owns what** is the packer's ([packers](packers.md)). The bin-pack policies go with the packer of their name
(`closer24` with `closer24`, `iccbdc22` with `iccbdc22`), `landau24` with `mwf` and its like, `objective` with `trim`.
The others know nothing of partitions: they have them dealt out anew when members come or go, as a Kafka group does
it, and leave them alone otherwise; `sticky` or `roundrobin` is what their papers ran.

**mu**, the records/s that a replica can do, is measured unless a parameter says it: capacity over the mean busy time
of a record. The papers' constants are named where they are left out.

Names of parameters end in their unit; shares have none. Five are the papers' own: `mu` (records/s), `f_up` and `f_down`
(shares of a member), `weight` (Li & Ku's w: replicas), and the packer's `n` (Landau'24's: members). A policy's `mu` is
the packer's, too.

A policy that needs what is not measured refuses the start and says which setting to change; of those here that is
`clairvoyant` alone, outside a simulator.

**With `LOADTRIM_MONITOR`** whatever looks at arrival rates looks at the monitor's: what it tells now, and over a window
what it told at each decision since. `objective` takes level and trend of the load from it; how the load comes within a
second is still what the members report, for a monitor tells one number per decision. The policies that look at no
arrival rates decide as without it, and only the packer places by its rates; the start says so. While the monitor tells
nothing the group holds, and grows only where what members report alone asks for more.

| name | looks at |
|---|---|
"""

MODULES: dict[str, str] = {}
"""Last part of a module's name -> the whole of it."""


def page() -> str:
    """The whole page."""
    modules: dict[str, list[str]] = {}
    for name in POLICIES:
        made = POLICIES[name]
        module = (made.func if isinstance(made, partial) else made).__module__
        home = module.rpartition(".")[2]
        MODULES[home] = module
        modules.setdefault(home, []).append(name)
    looks = "".join(
        f"| `{name}` | {_looks_at(_policy(name))} |\n" for home in _order(modules) for name in modules[home]
    )
    return INTRODUCTION + looks + "".join(_section(home, modules[home]) for home in _order(modules))


def _policy(name: str) -> Policy:
    return make_policy(name, MEASURED | {Measure.FUTURE})


def _looks_at(policy: Policy) -> str:
    needs = getattr(policy, "needs", None)
    if needs is None:
        return "everything that is measured: work curves, forecast, partitions, past decisions"
    return ", ".join(measure.value for measure in Measure if measure in needs) or "nothing"


def _order(modules: dict[str, list[str]]) -> list[str]:
    """As in the list of the package."""
    listed = re.findall(r":mod:`[\w.]*\.(\w+)`", (registry.__doc__ or "").partition("Packers:")[0])
    assert sorted(listed) == sorted(modules), "every module is in the package's list"
    return listed


def _section(home: str, names: list[str]) -> str:
    text = (importlib.import_module(MODULES[home]).__doc__ or "").strip()
    text = re.sub(r":(?:mod|data|class):`~?\.?([\w.]+)`", r"`\1`", text).replace("``", "`")
    heading = ", ".join(f"`{name}`" for name in names)
    return f"\n## {heading}\n\n{text}\n{_parameters(names)}"


def _parameters(names: list[str]) -> str:
    kind = _policy(names[0]).kind
    tables = {name: described(_policy(name).kind) for name in names}
    shared = {field.name for field in described(HpaParameters)} if issubclass(kind, HpaParameters) else set()
    fields: dict[str, Described] = {}
    for table in tables.values():
        fields |= {field.name: fields.get(field.name, field) for field in table}
    rows = []
    for name, field in fields.items():
        defaults = {policy: one.default for policy, table in tables.items() for one in table if one.name == name}
        shown = field.default
        if len(defaults) < len(names):
            shown += f" ({', '.join(f'`{policy}`' for policy in defaults)} only)"
        for policy, default in defaults.items():
            if default != field.default:
                shown += f" (`{policy}`: {default})"
        rows.append(f"| `{name}` | {shown} | {field.allowed} | {field.meaning}{' (HPA)' if name in shared else ''} |")
    return _table(rows)


def _table(rows: list[str]) -> str:
    return "\n" + "\n".join(["| parameter | default | allowed | meaning |", "|---|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    PATH.write_text(page())
