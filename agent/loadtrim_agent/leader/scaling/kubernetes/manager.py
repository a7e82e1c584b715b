"""The name by which a group's changes are known in a workload's ``managedFields``, and the group of such a name. Pure.

Each group has a name of its own, so that another group is told from another leader of the same one.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["field_manager", "group_of_manager", "quoted"]

PREFIX: Final = "loadtrim-"
_BYTES_MAX: Final = 128
"""Source: ``FieldManagerMaxLength`` of ``k8s.io/apimachinery``, which asks for printable characters as well."""
_CUT: Final = "~"
"""Stands between what is left of a group id and its hash. An id with it is hashed, so that no two ids share a name."""
_HASH_LETTERS: Final = 16
_SHOWN_LETTERS: Final = 32
"""Of a group in a message, which has room for 300 letters in all."""


def field_manager(group: str) -> str:
    """Return the name of a group's changes: its id, or what is left of it and a hash where the API takes it not."""
    name = PREFIX + group
    if name.isascii() and name.isprintable() and _CUT not in group and len(name) <= _BYTES_MAX:
        return name
    readable = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in group)
    digest = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LETTERS]
    room = _BYTES_MAX - len(PREFIX) - len(_CUT) - _HASH_LETTERS
    return f"{PREFIX}{readable.replace(_CUT, '_')[:room]}{_CUT}{digest}"


def group_of_manager(manager: str) -> str:
    """Return the group whose changes have this name, as far as it tells; empty: they are no group's of loadtrim."""
    return manager.removeprefix(PREFIX) if manager.startswith(PREFIX) else ""


def quoted(group: str) -> str:
    """Return a group's name for a message: in quotes, and of bounded length."""
    return repr(group if len(group) <= _SHOWN_LETTERS else f"{group[: _SHOWN_LETTERS - 3]}...")
