"""``docs/policies.md`` is what the code says."""

from __future__ import annotations

from loadtrim_agent.planning.registry import POLICIES
from unit.planning.published.page import PATH, page


def test_the_page_is_made_from_the_policies() -> None:
    text = PATH.read_text()
    assert text == page(), "make it again: cd tests && python -m unit.planning.published.page"
    assert all(f"`{name}`" in text for name in POLICIES)
