"""A policy's parameters: what :mod:`..parameters` has, in the words of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from msgspec import Meta

from .. import parameters
from ..parameters import MOST, Amount, Fill, Mu, ParameterError, Parameters, Positive, Seconds

__all__ = [
    "Amount",
    "Cooldown",
    "Fill",
    "Mu",
    "ParameterError",
    "Parameters",
    "Positive",
    "Seconds",
    "read",
]

Cooldown = Annotated[float, Meta(ge=0, le=MOST, description="no scaling for this long after one")]

_P = TypeVar("_P", bound=Parameters)


def read(kind: type[_P], given: Mapping[str, float], policy: str) -> _P:
    """The parameters of a policy; of what is given only its own are looked at.

    Raises:
        ParameterError: a value is not of its type or out of its range.
    """
    return parameters.read(kind, given, f"the policy {policy!r}", "it cannot decide")
