"""The options that a file is read by, for what it does not say itself."""

from __future__ import annotations

from dataclasses import dataclass

from .amounts import Quantity
from .load import RATE_MAX, SECONDS_MAX, WrongLoadError, check_partitions, digits

__all__ = ["PARTITIONS_DEFAULT", "Reading", "check_applies"]

BYTES_MAX = 1 << 30
SPEED_UP_MAX = 1e6
PARTITIONS_DEFAULT = 9
ABOUT = {
    "record_bytes": "files that tell bytes",
    "capacity": "files of Landau'24's streams",
    "interval": "files of Landau'24's streams",
    "speed_up": "recorded times",
    "values": "tables",
}
"""The options that are about some loads only -> which loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options for what a file does not say."""

    partitions: int | None = None
    """Deal the total out over so many, evenly and by chance; None: those in the file, 9 where it names none."""
    record_bytes: float | None = None
    """Size of a record, for files that tell bytes and no others: above 0, at most 1 GiB."""
    capacity: float | None = None
    """Records/s that 100 % means in Landau'24's streams, and in no others; None: 100."""
    interval: float | None = None
    """Seconds that each of their rows lasts, at most 31 days; None: 30."""
    values: Quantity | None = None
    """Kind of thing that the numbers of a table count; None: as its column, or the distance of its rows, tells."""
    speed_up: float = 1.0
    """A row's time counts as so much less: 60 plays a minute in a second, at the same rate per second. 1e-6 to 1e6."""
    begin: int = 0
    """The first second that is read, as it is played: after ``speed_up``."""
    seconds: int | None = None
    """The number of seconds that are read; None: all from ``begin`` on. Only these have to be short enough."""

    def __post_init__(self) -> None:
        for name, value, most, unit in (
            ("record_bytes", self.record_bytes, BYTES_MAX, "bytes"),
            ("capacity", self.capacity, RATE_MAX, "records/s"),
            ("interval", self.interval, SECONDS_MAX, "seconds"),
        ):
            if value is not None and not 0.0 < value <= most:
                raise WrongLoadError(
                    f"{_option(name)} is {digits(value)}; it must be a number of {unit} above 0, at most {most:,.0f}."
                )
        if not 1.0 / SPEED_UP_MAX <= self.speed_up <= SPEED_UP_MAX:
            raise WrongLoadError(
                f"--speed-up is {digits(self.speed_up)}; it must be a number from {1.0 / SPEED_UP_MAX:g} to "
                f"{SPEED_UP_MAX:,.0f}."
            )
        if self.values is not None and self.values not in tuple(Quantity):
            raise WrongLoadError(f"--values is {self.values!r}; it can be {', '.join(Quantity)}.")
        if self.partitions is not None:
            check_partitions(self.partitions)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_applies(source: str, kind: str, given: object, *names: str) -> None:
    """Is none of these given? They are not about loads of this kind, and would be ignored without a word.

    Args:
        source: the load's, for messages.
        kind: what it is, as in "a table".
        given: has an attribute for each name; None: not given.
        names: of :data:`ABOUT`.

    Raises:
        WrongLoadError: one is.
    """
    for name in names:
        if getattr(given, name) is not None:
            raise WrongLoadError(f"{source}: {_option(name)} is for {ABOUT[name]}, and this is {kind}; leave it out.")
