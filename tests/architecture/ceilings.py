"""How large a function, a file and a class may be, and how many callables a constructor takes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from architecture.ratchet import Ceiling
from architecture.tree import Function, Module, imported_from, statements

__all__ = ["ANYTHING", "ATTRIBUTES", "CALLABLES", "CLASS_NAMES", "FILES", "FUNCTIONS", "MEMBERS", "METHODS"]
__all__ += ["anything", "attributes", "callables", "class_names", "files", "functions", "members", "methods"]

FUNCTIONS = Ceiling("functions", 70, "lines", "split the function into steps with names")
FILES = Ceiling("files", 600, "lines", "move a part with one purpose to a module of its own")
METHODS = Ceiling("methods with inherited", 25, "methods", "give a part of the state a class of its own")
MEMBERS = Ceiling("members of a port", 12, "members", "hand over a smaller port to each that needs a part of it")
ATTRIBUTES = Ceiling("attributes", 15, "attributes", "put what changes together into a class of its own")
CALLABLES = Ceiling("callables", 1, "callables", "hand over one port (a small Protocol class) instead of callables")
ANYTHING = Ceiling("parameters of any type", 1, "parameters", "say of which type it is, or hand over a port")
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
    """Return the number of each class's methods, with those of its bases in the repository.

    A property with its setter is one, overloads are one, and so is a method that overrides one. Methods in a branch of
    the class's body count. A base from elsewhere counts for nothing.
    """
    modules = list(modules)
    classes, names = dict(_classes(modules)), Names(modules)
    module_of = {name: module for module in modules for name, _ in module.definitions}

    def of(name: str, seen: frozenset[str]) -> set[str]:
        node, found = classes[name], set()
        for base in node.bases:
            above = names.meant(base, module_of[name])
            if above in classes and above not in seen:
                found |= of(above, seen | {above})
        return found | _methods(node)

    return {name: len(of(name, frozenset({name}))) for name in classes}


def members(modules: Iterable[Module]) -> dict[str, int]:
    """Return the number of each port's own members: methods and fields of a ``Protocol``."""
    modules = list(modules)
    names = Names(modules)
    return {
        name: len(_methods(node) | _fields(node))
        for module in modules
        for name, node in _classes([module])
        if any(names.meant(base, module) == "typing.Protocol" for base in node.bases)
    }


def attributes(modules: Iterable[Module]) -> dict[str, int]:
    """Return the number of each class's own attributes: fields, and names that its methods assign on ``self``.

    Members of an enumeration are values; names in ``__slots__`` are counted where they are assigned.
    """
    return {name: len(_fields(node) | _assigned(node)) for name, node in _classes(modules) if not _is_enum(node)}


def callables(modules: Iterable[Module]) -> dict[str, int]:
    """Return how many callables each class is constructed with: parameters of ``__init__``, or else fields.

    An alias of a callable type counts as one, in modules that define or import it.
    """
    modules = list(modules)
    names = Names(modules)
    aliases = _callable_aliases(modules, names)
    return {
        name: sum(_names(each, visible) for each in _parameters(node))
        for module in modules
        for visible in [{"Callable"} | {each for each in names.of(module) if names.of(module)[each] in aliases}]
        for name, node in _classes([module])
    }


def anything(modules: Iterable[Module]) -> dict[str, int]:
    """Return how many parameters of each constructor are of any type: bags that hide what is handed over."""
    return {name: sum(map(_is_any, _parameters(node))) for name, node in _classes(modules)}


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


def _methods(node: ast.ClassDef) -> set[str]:
    return {child.name for child in statements(node) if isinstance(child, Function)}


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
        for method in statements(node)
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
    for child in statements(node):
        if isinstance(child, Function) and child.name == "__init__":
            arguments = child.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            return [each.annotation for each in every if each.annotation]
    return [
        child.annotation
        for child in statements(node)
        if isinstance(child, ast.AnnAssign) and _is_field(child) and "init=False" not in ast.unparse(child)
    ]


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


def _is_any(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).strip("'\"").removesuffix(" | None") in ("Any", "typing.Any", "SimpleNamespace")


def _callable_aliases(modules: Iterable[Module], names: Names) -> set[str]:
    """Return the full names of aliases of callable types: ``Send = Callable[[bytes], None] | None``, and of these."""
    assigned = [
        (f"{module.name}.{target.id}", child.value, module)
        for module in modules
        for child in module.tree.body
        if isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(child.value, _TYPES)
        for target in (child.targets if isinstance(child, ast.Assign) else [child.target])
        if isinstance(target, ast.Name)
    ]
    found: set[str] = set()
    while True:
        more = {
            name
            for name, value, module in assigned
            if name not in found
            and _names(value, {"Callable"} | {each for each, full in names.of(module).items() if full in found})
        }
        if not more:
            return found
        found |= more


_TYPES = ast.Subscript | ast.BinOp | ast.Name | ast.Attribute
"""Expressions that an alias of a type may be."""


class Names:
    """The full names of what modules define and import on their top level."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._of = {module: dict(_bound(module)) for module in modules}

    def of(self, module: Module) -> dict[str, str]:
        """Return the full name of each name that the module defines or imports."""
        return self._of[module]

    def meant(self, node: ast.expr, module: Module) -> str:
        """Return the full name that an expression means in its module; empty where it is no name."""
        text = ast.unparse(node).partition("[")[0]
        first, _, rest = text.partition(".")
        full = self._of[module].get(first, "")
        return f"{full}.{rest}" if rest and full else full


def _bound(module: Module) -> Iterator[tuple[str, str]]:
    for child in statements(module.tree):
        if isinstance(child, ast.ClassDef | Function):
            yield child.name, f"{module.name}.{child.name}"
        elif isinstance(child, ast.Import):
            yield from ((each.asname or each.name, each.name) for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            source = imported_from(child, module)
            yield from ((each.asname or each.name, f"{source}.{each.name}") for each in child.names)
        else:
            yield from ((each.id, f"{module.name}.{each.id}") for each in _stored(child))


def _stored(child: ast.stmt) -> Iterator[ast.Name]:
    for target in _targets(child):
        yield from (each for each in ast.walk(target) if isinstance(each, ast.Name))
