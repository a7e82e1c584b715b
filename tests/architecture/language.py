"""What a check can hold of the language: first words of docstrings, sentences of at most 25 words, older words.

Docstrings, texts below fields, and comments are read. Code in them (double backticks, indented blocks) counts as one
word, or not at all.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from architecture.ratchet import Ceiling
from architecture.tree import Module

__all__ = ["FIRST_WORDS", "OLDER", "SENTENCES", "WORDS", "first_words", "long_sentences", "older_words"]

SLACK = 10
"""Chosen: about what one piece of work on one room saves."""

FIRST_WORDS = Ceiling("first words", 0, "first lines that are no sentence", "begin with a subject or a command", SLACK)
SENTENCES = Ceiling("sentences", 0, "sentences of more than 25 words", "say one thing a sentence", SLACK)
WORDS = Ceiling("words", 0, "older words", "take the word that docs/glossary.md has for it", SLACK)

LONGEST = 25

FRAGMENT = (
    "what whatever whether who whom whose which how why it its they their them he she those that and or but so also "
    "then to same"
)
NO_SUBJECT = (
    "adds asks builds calls checks closes computes counts creates finds gets gives holds keeps makes opens parses "
    "prints puts raises reads removes returns runs says sends sets shows starts stops takes tells updates waits "
    "writes yields"
)
CONDITION = "when where while if"
"""First words of a fragment, or pronouns that point outside their sentence; verbs that lack their subject; words that
begin a fragment where no comma follows (``When the lease ends, ...`` is a sentence)."""

OLDER = {
    "who": "member, owner, leader, caller, broker or user code",
    "whom": "the same",
    "handout": "record buffer",
    "handouts": "record buffers",
    "lull": "idle point",
    "lulls": "idle points",
    "pinning": "initial commit",
    "departure": "leave",
    "brake": "manual override",
    "brakes": "manual override",
    "companion": "observer",
    "companions": "observers",
    "assembly": "services",
    "poke": "wake",
    "pokes": "wake",
    "stir": "wake",
    "stirs": "wake",
    "stirred": "wake",
    "lane": "channel",
    "lanes": "channels",
    "bundle": "fetch group",
    "bundles": "fetch groups",
    "patience": "stabilization window",
    "regret": "reversal",
    "regrets": "reversals",
    "futile": "ineffective scaling",
    "outlook": "estimate",
    "dealer": "longest first",
    "whys": "notes",
    "keeper": "process guard",
    "scatter": "index of dispersion",
    "overtaken": "is_stale",
    "handover": "handoff",
    "handovers": "handoffs",
}
"""Words that were this project's own, with the one that took the place. Words that are plain English elsewhere (hold,
take, say) are for the reviewer."""

Count = Callable[[Module], int]

_CODE = re.compile(r"``.+?``|:\w+:`.+?`|`.+?`", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[*-]|\d+\.)\s+|^\s*[\w*`, ]+:(?=\s|$)", re.MULTILINE)
_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\d(])|(?<=[.!?])\s+|\n\s*\n")
_COMMENT = re.compile(r"^\s*#+:?\s*(?P<line>.*)$|  #\s*(?P<end>[^'\"]*)$")
_DIRECTIVE = re.compile(r"noqa|type:|pragma|fmt:|ruff:|!")
_WORD = re.compile(r"[^\W_]")


def first_words(modules: Iterable[Module]) -> dict[str, int]:
    """Return by room how many docstrings' first lines are no sentence."""
    return _by_room(modules, lambda module: sum(map(_no_sentence, _docstrings(module))))


def long_sentences(modules: Iterable[Module]) -> dict[str, int]:
    """Return by room how many sentences are too long."""
    return _by_room(
        modules,
        lambda module: sum(len(_words(sentence)) > LONGEST for text in _prose(module) for sentence in _sentences(text)),
    )


def older_words(modules: Iterable[Module]) -> dict[str, int]:
    """Return by room how often an older word stands in prose, or in the name of a module, class or function."""
    return _by_room(
        modules,
        lambda module: sum(
            word in OLDER
            for text in (*_prose(module), *_defined(module))
            for word in re.findall(r"[a-z]+", text.lower())
        ),
    )


def _by_room(modules: Iterable[Module], count: Count) -> dict[str, int]:
    rooms: Counter[str] = Counter()
    for module in modules:
        rooms[module.room] += count(module)
    return dict(rooms)


@cache
def _docstrings(module: Module) -> tuple[str, ...]:
    """The docstrings of a module, its classes and functions, and the texts below fields and constants."""
    return tuple(
        child.value.value
        for node in (module.tree, *(node for _, node in module.definitions))
        for before, child in zip([None, *node.body], node.body, strict=False)
        if isinstance(child, ast.Expr)
        and isinstance(child.value, ast.Constant)
        and isinstance(child.value.value, str)
        and (before is None or isinstance(before, ast.Assign | ast.AnnAssign))
    )


def _comments(module: Module) -> Iterator[str]:
    """Comments; lines below each other are one text, directives to tools are none.

    Lines are looked at, not tokens, which would take longer than all other checks: a line of a string that begins with
    ``#`` counts as one.
    """
    text: list[str] = []
    for line in module.text.splitlines():
        comment = _COMMENT.search(line)
        if text and (not comment or comment["line"] is None):
            yield "\n".join(text)
            text = []
        if comment and not _DIRECTIVE.match(words := comment["line"] or comment["end"] or ""):
            text.append(words)
    if text:
        yield "\n".join(text)


@cache
def _prose(module: Module) -> tuple[str, ...]:
    return tuple(_CODE.sub("CODE", _without_blocks(text)) for text in (*_docstrings(module), *_comments(module)))


def _without_blocks(text: str) -> str:
    """A text without the indented blocks that follow ``::``, and without examples with prompts."""
    kept, within = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if within is not None and line.strip() and indent <= within:
            within = None
        if within is None and not line.lstrip().startswith((">>>", "...", "|")):
            kept.append(line)
        if line.rstrip().endswith("::"):
            within = indent
    return "\n".join(kept)


def _sentences(text: str) -> Iterator[str]:
    yield from _END.split(_BULLET.sub("\n\n", text))


def _words(sentence: str) -> list[str]:
    return [word for word in sentence.split() if _WORD.search(word)]


def _no_sentence(docstring: str) -> bool:
    first = _CODE.sub("CODE", docstring.strip().partition("\n\n")[0])
    words = _words(first)
    end = re.search(r"[.!?:]['\")]*(\s|$)", first)
    if not words or not end:
        return True
    word = words[0].strip(".,;:()'\"").lower()
    without_comma = "," not in first[: end.start()]
    return (
        words[0][0].islower()
        or word in FRAGMENT.split()
        or word in NO_SUBJECT.split()
        or (word in CONDITION.split() and without_comma)
    )


def _defined(module: Module) -> Iterator[str]:
    """The names that a module defines, in words."""
    names = [module.name, *(name for name, _ in module.definitions)]
    yield from (re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.rpartition(".")[2]).replace("_", " ") for name in names)
