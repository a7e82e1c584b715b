"""The pure rooms import and call only what is on a list: nothing there tells the time, rolls dice, reads or writes.

The contract ``pure`` of import-linter forbids modules by name, and follows chains. What it does not name would pass:
here every module that is not allowed is a problem, and so are builtins that reach beyond the arguments.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType

from architecture.tree import ROOT, Module, imported_from

__all__ = ["impurities", "in_pure_rooms", "pure_rooms"]

ALLOWED = """
    __future__ abc bisect collections collections.abc dataclasses difflib enum functools hashlib heapq itertools math
    msgspec operator re statistics typing zlib
"""
"""Modules of functions and types. A new one is added here if all that it does follows from its arguments."""

REACHING = "open print input eval exec compile __import__ breakpoint globals __builtins__ __loader__ __spec__"
"""Builtins that read, write or fetch a module that is not imported, under whatever name they are kept."""


def pure_rooms() -> tuple[str, ...]:
    """Return the modules and packages that the contract ``pure`` names."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return tuple(next(each for each in contracts if each["id"] == "pure")["source_modules"])


def in_pure_rooms(name: str, rooms: Iterable[str]) -> bool:
    """Whether the module ``name`` is one of the rooms or lies in one."""
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def impurities(modules: Iterable[Module]) -> list[str]:
    """Return what modules of the pure rooms import or name that is not on the lists, with place and reason."""
    rooms, modules = pure_rooms(), list(modules)
    packages = {module.package for module in modules}
    return [
        f"{module.name}:{line}: {problem}"
        for module in modules
        if in_pure_rooms(module.name, rooms)
        for line, problem in _of(module, rooms, packages)
    ]


def _of(module: Module, rooms: tuple[str, ...], packages: set[str]) -> Iterator[tuple[int, str]]:
    bound: dict[str, str] = {}
    """Which library module each name of the file stands for."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for source, member, name in _imports(node, module):
            if source.partition(".")[0] in packages:
                if not in_pure_rooms(source, rooms) and not in_pure_rooms(f"{source}.{member}", rooms):
                    yield node.lineno, f"imports {source}, which is no pure room"
            elif not _is_allowed(source):
                yield node.lineno, f"imports {source}, which is not on the list of the pure rooms"
            elif not member:
                bound[name] = source
            elif _leads_out(source, member):
                yield node.lineno, f"takes {member} out of {source}"
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name) if name in REACHING.split():
                yield node.lineno, f"names {name}, which reaches beyond the arguments"
            case ast.Attribute(value=ast.Name(id=name), attr=member) if _leads_out(bound.get(name), member):
                yield node.lineno, f"takes {member} out of {bound[name]}"


def _imports(node: ast.Import | ast.ImportFrom, module: Module) -> Iterator[tuple[str, str, str]]:
    """Yield of each imported name the module, the member that is taken ("": none), and the name in the file."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, "", alias.asname or alias.name.partition(".")[0]
        return
    source = imported_from(node, module)
    for alias in node.names:
        yield source, alias.name, alias.asname or alias.name


def _is_allowed(name: str) -> bool:
    return name in ALLOWED.split() or name.partition(".")[0] == "msgspec"


@cache
def _leads_out(source: str | None, member: str) -> bool:
    """Whether a member of a library's module is a module that is not allowed: ``statistics.random``, ``enum.sys``."""
    found = source and getattr(import_module(source), member, None)
    return isinstance(found, ModuleType) and not _is_allowed(found.__name__)
