"""What is on the baseline topic, and the curves that come of it.

The topic is compacted and holds what the Spark pipeline learnt of all groups (docs/baselines.md). Key: a JSON array
``[group, topic, partition]``, with null for what the record is not about; an empty value withdraws it. A group is sized
by its total, and partitions of one topic rise together, so only the records of whole topics are kept: one each, however
many partitions there are.

A record speaks of slots of the *local* week. Which slot a moment falls into is for the shell to say, which knows
calendars and changes of clocks: from then on everything is a curve over absolute time.

Rules as for the control topic: a new field has a default, unknown fields, kinds and later versions are ignored or read
as far as they are known, what cannot be read is counted and skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from .envelope import MALFORMED, UnreadableRecord
from .ranges import Moment, StartupSeconds, Sum

__all__ = [
    "TOPICS_MAX",
    "WEEK_SECONDS",
    "WINDOW_SECONDS",
    "BaselineRecord",
    "Baselines",
    "SlotsOf",
    "TopicCurve",
    "decode_baseline",
]

WEEK_SECONDS = 604_800
WINDOW_SECONDS = 6 * 3600.0
"""Curves reach so far ahead: further than a start-up time and the time after which letting a replica go has paid."""
BUCKET_SECONDS_MIN = 60
SHAPE_UNIT = 1000.0
"""Shapes are whole numbers, thousandths of the mean."""
GROWTH_MAX = 100.0
GROWTH_WEEKS_MAX = 4.0
"""Growth is carried on for no longer: what was learnt before that is no picture of today."""
TOPICS_MAX = 200
"""Topics of a group whose baselines are kept: with buckets of 5 minutes about 15 MB. More are counted and left out."""
RATE_MAX = 1e12
SHAPE_MAX = 10_080_000
"""All of a week in one of its minutes, in thousandths of the mean."""
QUANTILE_MAX = 1e9
KIND = "baseline"
WHOLE_GROUP = ""
"""In place of a topic, none of which has an empty name."""

SlotsOf = Callable[[str, int, int, int], Sequence[int] | None]
"""(time zone, seconds of a bucket, start of the first bucket since the epoch, number) -> slot of the local week of each
bucket; None: there is no such zone. An empty zone means the configured one."""


class BaselineRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from", "until": "to"}):
    """What the history expects of one topic of one group.

    Expected at t: ``rate * (1 + growth) ** ((t - at) / 604800) * shape[slot(t)] / 1000`` records/s.

    Raises:
        ValueError: a field is out of its range.
    """

    group: str
    topic: str
    at: Moment
    """Moment of learning, seconds since the epoch."""
    rate: Annotated[float, Meta(ge=0, le=RATE_MAX)]
    """Level at ``at``, records/s."""
    bucket_seconds: Annotated[int, Meta(ge=BUCKET_SECONDS_MIN, le=WEEK_SECONDS)]
    """Length of a slot: a divisor of the week, a minute or more."""
    shape: tuple[Annotated[int, Meta(ge=0, le=SHAPE_MAX)], ...]
    """Thousandths of the mean, per slot of the local week from Monday midnight."""
    until: Moment
    """End of what was learnt from."""
    since: Moment = 0.0
    growth: float = 0.0
    """Share per week."""
    quantiles: tuple[Annotated[float, Meta(ge=0, le=QUANTILE_MAX)], ...] = (1.0, 1.0, 1.0)
    """p50, p90, p99 of a minute's rate relative to the expected; what a later version adds behind them is ignored."""
    time_zone: str = ""
    """IANA name of the zone of the local week; empty: the configured one."""
    error: Sum | None = None
    """Of the back-test on the last week: sum of |rate - expected| / sum of rate. None: it could not be tested."""
    kind: str = KIND
    v: int = 1

    def __post_init__(self) -> None:
        if self.bucket_seconds < BUCKET_SECONDS_MIN or WEEK_SECONDS % self.bucket_seconds:
            raise ValueError(f"bucket_seconds is {self.bucket_seconds}, not a divisor of the week from 60 on")
        if len(self.shape) != WEEK_SECONDS // self.bucket_seconds or min(self.shape) < 0:
            raise ValueError(f"the shape has {len(self.shape)} slots, not a week's, or one is negative")
        if not 0.0 <= self.rate < math.inf or not -1.0 < self.growth < GROWTH_MAX:
            raise ValueError(f"rate {self.rate} or growth {self.growth} per week is no load")
        median, *more = self.quantiles[:3] if len(self.quantiles) >= 3 else (0.0,)
        if not 0.0 < median <= more[0] <= more[1] < math.inf:
            raise ValueError(f"quantiles are {list(self.quantiles)}, not three rising numbers above 0")
        if self.error is not None and not 0.0 <= self.error < math.inf:
            raise ValueError(f"error is {self.error}, not 0 or more")


class _GroupRecord(msgspec.Struct, frozen=True):
    """What the history tells of a group as a whole, as far as it is used here.

    Raises:
        ValueError: a field is out of its range.
    """

    kind: str = KIND
    startup_quantiles: tuple[StartupSeconds, ...] | None = None
    """p50, p90, p99 of start-up times, seconds; what a later version adds behind them is ignored."""

    def __post_init__(self) -> None:
        told = self.startup_quantiles
        if told is not None and not (len(told) >= 3 and all(0.0 <= seconds < math.inf for seconds in told)):
            raise ValueError(f"startup_quantiles are {list(told)}, not three times")


class _About(msgspec.Struct, frozen=True):
    """Which of the records it is."""

    kind: str = KIND
    group: str | None = None
    topic: str | None = None
    partition: int | None = None


_records = msgspec.json.Decoder(BaselineRecord)
_groups = msgspec.json.Decoder(_GroupRecord)
_abouts = msgspec.json.Decoder(_About)
_keys = msgspec.json.Decoder(list[str | int | None])


def decode_baseline(value: bytes) -> BaselineRecord | None:
    """Read the value of one record.

    Returns:
        None: it is not about a whole topic, or of a kind that a later version brought.

    Raises:
        UnreadableRecord: malformed bytes, or a field out of its range.
    """
    try:
        about = _abouts.decode(value)
        if about.kind != KIND or about.topic is None or about.partition is not None:
            return None
        return _records.decode(value)
    except MALFORMED as error:
        raise UnreadableRecord(str(error)) from error


class TopicCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of one topic, bucket by bucket of absolute time."""

    begins_at: float
    """Of the first bucket, seconds since the epoch."""
    bucket_seconds: float
    rates: tuple[float, ...]
    """Records/s expected in each bucket; empty: nobody here knows the time zone."""
    quantiles: tuple[float, float, float]
    """p50, p90, p99 of a minute's rate relative to these."""
    learnt_until: float
    """Seconds since the epoch."""
    error: float | None = None
    """Of the back-test; None: it could not be tested."""
    time_zone: str = ""
    """Whose week it follows, as the record names it."""

    def since(self, now: float) -> float:
        """Seconds since the bucket began that ``now`` is in."""
        return (now - self.begins_at) % self.bucket_seconds

    def step(self, now: float) -> float:
        """How many times the bucket before this one's rate, or the other way round, is expected now; 1 or more."""
        here, before = self.most(now, now), self.most(now - self.bucket_seconds, now - self.bucket_seconds)
        if here is None or before is None or here == before:
            return 1.0
        return max(here, before) / min(here, before) if min(here, before) > 0.0 else math.inf

    def most(self, start: float, end: float) -> float | None:
        """The highest rate of the buckets that overlap ``start .. end``; None: the curve does not know the start."""
        first = math.floor((start - self.begins_at) / self.bucket_seconds)
        last = math.floor((max(start, end) - self.begins_at) / self.bucket_seconds)
        return max(self.rates[first : last + 1]) if 0 <= first < len(self.rates) else None


class Baselines:
    """What is known of one group: a fold of the topic's records in their order. O(1) per record of another group.

    Args:
        group: whose records are kept.
        slots_of: the calendar.
    """

    def __init__(self, group: str, slots_of: SlotsOf) -> None:
        self._group = group
        self._slots_of = slots_of
        self._records: dict[str, BaselineRecord] = {}
        self._curves: dict[str, TopicCurve] | None = None
        self._made_at = 0.0
        self.startup_seconds: float | None = None
        """p90 of the start-up times that the history tells of; None: it tells of none."""
        self.left_out = 0
        """Records beyond :data:`TOPICS_MAX` topics."""

    def __len__(self) -> int:
        return len(self._records)

    @classmethod
    def of(cls, records: Sequence[BaselineRecord], slots_of: SlotsOf) -> Baselines:
        """Those records, whatever their groups; the last one of a topic counts."""
        made = cls("", slots_of)
        made._records = {record.topic: record for record in records}
        return made

    def clear(self) -> None:
        """The topic was made anew: nothing is known."""
        self._records.clear()
        self._curves = None
        self.startup_seconds = None

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Take in the next record of the topic.

        Returns:
            Whether what is known of this group is not what it was.

        Raises:
            UnreadableRecord: it should be this group's, and cannot be read. What was known of its topic is forgotten:
                it was replaced by something.
        """
        topic = self._topic(key)
        if topic is None:
            return False
        if topic == WHOLE_GROUP:
            return self._apply_group(value)
        known = self._records.pop(topic, None)
        self._curves = None
        record = decode_baseline(value) if value else None
        if record is not None and record.topic != topic:
            raise UnreadableRecord(f"the value is about {record.topic!r}, the key about {topic!r}")
        if record is not None and len(self._records) >= TOPICS_MAX:
            self.left_out += 1
            return known is not None
        if record is not None:
            self._records[topic] = record
        return record != known

    def _apply_group(self, value: bytes | None) -> bool:
        known, self.startup_seconds = self.startup_seconds, None
        try:
            told = _groups.decode(value) if value else _GroupRecord()
        except MALFORMED as error:
            raise UnreadableRecord(str(error)) from error
        if told.kind == KIND and told.startup_quantiles is not None:
            self.startup_seconds = told.startup_quantiles[1]
        return self.startup_seconds != known

    def _topic(self, key: bytes | None) -> str | None:
        """The topic that a key is about, or :data:`WHOLE_GROUP`; None: another group's, or about a partition."""
        try:
            parts = _keys.decode(key or b"[]")
        except MALFORMED:
            return None  # whose it is cannot be told
        if len(parts) != 3 or parts[0] != self._group or parts[2] is not None or isinstance(parts[1], int):
            return None
        return WHOLE_GROUP if parts[1] is None else parts[1]

    def curves(self, now: float) -> Mapping[str, TopicCurve]:
        """What is expected at ``now`` (seconds since the epoch) and for some hours, per topic.

        Those whose time zone nobody knows have no rates. The curves are made anew when something has changed or half of
        their window is over.

        Cost: then ``O(topics x window / bucket)``, else O(1).
        """
        if self._curves is None or not 0.0 <= now - self._made_at < WINDOW_SECONDS / 2:
            self._curves, self._made_at = self._made(now), now
        return self._curves

    def _made(self, now: float) -> dict[str, TopicCurve]:
        found: dict[str, TopicCurve] = {}
        for topic, record in sorted(self._records.items()):
            bucket = record.bucket_seconds
            # With the bucket before this one: whether the load has just stepped up or down.
            begin, count = (math.floor(now / bucket) - 1) * bucket, math.ceil(WINDOW_SECONDS / bucket) + 2
            found[topic] = _curve(record, begin, self._slots_of(record.time_zone, bucket, begin, count) or ())
        return found


def _curve(record: BaselineRecord, begin: int, slots: Sequence[int]) -> TopicCurve:
    bucket = record.bucket_seconds
    weeks = [(begin + index * bucket - record.at) / WEEK_SECONDS for index in range(len(slots))]
    grown = [(1.0 + record.growth) ** min(max(week, -GROWTH_WEEKS_MAX), GROWTH_WEEKS_MAX) for week in weeks]
    return TopicCurve(
        begins_at=float(begin),
        bucket_seconds=float(bucket),
        rates=tuple(
            record.rate * factor * record.shape[slot] / SHAPE_UNIT for factor, slot in zip(grown, slots, strict=True)
        ),
        quantiles=(record.quantiles[0], record.quantiles[1], record.quantiles[2]),
        learnt_until=record.until,
        error=record.error,
        time_zone=record.time_zone,
    )
