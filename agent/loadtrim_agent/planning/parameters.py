"""What can be set about a policy or a packer: one frozen struct each, every field with its type, range and default.

A field is ``name: Annotated[type, Meta(range, description, extra)] = default``. Names end in their unit. ``mu``
(records/s), ``f_up``, ``f_down`` (shares of a member), ``weight`` (Li & Ku's w, replicas) and ``n`` (Landau'24's,
members) are the papers' own. ``loadtrim policies`` prints these fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from loadtrim_agent.common.errors import LoadtrimError

__all__ = [
    "MOST",
    "Amount",
    "Described",
    "Fill",
    "Mu",
    "ParameterError",
    "Parameters",
    "Positive",
    "Seconds",
    "described",
    "read",
]

SWITCH = "0 or 1"
MOST = 1e12
"""Of any parameter: what is above it is not meant."""
Seconds = Annotated[float, Meta(ge=0, le=MOST)]
"""A length of time, 0 or more."""
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
Fill = Annotated[float, Meta(gt=0, le=1)]
"""A share of what a member can do."""
Mu = Annotated[float, Meta(gt=0, le=MOST, description="records/s that a replica can do")]

_P = TypeVar("_P", bound="Parameters")


class ParameterError(LoadtrimError, ValueError):
    """A parameter of a policy or packer is out of its range. The shell stops the start with its text."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all; itself that of those that take none."""


class Described(msgspec.Struct, frozen=True):
    """One parameter, for people."""

    name: str
    default: str
    allowed: str
    meaning: str


def read(kind: type[_P], given: Mapping[str, float], owner: str, so: str) -> _P:
    """Typed parameters; of what is given only the kind's own are looked at.

    Args:
        kind: the struct.
        given: name -> value.
        owner: whose they are, as in "the policy 'keda'".
        so: what a wrong value means for it, as in "it cannot decide".

    Raises:
        ParameterError: a value is not of its type or out of its range.
    """
    values: dict[str, Any] = {}
    for field in _fields(kind) if given else ():
        if field.name in given:
            value: Any = given[field.name]
            if value in (0.0, 1.0) and _allowed(field.type) == SWITCH:
                value = bool(value)
            try:
                values[field.name] = msgspec.convert(value, field.type, strict=False)
            except msgspec.ValidationError:
                raise ParameterError(
                    f"{field.name} of {owner} is {value:g}, so {so}; allowed is {_allowed(field.type, value)}"
                ) from None
    try:
        return kind(**values)
    except ValueError as error:
        raise ParameterError(f"what is set for {owner} does not go together, so {so}: {error}") from None


@cache  # every decision reads them
def _fields(kind: type[Parameters]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def described(kind: type[Parameters]) -> tuple[Described, ...]:
    """All of them, in the order of their declaration."""
    return tuple(
        Described(field.name, _default(field), _allowed(field.type), _meaning(field.type))
        for field in msgspec.structs.fields(kind)
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    """Where there is none, its meaning tells what is taken, or it is measured."""
    return "" if field.default is None and "default:" in _meaning(field.type) else _shown(field.default)


def _shown(default: object) -> str:
    match default:
        case None:
            return "measured"
        case bool():
            return str(int(default))
        case float():
            return f"{default:.6g}"
        case _:
            return str(default)


def _types(wanted: Any) -> Iterable[msgspec.inspect.Type]:
    """The one type behind a field, without None and without what only describes it."""
    found = msgspec.inspect.type_info(wanted)
    while isinstance(found, msgspec.inspect.Metadata):
        found = found.type
    for one in found.types if isinstance(found, msgspec.inspect.UnionType) else (found,):
        while isinstance(one, msgspec.inspect.Metadata):
            one = one.type
        if not isinstance(one, msgspec.inspect.NoneType):
            yield one


def _meaning(wanted: Any) -> str:
    """The description in an annotation, however deep."""
    if isinstance(wanted, Meta):
        return wanted.description or ""
    inner: Collection[Any] = (*getattr(wanted, "__metadata__", ()), *getattr(wanted, "__args__", ()))
    return next((text for one in inner if (text := _meaning(one))), "")


def _allowed(wanted: Any, given: float = 0.0) -> str:
    """The range in words. The bound that all share is told to those only who are above it."""
    (found,) = _types(wanted)
    match found:
        case msgspec.inspect.BoolType():
            return SWITCH
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            kind = "a whole number" if isinstance(found, msgspec.inspect.IntType) else "a number"
            bounds = [
                f"{words} {limit:g}"
                for words, limit in (
                    ("above", found.gt),
                    ("of at least", found.ge),
                    ("below", found.lt),
                    ("of at most", found.le),
                )
                if limit is not None and (limit < MOST or given > MOST)
            ]
            return " ".join([kind, " and ".join(bounds)]) if bounds else kind
        case _:
            raise TypeError(f"{wanted} is no type of a parameter")
