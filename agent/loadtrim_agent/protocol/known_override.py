"""Tell what the command line wants, as this member knows it: by the log, or by records that repeat it (rule 8)."""

from __future__ import annotations

from loadtrim_agent.wire.ownership_records import ManualOverrideRecord

__all__ = ["KnownOverride"]


class KnownOverride:
    """The last order of the command line. Of two in the log the later one counts, whatever clocks wrote them."""

    def __init__(self) -> None:
        self.latest: ManualOverrideRecord | None = None
        """None: nothing was wanted so far, or it is not known."""
        self.known = False
        """This member has read an order since records were missed, or was told by one that knew."""
        self._doubtful = False
        """Records were missed after it was read: a later order may be among them."""

    def read(self, order: ManualOverrideRecord) -> None:
        """Take in an order that stands in the log."""
        self.latest, self.known, self._doubtful = order, True, False

    def repeated(self, order: ManualOverrideRecord | None) -> None:
        """Take in what a record of one that knew, or a look at the log, says of the last order; None: there is none.

        What was read is newer. Where records were missed since, the later of both counts, by their writers' clocks.
        """
        self.known = True
        if order is None:
            return
        if self.latest is None or (self._doubtful and order.at > self.latest.at):
            self.latest = order

    def gap(self) -> None:
        """Records of the log were missed."""
        self.known, self._doubtful = False, True
