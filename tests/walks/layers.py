"""What the import contracts say of a call from one file to another, and what is called without being imported."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

__all__ = ["breaks_layers", "is_handed_in"]

ROOT = Path(__file__).parents[2]
SOURCES = {"loadtrim_agent": ROOT / "agent", "loadtrim": ROOT / "consumer_sdk"}


def breaks_layers(caller: str, called: str) -> bool:
    """Return whether the contracts forbid the file of a caller to import the called one.

    Args:
        caller: path below its package's folder, as ``loadtrim_agent/wire/codec.py``; so is ``called``. What is no file
            of ours (user code, Kafka) breaks nothing.
    """
    if not (caller.endswith(".py") and called.endswith(".py")):
        return False
    return any(_breaks(layers, container, caller, called) for layers, container in _contracts())


@cache
def is_handed_in(caller: str, function: str) -> bool:
    """Return whether a caller can call a function without importing it.

    It is a method of a ``Protocol`` that the caller may import, or it was made inside another function and given away.

    Args:
        caller: as above.
        function: qualified name.
    """
    if "<locals>" in function:
        return True
    files = _protocol_methods().get(function.rpartition(".")[2], ())
    return any(not breaks_layers(caller, file) for file in files)


def _breaks(layers: tuple[str, ...], container: str, caller: str, called: str) -> bool:
    above, below = (_place(layers, container, file) for file in (caller, called))
    if above is None or below is None or above == below:
        return False
    if above[0] == below[0]:
        return "|" in layers[above[0]]
    return above[0] > below[0]


def _place(layers: tuple[str, ...], container: str, file: str) -> tuple[int, str] | None:
    """The layer of a file, and its name in it; None: it is in none."""
    name = file.removesuffix(".py").replace("/", ".") + "."
    for number, layer in enumerate(layers):
        for module in layer.replace(":", "|").split("|"):
            if name.startswith(f"{container}{module.strip()}."):
                return number, module.strip()
    return None


@cache
def _contracts() -> list[tuple[tuple[str, ...], str]]:
    """Layers from the top down, and what stands before their names."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [
        (tuple(each["layers"]), f"{container}." if container else "")
        for each in listed
        if each["type"] == "layers"
        for container in each.get("containers", [""])
    ]


@cache
def _protocol_methods() -> dict[str, list[str]]:
    """Name of a method -> the files with a ``Protocol`` that has it."""
    found: dict[str, list[str]] = {}
    for package, folder in SOURCES.items():
        for path in sorted((folder / package).rglob("*.py")):
            text = path.read_text()
            # Most files have none, and reading their trees takes a second.
            for node in ast.walk(ast.parse(text)) if "Protocol" in text else ():
                if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases):
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                            found.setdefault(each.name, []).append(path.relative_to(folder).as_posix())
    return found
