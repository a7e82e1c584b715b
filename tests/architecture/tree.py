"""The source tree as the checks read it: every module of ours, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

__all__ = [
    "ROOT",
    "ROOTS",
    "Definition",
    "Function",
    "Module",
    "imported_from",
    "modules",
    "ours",
    "packages",
    "statements",
]

ROOT = Path(__file__).parents[2]

ROOTS = ("agent", "consumer_sdk", "spark", "examples", ".")
"""Folders from which packages are imported, relative to the repository."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def packages(root: Path) -> list[str]:
    """Return the names of the packages of a copy of the repository: folders with Python files below the roots."""
    homes = [folder for place in ROOTS if place != "." for folder in (root / place).iterdir() if folder.is_dir()]
    return sorted(folder.name for folder in (*homes, root / LABORATORY) if next(folder.rglob("*.py"), None))


LABORATORY = "benchmarks"
"""The one package that lies in the repository itself, beside the roots."""


@dataclass(frozen=True)
class Module:
    """A module of ours.

    Attributes:
        name: as it is imported.
        text: its source.
        path: the file; None for a module that a test made up.
    """

    name: str
    text: str
    path: Path | None = field(default=None, compare=False)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; a cached property on a frozen class writes past its ``__setattr__``."""
        return ast.parse(self.text)

    @cached_property
    def definitions(self) -> list[tuple[str, Definition]]:
        """Every class and function with its full name, those inside others as well."""
        return list(_definitions(self.tree, self.name))

    @property
    def package(self) -> str:
        """The name's first part."""
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        """The package and the folder below it; what lies in the package itself, and an example, is one room."""
        if self.path is None or self.path.parent.parent.name == "examples":
            return self.package
        parts = self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]
        return ".".join(parts[:2])


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a block and of the blocks in it, but not those of classes and functions in it.

    Expressions are not walked: that is most of a tree.
    """
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt):
                yield child
            if not isinstance(child, Definition):
                yield from statements(child)


def imported_from(node: ast.ImportFrom, module: Module) -> str:
    """Return the full name of the module that an import takes something from; relative ones are resolved."""
    if not node.level:
        return node.module or ""
    is_package = module.path is not None and module.path.name == "__init__.py"
    parts = module.name.split(".") if is_package else module.name.split(".")[:-1]
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in statements(node):
        if isinstance(child, Definition):
            name = f"{prefix}.{child.name}"
            yield name, child
            yield from _definitions(child, name)


def modules(root: Path) -> list[Module]:
    """Return the modules of every package below a copy of the repository, by name."""
    found = []
    for place in ROOTS:
        for package in packages(root):
            for path in sorted((root / place / package).rglob("*.py")):
                parts = path.relative_to(root / place).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found.append(Module(name, path.read_text(encoding="utf-8"), path))
    return found


@lru_cache(maxsize=1)
def ours() -> tuple[Module, ...]:
    """Return this repository's modules."""
    return tuple(modules(ROOT))
