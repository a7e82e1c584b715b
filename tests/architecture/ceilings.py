"""How large a function, a file and a class may be, and how many callables a constructor takes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from architecture.ratchet import Ceiling
from architecture.tree import Function, Module, statements

__all__ = ["ATTRIBUTES", "CALLABLES", "CLASS_NAMES", "FILES", "FUNCTIONS", "METHODS", "attributes", "callables"]
__all__ += ["class_names", "files", "functions", "methods"]

FUNCTIONS = Ceiling("functions", 70, "lines", "split the function into steps with names")
FILES = Ceiling("files", 600, "lines", "move a part with one purpose to a module of its own")
METHODS = Ceiling("methods", 25, "methods", "give a part of the state a class of its own")
ATTRIBUTES = Ceiling("attributes", 15, "attributes", "put what changes together into a class of its own")
CALLABLES = Ceiling("callables", 1, "callables", "hand over one port (a small Protocol class) instead of callables")
CLASS_NAMES = Ceiling("class names", 1, "classes of this name in one package", "name each by what sets it apart")


def functions(modules: Iterable[Module]) -> dict[str, int]:
    """Return each function's lines, decorators excluded."""
    return {
        name: (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules
        for name, node in module.definitions
        if isinstance(node, Function)
    }


def files(modules: Iterable[Module]) -> dict[str, int]:
    """Return each module's lines."""
    return {module.name: module.text.count("\n") for module in modules}


def methods(modules: Iterable[Module]) -> dict[str, int]:
    """Return the number of each class's own methods; a property with its setter is one, overloads are one."""
    return {
        name: len({child.name for child in node.body if isinstance(child, Function)})
        for name, node in _classes(modules)
    }


def attributes(modules: Iterable[Module]) -> dict[str, int]:
    """Return the number of each class's own attributes: fields, and names that its methods assign on ``self``.

    Members of an enumeration are values; names in ``__slots__`` are counted where they are assigned.
    """
    return {name: len(_fields(node) | _assigned(node)) for name, node in _classes(modules) if not _is_enum(node)}


def callables(modules: Iterable[Module]) -> dict[str, int]:
    """Return how many callables each class is constructed with: parameters of ``__init__``, or else fields.

    An alias of a callable type counts as one.
    """
    modules = list(modules)
    aliases = {name for module in modules for name in _callable_aliases(module.tree)} | {"Callable"}
    return {name: sum(_names(each, aliases) for each in _parameters(node)) for name, node in _classes(modules)}


def class_names(modules: Iterable[Module]) -> dict[str, int]:
    """Return how many modules of a package define a public class of each name."""
    return Counter(
        f"{module.package}: {node.name}"
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def _classes(modules: Iterable[Module]) -> Iterator[tuple[str, ast.ClassDef]]:
    for module in modules:
        for name, node in module.definitions:
            if isinstance(node, ast.ClassDef):
                yield name, node


def _is_enum(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases)


def _fields(node: ast.ClassDef) -> set[str]:
    names = set()
    for child in node.body:
        targets = child.targets if isinstance(child, ast.Assign) else [child.target] if _is_field(child) else []
        names |= {each.id for each in targets if isinstance(each, ast.Name) and not each.id.startswith("__")}
    return names


def _is_field(child: ast.stmt) -> bool:
    return isinstance(child, ast.AnnAssign) and "ClassVar" not in ast.unparse(child.annotation)


def _assigned(node: ast.ClassDef) -> set[str]:
    return {
        each.attr
        for method in node.body
        if isinstance(method, Function)
        for statement in statements(method)
        for target in _targets(statement)
        for each in ast.walk(target)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
        if isinstance(each.ctx, ast.Store)
    }


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            return [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [item.optional_vars for item in items if item.optional_vars]
    return []


def _parameters(node: ast.ClassDef) -> list[ast.expr]:
    for child in node.body:
        if isinstance(child, Function) and child.name == "__init__":
            arguments = child.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            return [each.annotation for each in every if each.annotation]
    return [child.annotation for child in node.body if isinstance(child, ast.AnnAssign) and _is_field(child)]


def _names(annotation: ast.expr, names: set[str]) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in names)
        or (isinstance(each, ast.Attribute) and each.attr in names)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str) and _quoted(each.value, names))
        for each in ast.walk(annotation)
    )


def _quoted(annotation: str, names: set[str]) -> bool:
    """Whether an annotation in quotes names one; texts in ``Annotated`` are no annotations."""
    return not names.isdisjoint(re.findall(r"\w+", annotation)) and " " not in annotation.split("[")[0].strip()


def _callable_aliases(tree: ast.Module) -> Iterator[str]:
    """The names of a module's top level that stand for a type of callable: ``Send = Callable[[bytes], None]``."""
    for child in tree.body:
        value = child.value if isinstance(child, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Subscript) and _names(value.value, {"Callable"}):
            yield from (
                each.id for each in ast.walk(child) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            )
