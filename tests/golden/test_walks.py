"""The walks of docs/architecture.md: what the running code does, the transcripts, and the page are the same."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from walks.page import GOLDEN, PAGE, written
from walks.scenes import WALKS
from walks.transcript import files, parse, transcript

FILES_MAX = {"record": 16, "report": 24, "release": 14, "setting": 5}
"""Chosen: a newcomer reads no more files than these to follow one item."""
TRIES = 3
"""A machine that stands still for a moment may put a step of another task in between."""
WALK_SECONDS_MAX = 60.0
INTERLEAVED = frozenset({"report"})
"""Walks in which two tasks have the item at a time: which of them calls first is chance, the files are not."""
AGAIN = "PYTHONPATH=tests python -m walks --write"


@pytest.mark.parametrize(
    "walk", [pytest.param(name, marks=pytest.mark.slow if name in ("report", "setting") else ()) for name in WALKS]
)
async def test_the_code_takes_the_steps_of_the_transcript(walk: str) -> None:
    golden, played = (GOLDEN / f"{walk}.txt").read_text(), ""
    for _ in range(TRIES):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WALK_SECONDS_MAX):
                played = transcript((await WALKS[walk]()).steps)
        if _told(walk, played) == _told(walk, golden):
            break
    assert _told(walk, played) == _told(walk, golden), f"the item goes another way; if that is meant: {AGAIN}"


def _told(walk: str, text: str) -> object:
    return set(files(parse(text))) if walk in INTERLEAVED else text


def test_the_page_has_the_diagrams_of_the_transcripts_and_counts_todays_modules() -> None:
    page = PAGE.read_text()
    assert written(page) == page, f"docs/architecture.md is out of date: {AGAIN}"


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_passes_few_files(walk: str) -> None:
    assert len(files(parse((GOLDEN / f"{walk}.txt").read_text()))) <= FILES_MAX[walk]
