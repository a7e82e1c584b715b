"""What policies have in common of :mod:`..parameters`: a cool-down, and their words for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from msgspec import Meta

from .. import parameters
from ..parameters import MOST, Parameters

__all__ = ["Cooldown", "read"]

Cooldown = Annotated[float, Meta(ge=0, le=MOST, description="no scaling for this long after one")]

_P = TypeVar("_P", bound=Parameters)


def read(kind: type[_P], given: Mapping[str, float], policy: str) -> _P:
    """The parameters of a policy; of what is given only its own are looked at.

    Raises:
        ParameterError: a value is not of its type or out of its range.
    """
    return parameters.read(kind, given, f"the policy {policy!r}", "it cannot decide")
