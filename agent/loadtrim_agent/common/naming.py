"""Choosing a policy, packer or monitor by name: ``trim``, or with parameters ``closer24:mu=200,f_up=0.8``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import TypeVar

from .errors import LoadtrimError

__all__ = ["UnknownNameError", "check_parameters", "chosen", "nearest", "parse_choice"]

_Factory = TypeVar("_Factory")


class UnknownNameError(LoadtrimError, ValueError):
    """A policy, packer, monitor or parameter was asked for that there is not. The shell stops with its text."""


def parse_choice(text: str) -> tuple[str, dict[str, float]]:
    """Split ``name:parameter=number,...`` into the name and its parameters.

    Raises:
        UnknownNameError: what follows the colon is not of that form, or names a parameter twice.
    """
    name, colon, rest = text.partition(":")
    parameters: dict[str, float] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if equals and key.strip() and not math.isfinite(number):
            raise UnknownNameError(
                f"{value.strip()!r} is no number for {key.strip()} in {text!r}, so nothing can be planned; "
                f"write it like {name}:parameter=1.5"
            )
        if not equals or not key.strip():
            raise UnknownNameError(
                f"{part!r} in {text!r} is no parameter, so nothing can be planned; write it like {name}:parameter=1.5"
            )
        if (key := key.strip()) in parameters:
            raise UnknownNameError(
                f"{key} is there twice in {text!r}, so nothing can be planned (which one counts?); give it once"
            )
        parameters[key] = number
    return name.strip(), parameters


def chosen(kind: str, name: str, registry: Mapping[str, _Factory]) -> _Factory:
    """The entry with this name.

    Raises:
        UnknownNameError: there is none; the message lists them and the nearest.
    """
    _known(kind, name, registry)
    return registry[name]


def check_parameters(kind: str, name: str, given: Collection[str], known: Collection[str]) -> None:
    """Every parameter that is given exists.

    Raises:
        UnknownNameError: one does not.
    """
    for parameter in sorted(given):
        _known(f"parameter of {kind} {name!r} called", parameter, known)


def _known(kind: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    if not known:
        raise UnknownNameError(f"there is no {kind} {name!r}, so nothing can be planned; it takes none")
    raise UnknownNameError(
        f"there is no {kind} {name!r}, so nothing can be planned; "
        f"choose one of {', '.join(sorted(known))} (the nearest is {nearest(name, known)!r})"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """Which of the known names was probably meant; there has to be one."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
