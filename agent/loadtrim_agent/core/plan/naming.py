"""Choosing a policy or packer by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from ..model import LoadtrimError

__all__ = ["UnknownNameError", "chosen"]

_Factory = TypeVar("_Factory")


class UnknownNameError(LoadtrimError, ValueError):
    """A policy or packer that does not exist was asked for. The shell stops the start with its text."""


def chosen(kind: str, name: str, registry: Mapping[str, _Factory]) -> _Factory:
    """The entry with this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name in registry:
        return registry[name]
    known = sorted(registry)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    raise UnknownNameError(
        f"there is no {kind} {name!r}, so nothing can be planned; "
        f"choose one of {', '.join(known)} (the nearest is {near[0]!r})"
    )
