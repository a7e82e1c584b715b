"""What members said on the log of their coming and going, as far as no map shows it yet (rule 11)."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["Heard"]


class Heard:
    """A newcomer says hello after its JoinGroup, who leaves says so after its LeaveGroup: the map follows."""

    def __init__(self) -> None:
        self._here: dict[str, bool] = {}
        self._more = False

    def say(self, member: str, *, here: bool) -> bool:
        """Note what was read; is it news, and not said before by a member that no map shows so yet?"""
        news = self._here.get(member) is not here
        self._here[member] = here
        self._more = True
        return news

    def unseen(self, members: Container[str]) -> bool:
        """A map was entered: is something that was heard since the last one still to come?"""
        self._here = {member: here for member, here in self._here.items() if (member in members) != here}
        more, self._more = self._more, False
        return more and bool(self._here)

    def forget(self) -> None:
        self._here = {}
        self._more = False
