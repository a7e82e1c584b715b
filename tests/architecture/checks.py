"""All checks that have exceptions, each with its ceiling and what it counts in this repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from architecture import ceilings, language, mirror
from architecture.ratchet import Ceiling
from architecture.tree import ROOT, ours

__all__ = ["CHECKS"]

CHECKS: list[tuple[Ceiling, Callable[[], Mapping[str, int]]]] = [
    (ceilings.FUNCTIONS, lambda: ceilings.functions(ours())),
    (ceilings.FILES, lambda: ceilings.files(ours())),
    (ceilings.METHODS, lambda: ceilings.methods(ours())),
    (ceilings.MEMBERS, lambda: ceilings.members(ours())),
    (ceilings.ATTRIBUTES, lambda: ceilings.attributes(ours())),
    (ceilings.CALLABLES, lambda: ceilings.callables(ours())),
    (ceilings.ANYTHING, lambda: ceilings.anything(ours())),
    (ceilings.CLASS_NAMES, lambda: ceilings.class_names(ours())),
    (mirror.MIRROR, lambda: mirror.without_module(ROOT / "tests", [module.name for module in ours()])),
    (language.FIRST_WORDS, lambda: language.first_words(ours())),
    (language.SENTENCES, lambda: language.long_sentences(ours())),
    (language.WORDS, lambda: language.older_words(ours())),
]
