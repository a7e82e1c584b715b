"""One of the shapes as a service: ``loadtrim up -- python examples/programs/service.py``.

It takes the variables of :mod:`payments.service` and ``PROGRAMS_SHAPE``, the name of a shape. A record says how long it
takes: ``{"id": "17", "busy_seconds": 0.3}``. The journal is that of the payments service.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from payments.clients import consumer_of
from payments.service import Journal, ServiceOptions, serve
from programs.shapes import SHAPES

__all__ = ["Task", "run"]

SHAPE = "PROGRAMS_SHAPE"


class Task(msgspec.Struct, frozen=True):
    """The value of a record."""

    id: str
    busy_seconds: float


class _JournaledWork:
    """Waiting for as long as a record says, with a line in the journal before and after."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    async def __call__(self, record: Any) -> None:
        await asyncio.sleep(self._begin(record))
        self._end(record)

    def blocking(self, record: Any) -> None:
        time.sleep(self._begin(record))
        self._end(record)

    def _begin(self, record: Any) -> float:
        task = msgspec.json.decode(record.value, type=Task)
        if self._journal:
            self._journal.handed_out(record, task.id)
        return task.busy_seconds

    def _end(self, record: Any) -> None:
        if self._journal:
            self._journal.done(record)


async def run(options: ServiceOptions) -> None:
    """Consume until SIGTERM, as the shape does it."""
    shape = SHAPES[os.environ[SHAPE]]
    journal = Journal(options.journal, options.instance) if options.journal else None
    keywords = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "auto_offset_reset": "earliest",
        **shape.options,
        **options.extra,
    }
    try:
        async with consumer_of(options.client, options.topics, keywords) as consumer:
            await shape.run(consumer, _JournaledWork(journal))
    finally:
        if journal:
            journal.close()


if __name__ == "__main__":
    sys.exit(serve(run))
