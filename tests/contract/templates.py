"""The templates of docs/templates, loaded from their files as a newcomer's copy would be."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["template"]

TEMPLATES = Path(__file__).parents[2] / "docs" / "templates"


def template(name: str) -> ModuleType:
    """Return the module ``docs/templates/<name>.py``."""
    spec = importlib.util.spec_from_file_location(f"template_{name}", TEMPLATES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where the types of its structs are looked up
    spec.loader.exec_module(module)
    return module
