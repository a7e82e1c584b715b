"""Announcements on the log of members that come and go, as far as no assignment shows them yet (rule 11)."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["Announcements"]

KEPT_MAX = 1000
"""Members that said hello and came into no map; each start of one that cannot get in has an id of its own."""


class Announcements:
    """A newcomer says hello after its JoinGroup, who leaves says so before its LeaveGroup: the map follows."""

    def __init__(self) -> None:
        self._here: dict[str, bool] = {}
        self._since_assignment: set[str] = set()

    def announce(self, member: str, *, here: bool) -> bool:
        """Note what was read; is it news, and not said before by a member that no map shows so yet?"""
        news = self._here.pop(member, None) is not here
        self._here[member] = here
        self._since_assignment.add(member)
        if len(self._here) > KEPT_MAX:
            del self._here[next(iter(self._here))]
        return news

    def unseen(self, members: Container[str]) -> bool:
        """A map was entered: is something that was heard since the last one still to come?"""
        self._here = {member: here for member, here in self._here.items() if (member in members) != here}
        since_assignment, self._since_assignment = self._since_assignment, set()
        return not since_assignment.isdisjoint(self._here)

    def forget(self) -> None:
        self._here = {}
        self._since_assignment = set()
