"""Search for the fewest replicas that hold an objective, run by run, whoever plays the runs."""

from __future__ import annotations

from .judge import Verdict

__all__ = ["Search"]


class Search:
    """One search.

    More replicas are taken to be no worse than fewer, so that it ends at the first number that holds above one that
    does not.

    Args:
        least: fewest that could hold it: fewer cannot keep up.
        most: more are not tried.
        share: of the judged records to be in time.
        begin: number to begin with, where another search has found one; None: ``least``.
    """

    def __init__(self, least: int, most: int, share: float, begin: int | None = None) -> None:
        self._least = min(least, most)
        self._most = most
        self._share = share
        self._begin = min(max(begin if begin is not None else least, self._least), most)
        self.tried: dict[int, Verdict] = {}
        """Replicas -> what came of it."""

    @property
    def fewest(self) -> int | None:
        """Return the fewest of those tried that hold it; None: none did."""
        return min((n for n, verdict in self.tried.items() if verdict.holds(self._share)), default=None)

    @property
    def next(self) -> int | None:
        """Return the number to try now; None: the search has ended."""
        if not self.tried:
            return self._begin
        fewest = self.fewest
        wanted = fewest - 1 if fewest is not None else max(self.tried) + 1
        return wanted if self._least <= wanted <= self._most and wanted not in self.tried else None

    def tell(self, replicas: int, verdict: Verdict) -> None:
        """Note what came of a run."""
        self.tried[replicas] = verdict
