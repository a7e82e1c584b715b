"""What tests of random schedules share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Whatever is logged is kept nowhere: of thousands of faults each is told."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
