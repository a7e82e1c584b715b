"""What a policy must not forget between two decisions: a frozen struct per policy, an object of numbers on the wire.

A policy is handed its state and returns the next one in its ``Sizing``. The leader writes it into the decision, so that
the next leader goes on where this one stopped. Only the policy that wrote a state looks inside; the planner uses what
:class:`PolicyState` has.

On the wire (``DecisionRecord.state``) every field is a number under its encoded name. None is left out. A tuple is
``name_0, name_1, ...``, a dict ``name_<key>``. The fields of a part that is a struct of its own lie beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Self, TypeVar

import msgspec

from loadtrim_agent.wire.ranges import REPLICAS_MAX

__all__ = ["DIGITS", "PolicyState", "StatePart", "read_state", "written_state"]

DIGITS = 6
"""Sums and means of a state are rounded to so many digits: every decision carries them."""


class StatePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a policy's state, for the modules that a policy is made of.

    Invariant: every field has a default, which is also what a missing key of an older version means.
    """


class PolicyState(StatePart, frozen=True, kw_only=True):
    """What every policy remembers; itself the state of those that remember no more."""

    wanted: Annotated[int, msgspec.Meta(ge=0, le=REPLICAS_MAX)] | None = None
    """How many replicas the policy wanted last; None: it has not decided yet."""

    def interrupted(self) -> Self:
        """Return the state after a decision that was held: what has to be seen without a break begins anew (I7)."""
        return self


_S = TypeVar("_S", bound=StatePart)


def written_state(state: StatePart) -> dict[str, float]:
    """Return a state as it is written into a decision, sorted by key."""
    wire: dict[str, float] = {}
    for attribute, key in _keys(type(state)):
        match getattr(state, attribute):
            case None:
                pass
            case StatePart() as part:
                wire |= written_state(part)
            case tuple() as values:
                wire |= {f"{key}_{index}": value for index, value in enumerate(values)}
            case dict() as table:
                wire |= {f"{key}_{name}": float(value) for name, value in table.items()}
            case number:
                wire[key] = float(number)
    return dict(sorted(wire.items()))


def read_state(kind: type[_S], wire: Mapping[str, float]) -> _S | None:
    """Read what :func:`written_state` wrote, also by an earlier version; keys that the kind does not have are ignored.

    Returns:
        None where a value is not finite or not of its field's type, so that nothing can be gone on from.
    """
    if not all(map(math.isfinite, wire.values())):
        return None
    try:
        return _read(kind, wire)
    except ValueError:  # msgspec's own error for a value that cannot be converted is one
        return None


def _read(kind: type[_S], wire: Mapping[str, float]) -> _S:
    values: dict[str, Any] = {}
    blank = kind()
    for field in _fields(kind):
        key = field.encode_name
        value: Any
        match getattr(blank, field.name):
            case StatePart() as part:
                values[field.name] = _read(type(part), wire)
                continue
            case tuple():
                value = [wire[name] for index in range(len(wire)) if (name := f"{key}_{index}") in wire]
            case dict():
                value = {name.removeprefix(f"{key}_"): wire[name] for name in wire if name.startswith(f"{key}_")}
            case _ if key in wire:
                value = wire[key]
            case _:
                continue
        values[field.name] = msgspec.convert(value, field.type, strict=False, str_keys=True)
    return kind(**values)


@cache  # msgspec evaluates all annotations each time
def _fields(kind: type[StatePart]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


@cache  # every decision writes its state
def _keys(kind: type[StatePart]) -> tuple[tuple[str, str], ...]:
    """Attributes of a kind and their names on the wire."""
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
