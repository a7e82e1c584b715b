"""What is over a ceiling is listed with today's number, and no number is larger than it was."""

from __future__ import annotations

import pytest

from architecture.checks import CHECKS
from architecture.ratchet import EXCEPTIONS, problems, read


def test_the_list_has_a_table_per_check() -> None:
    assert list(read(EXCEPTIONS.read_text(encoding="utf-8"))) == [ceiling.title for ceiling, _ in CHECKS]


@pytest.mark.parametrize("title", [ceiling.title for ceiling, _ in CHECKS])
def test_nothing_grows(title: str) -> None:
    [(ceiling, count)] = [each for each in CHECKS if each[0].title == title]
    found = problems(ceiling, count(), read(EXCEPTIONS.read_text(encoding="utf-8"))[title])
    assert not found, "\n".join(["", *found])
