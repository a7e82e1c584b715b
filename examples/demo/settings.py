"""Settings of the demos, from the environment."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["number"]


def number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    """A number that is not below ``least``; unset or empty: the default.

    Raises:
        ValueError: it is none; the message says what is allowed.
    """
    text = env.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise ValueError(f"{name} is {text!r}; allowed: a number, at least {least:g}")
    return value
