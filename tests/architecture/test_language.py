"""The checks of the language find what they are for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from architecture import language
from architecture.tree import ROOT, Module

TEMPLATES = sorted((ROOT / "docs" / "templates").glob("*.py"))


def module(text: str) -> Module:
    return Module("pack", text)


@pytest.mark.parametrize(
    "docstring",
    [
        "Return the number of partitions.",
        "The partition is stopped.",
        "``W`` is the objective, in seconds.",
        "When the lease ends, records wait.",
        "Seconds until the lease ends:\\n\\n* without a heartbeat",
    ],
)
def test_sentences_begin_well(docstring: str) -> None:
    assert language.first_words([module(f'"""{docstring}"""')]) == {"pack": 0}


@pytest.mark.parametrize(
    "docstring",
    [
        "What the leader decides.",
        "Whether it is late.",
        "They are late.",
        "Runs the loop.",
        "Where plans are sent to.",
        "the partition.",
        "A line without an end",
    ],
)
@pytest.mark.parametrize("where", ['"""{}"""', 'class C:\n    """{}"""', 'def f():\n    """{}"""', 'X = 1\n"""{}"""'])
def test_fragments_are_found_in_every_docstring(docstring: str, where: str) -> None:
    assert language.first_words([module(where.format(docstring))]) == {"pack": 1}


def words(count: int) -> str:
    return "Word" + " word" * (count - 1) + "."


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f'"""{words(25)}"""', 0),
        (f'"""{words(26)}"""', 1),
        (f'"""{words(20)} {words(20)}"""', 0),
        (f'"""{words(20)[:-1]}; {words(6)}"""', 1),
        (f'"""{words(5)}\n\n* {words(20)[:-1]}\n* {words(20)}"""', 0),
        (f'"""{words(24)[:-1]} ``a b c d e f``."""', 0),
        (f'"""Example::\n\n    {words(30)}\n\n{words(5)}"""', 0),
        (f"# {words(13)[:-1]}\n# {words(13)}", 1),
        (f"x = 1  # {words(26)}", 1),
        (f"# {words(13)[:-1]}\nx = 1  # {words(13)}", 0),
    ],
)
def test_sentences_have_at_most_25_words(text: str, count: int) -> None:
    assert language.long_sentences([module(text)]) == {"pack": count}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""The member who leads."""', 1),
        ("# At the next lull, the lanes close.", 2),
        ("class HandoutQueue: ...", 1),
        ("def poke_all(): ...", 1),
        ('"""The whole record buffer."""', 0),
        ('"""``lull`` in code is a name that users see."""', 0),
    ],
)
def test_older_words_are_found_in_prose_and_names(text: str, count: int) -> None:
    assert language.older_words([module(text)]) == {"pack": count}


def test_counts_are_kept_by_room() -> None:
    assert language.older_words([module("# lull"), module("# lull")]) == {"pack": 2}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.parametrize("check", [language.first_words, language.long_sentences, language.older_words])
def test_a_copy_of_a_template_adds_nothing_to_the_lists(path: Path, check: Callable[..., dict[str, int]]) -> None:
    assert check([Module("pack", path.read_text())]) == {"pack": 0}
