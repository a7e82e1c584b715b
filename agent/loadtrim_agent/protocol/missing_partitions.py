"""Partitions that members own or subscribe and that metadata does not show (rule 7).

What is owned is for a while taken to exist; and of both metadata is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .events import JoinedMember

__all__ = ["MissingPartitions"]

NEVER = float("inf")
GONE_SECONDS = 10.0
"""Chosen: a broker that has just started, or that lags, may not know of a topic for some seconds.

What is really gone has no records to lose meanwhile."""
ASK_SECONDS = 1.0
"""Chosen: the time between two questions for the metadata of a topic that is missing."""


class MissingPartitions:
    """Since when the leader has seen a topic with fewer partitions than members own, or with none.

    A client drops a topic from its metadata for any error of a broker. To believe that at once would take every
    partition of the topic from its owner, and give it back seconds later.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self.ask_at = NEVER
        """Time at which metadata is to be asked for again; NEVER: nothing is missing."""

    def believed(self, now: float, members: Iterable[JoinedMember], counts: Mapping[str, int]) -> dict[str, int]:
        """Return the partitions per topic: by metadata, or as many as are owned where more are not missing for long."""
        owned: dict[str, int] = {}
        for partition in (p for member in members for p in member.owned if p.topic in member.topics):
            owned[partition.topic] = max(owned.get(partition.topic, 0), partition.partition + 1)
        short = {topic: count for topic, count in owned.items() if count > counts.get(topic, 0)}
        for topic in set(owned) - set(short):
            self._found(topic)
        subscribed = {topic for member in members for topic in member.topics}
        for topic in subscribed - set(short):
            if not counts.get(topic, 0):
                self._gone(now, topic)
        return {**counts, **{topic: count for topic, count in short.items() if not self._gone(now, topic)}}

    def changed(self, now: float, assigned_for: Mapping[str, int], counts: Mapping[str, int]) -> bool:
        """Metadata is there. Return whether an assignment for other numbers is to be made."""
        changed = False
        for topic, count in assigned_for.items():
            shown = counts.get(topic, 0)
            if shown == count:
                if shown or self._gone(now, topic):  # a topic that is missing is asked for in vain so long
                    self._found(topic)
            elif shown > count or self._gone(now, topic):
                changed = True
        return changed

    def asked(self, now: float) -> tuple[str, ...]:
        """Return the topics to ask for now, sorted."""
        self.ask_at = now + ASK_SECONDS
        return tuple(sorted(self._since))

    def forget(self) -> None:
        """Another member leads: it looks for itself."""
        self._since.clear()
        self.ask_at = NEVER

    def _gone(self, now: float, topic: str) -> bool:
        since = self._since.setdefault(topic, now)
        self.ask_at = min(self.ask_at, now + ASK_SECONDS)
        return now >= since + GONE_SECONDS

    def _found(self, topic: str) -> None:
        self._since.pop(topic, None)
        if not self._since:
            self.ask_at = NEVER
