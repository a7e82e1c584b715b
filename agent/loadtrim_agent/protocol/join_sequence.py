"""Numbers of the JoinGroups that members have sent, as far as they are known (rules 6 and 8); they only ever grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .events import JoinedMember

__all__ = ["JoinSequence"]


class JoinSequence:
    """The highest attempt known per member id, and up to which generation that knowledge is complete."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._generation = -1

    def covers(self, generation: int) -> bool:
        """Return whether all that happened before ``generation`` is known here."""
        return self._generation >= generation - 1

    def is_stale(self, members: Iterable[JoinedMember]) -> bool:
        """Return whether some member's JoinGroup is a delayed copy of one that was answered before (rule 8)."""
        return any(m.attempt is not None and m.attempt <= self._known.get(m.member, 0) for m in members)

    def answered(self, members: Iterable[JoinedMember]) -> None:
        """This member leads and was told of everybody's JoinGroup.

        Of what came before the generation it knows no more by that. A coordinator that takes over gives the number of a
        generation that was not stored once more, perhaps with another leader.
        """
        self.learn({m.member: m.attempt for m in members if m.attempt is not None})

    def entered(self, generation: int, attempts: Mapping[str, int]) -> None:
        """The map of ``generation`` was made from these; whoever is not in it is gone."""
        self._known = {member: max(attempt, self._known.get(member, 0)) for member, attempt in attempts.items()}
        self._generation = generation

    def learn(self, attempts: Mapping[str, int]) -> None:
        """These were seen; it is not known whether that is all."""
        for member, attempt in attempts.items():
            self._known[member] = max(attempt, self._known.get(member, 0))

    def forget(self) -> None:
        self._known = {}
        self._generation = -1
