"""Names of the topics that loadtrim keeps for itself.

Theory: Kafka takes topic names of ``[a-zA-Z0-9._-]``, at most 249 characters long, and refuses a name that
equals another one once ``.`` and ``_`` are the same (its metrics cannot tell them apart). Group ids are any
text. So a group id is written with ``_`` as the escape character: letters, digits and ``-`` stand for
themselves, every other byte of its UTF-8 form is ``_`` and two hexadecimal digits. No ``.`` is ever part of
the result, so two names are equal for Kafka's rule exactly when they are equal, and no two ids share one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.settings import BASELINE_TOPIC

__all__ = [
    "BASELINE_TOPIC",
    "CONTROL_PREFIX",
    "TOPIC_NAME_MAX",
    "check_topic_name",
    "control_topic",
    "group_of",
    "is_internal",
]

CONTROL_PREFIX = "__loadtrim."
TOPIC_NAME_MAX = 249
"""Kafka's limit for a topic's name, in characters."""

_DIGEST_MARK = "_h"
"""Stands before the digest of a long group id. No escape begins so: ``h`` is no hexadecimal digit."""
_DIGEST_LENGTH = 64
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_ESCAPED = re.compile("(?:[a-zA-Z0-9-]|_[0-9a-f]{2})+")
_LEGAL = re.compile(f"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX}}}")
_ESCAPE = re.compile("_([0-9a-f]{2})")


def control_topic(group: str) -> str:
    """Name of a group's control topic: ``payments-service`` has ``__loadtrim.payments-service``.

    A group id whose escaped form is longer than 238 characters keeps its beginning, for people to read, and
    is told from others by the SHA-256 of the whole.

    Args:
        group: the group id, any text but none.

    Returns:
        A legal topic name of at most 249 characters, different for every group id, also by Kafka's rule that
        ``.`` and ``_`` collide.

    Raises:
        LoadtrimError: the group id is empty, or cannot be written as UTF-8.
    """
    if not group:
        raise LoadtrimError("the group id is empty, so it has no control topic; give the consumer a group_id")
    try:
        data = group.encode()
    except UnicodeEncodeError as error:
        raise LoadtrimError(
            f"the group id {group!r} is not text that Kafka can carry (at {error.start}); choose another"
        ) from error
    pieces = [chr(byte) if chr(byte) in _PLAIN else f"_{byte:02x}" for byte in data]
    room = TOPIC_NAME_MAX - len(CONTROL_PREFIX)
    if sum(map(len, pieces)) <= room:
        return CONTROL_PREFIX + "".join(pieces)
    beginning = _cut(pieces, room - len(_DIGEST_MARK) - _DIGEST_LENGTH)
    return CONTROL_PREFIX + beginning + _DIGEST_MARK + hashlib.sha256(data).hexdigest()


def group_of(topic: str) -> str | None:
    """The group that a control topic belongs to, where its name tells.

    Returns:
        The group id; None for a topic that is no control topic, and for the hashed name of a long group id.
    """
    escaped = topic.removeprefix(CONTROL_PREFIX)
    if not topic.startswith(CONTROL_PREFIX) or not _ESCAPED.fullmatch(escaped):
        return None
    try:
        group = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), escaped).encode("latin-1").decode()
    except UnicodeDecodeError:
        return None
    return group if control_topic(group) == topic else None


def is_internal(topic: str, also: Collection[str] = ()) -> bool:
    """Whether a topic is one of loadtrim's own, which a subscription by pattern never matches.

    Args:
        topic: the topic's name.
        also: control and baseline topics under names of the user's (``LOADTRIM_CONTROL_TOPIC``,
            ``LOADTRIM_BASELINE_TOPIC``).
    """
    return topic.startswith(CONTROL_PREFIX) or topic == BASELINE_TOPIC or topic in also


def check_topic_name(topic: str) -> None:
    """Raise ``ValueError`` for what no topic can be called."""
    if not _LEGAL.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(
            f"no topic can be called so. Allowed are letters, digits, '.', '_' and '-', {TOPIC_NAME_MAX} at most"
        )


def _cut(pieces: list[str], room: int) -> str:
    """As many whole pieces as fit."""
    kept = ""
    for piece in pieces:
        if len(kept) + len(piece) > room:
            break
        kept += piece
    return kept
