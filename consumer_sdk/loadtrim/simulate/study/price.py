"""A price per replica-hour, in whatever currency it was given, and what replicas cost by it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..loads.load import WrongLoadError

__all__ = ["MONTH_HOURS", "Price", "parse_price"]

MONTH_HOURS = 730.0
"""365 days of 24 hours, a twelfth of them."""
DIGITS = 3
"""Of an amount of money, at least: chosen."""
_PRICE = re.compile(r"(?P<before>[^\d.,+\-\s]*)\s*(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<behind>[^\d.,+\-\s]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price of a replica for an hour."""

    per_replica_hour: float
    before: str = ""
    """The currency, where it stands in front: ``$``."""
    behind: str = ""
    """The currency, where it stands behind: ``EUR``."""

    def of(self, replica_minutes: float) -> float:
        """Return what so many replica-minutes cost."""
        return self.per_replica_hour * replica_minutes / 60.0

    def per_month(self, replica_minutes: float, seconds: float) -> float:
        """Return what a month costs of which every part is like this: so many replica-minutes in so many seconds."""
        return self.of(replica_minutes) * MONTH_HOURS * 3600.0 / seconds

    def text(self, amount: float) -> str:
        """Return an amount in the currency: with cents, and as many digits as tell small ones apart."""
        digits = 2
        if 0.0 < abs(amount) < 1.0:
            digits = max(2, DIGITS - 1 - math.floor(math.log10(abs(amount))))
        space = " " if self.behind[:1].isalpha() else ""
        return f"{self.before}{amount:,.{digits}f}{space}{self.behind}"


def parse_price(text: str) -> Price:
    """Read ``0.12``, ``$0.12``, ``0.12EUR`` or ``0.12 EUR``.

    Raises:
        WrongLoadError: it is no price above 0.
    """
    match = _PRICE.fullmatch(text.strip())
    number = float(match["number"]) if match else 0.0
    if match is None or not 0.0 < number < math.inf or (match["before"] and match["behind"]):
        raise WrongLoadError(
            f"--price is {text!r}, and no price of a replica for an hour; write a number above 0, like 0.12, $0.12 or "
            "0.12EUR."
        )
    return Price(per_replica_hour=number, before=match["before"], behind=match["behind"])
