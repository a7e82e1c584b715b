"""Topics that are subscribed and not there: said once by us, instead of ten times a second by aiokafka."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator

__all__ = ["MISSING", "quiet_about"]

MISSING = (
    "Topic %s is not there. It is waited for, and nothing of it is consumed until it is: is the name right? "
    "Create it: kafka-topics.sh --bootstrap-server HOST:9092 --create --topic %s --partitions N"
)
_THEIRS = ("Topic %s not found in cluster metadata", "Topic %s is not available during auto-create initialization")


class _Filter(logging.Filter):
    """Drops what aiokafka says of topics that are not there."""

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__()
        self._topics = topics

    def filter(self, record: logging.LogRecord) -> bool:
        topic = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return record.msg not in _THEIRS or topic not in self._topics


@contextlib.contextmanager
def quiet_about(topics: Collection[str]) -> Iterator[None]:
    """Inside the block, aiokafka says nothing of these topics not being there."""
    logger, dropping = logging.getLogger("aiokafka.cluster"), _Filter(topics)
    logger.addFilter(dropping)
    try:
        yield
    finally:
        logger.removeFilter(dropping)
