"""What the history expects, measured against today: the leader's use of baselines.

Baselines tell records/s per topic and bucket of time; the group is sized by work. So everything here is the group's
total in busy seconds per second, each topic's records at what one of them costs now; what no baseline is about is taken
to go on as it is.

Today's level is that of the history times ``scale``: what was seen over what was expected (the median) in the last
hour, by sums that forget with a time constant of 30 minutes. That is long enough that neither a burst nor a bucket in
which the rise came a little early moves it much, and short enough that a holiday's load is found out before its peak.

Only ever more: the forecast is the larger of the trend and the baseline, and a group is not made smaller when the load
is expected back before a replica that was let go would have paid. A baseline that should not be believed is ignored,
and the decision says why (:class:`Ignored`): of single topics, or of all at once.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import msgspec
from msgspec import structs

from loadtrim_agent.wire.baseline_records import TOPICS_MAX, TopicCurve
from loadtrim_agent.wire.telemetry_records import BaselineUse

from .explain import NAMES_MAX
from .settling import answer_seconds
from .values import Estimate, PlanConfig

__all__ = [
    "BACK_SECONDS_MIN",
    "NOTHING_EXPECTED",
    "UNUSABLE",
    "Comparison",
    "Expectation",
    "Ignored",
    "look_ahead",
    "quantile_at",
    "startup_seconds",
]

PERIOD_SECONDS = 1800.0
"""Time constant of the comparison: the last hour has 86 % of its weight."""
COMPARED_SECONDS_MIN = 30.0
"""Before so much of today was seen its level is not known."""
SAMPLE_SECONDS_MAX = 5.0
"""What is seen at a decision stands for the time since the last one, but for no longer than this."""
SETTLE_SECONDS = 10.0
"""After the beginning of a bucket nothing is compared for so long: what is seen is some seconds old, and a load that
comes on the hour does not come on the second."""
STEP = 1.25
STEP_SETTLE_SHARE = 0.25
"""Where the expected steps by more than this from one bucket to the next, nothing is compared for this share of the
bucket: it tells the bucket's mean, and not when the load gets there. The first seconds of a high bucket outweigh a
night, so a rise that took two minutes looked like a day with half the load while the replicas for it were there."""
SCALE_MAX = 3.0
"""A day with more than this many times the expected load, or less than that part of it, is a day of another kind."""
OFF_MAX = 0.5
"""Mean distance between what was seen and what was expected at today's level, as a share of what was seen."""
BLOCK_SECONDS = 60.0
"""They are compared by whole minutes: a baseline's quantiles are of a minute's rate, and within one loads burst."""
CHANCE_SDS = 3.0
"""By so many standard deviations of chance nothing is contradicted. Chosen."""
BLOCK_RECORDS = (CHANCE_SDS / OFF_MAX) ** 2
"""Where a minute has fewer records, by as many minutes as these take to come. Derived: n records that come at random
are off by ``1 / sqrt(n)``, and so many standard deviations of that are :data:`OFF_MAX`."""
ERROR_MAX = 1.0
"""Error of the back-test of somebody who expects nothing at all: a baseline that is no better is worse than none."""
STALE_SECONDS = 8 * 86_400.0
"""A week has passed of which no slot has been learnt, and a day for a pipeline that is late."""
BACK_SECONDS_MIN = 10.0
STARTUPS_MIN = 10
"""The p90 of fewer start-ups is the longest of them, and the first members of a group often start faster than those
that are asked for later, for which there has to be a machine first."""
SHARES = (0.5, 0.9, 0.99)
"""Quantiles that baselines tell."""
SCORES = tuple(NormalDist().inv_cdf(share) for share in SHARES)
BELIEVED = 10.0
"""Bound of what is believed, in times the most that came: a claim does not count for more the larger it is. Chosen: a
morning after a night is a rise of less, where the night has any load."""
BELIEVED_KNOWN = 3.0
"""The same once a week was seen, with its highest hour. Chosen: as :data:`SCALE_MAX`."""
KNOWN_SECONDS = 7 * 86_400.0
BELIEVED_REPLICAS = 3.0
"""Replicas whose work is believed in any case: a group that has been idle rises from nothing. Chosen."""
MOST_SECONDS = 28 * 86_400.0
"""Time constant with which the most that was seen is forgotten. Chosen: four weeks."""
SLIGHT = 0.02
"""Share of what is expected next: a last hour in which less than that was expected and came, as at night, tells nothing
about today."""


class Ignored(enum.StrEnum):
    """Why a baseline was not counted in."""

    MISSING = "missing"
    """There is none that can be read: the usual case where no pipeline runs, and no fault."""
    TIME_ZONE = "time_zone"
    """Nobody here knows the zone whose week it follows."""
    STALE = "stale"
    BACK_TEST = "back_test"
    """On the last week it was no better than expecting nothing."""
    BLIND = "blind"
    """Reports are missing, so today's level is not known."""
    UNCOMPARED = "uncompared"
    """Too little of today was seen yet."""
    CONTRADICTED = "contradicted"
    """The last hour was not like it."""
    UNUSABLE = "unusable"
    """Nothing can be reckoned with it: a fault, of a record or of this agent."""


Refusal = tuple[Ignored, str]
"""Why something is ignored, for programs, and half a sentence for people; empty: there is nothing to add."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen beside what was expected: sums over time that forget what is long past."""

    at: float = 0.0
    seconds: float = 0.0
    seen: float = 0.0
    """Busy seconds."""
    expected: float = 0.0
    off: float = 0.0
    """Of |seen - expected at the level of the moment|, of blocks of time."""
    apart: float = 0.0
    """Of seen - expected at that level, in the block that is not over. For the next leader it is."""
    most: float = 0.0
    """The most work per second that came, forgotten slowly."""
    most_at: float = 0.0
    """When that was looked at last, seconds since the epoch."""
    most_since: float = 0.0
    """Since when it was looked at; 0: never."""

    @property
    def scale(self) -> float | None:
        """Today's level over the history's; None: nothing was expected."""
        return self.seen / self.expected if self.expected > 0.0 else None

    @property
    def distance(self) -> float:
        """Return by how much they were apart, busy seconds."""
        return self.off + abs(self.apart)

    def with_most(self, now: float, seen: float) -> Comparison:
        """Return the comparison with what comes now, work per second, among the most."""
        kept = self.most * math.exp(-max(0.0, now - self.most_at) / MOST_SECONDS)
        return structs.replace(self, most=max(kept, seen), most_at=now, most_since=min(self.most_since, now) or now)

    def believed(self, now: float, replica: float) -> float:
        """Return the most work per second that an expectation counts for.

        Args:
            now: seconds since the epoch.
            replica: work per second that a typical replica can do.
        """
        known = now - self.most_since >= KNOWN_SECONDS
        return max((BELIEVED_KNOWN if known else BELIEVED) * self.most, BELIEVED_REPLICAS * replica)

    def with_sample(self, now: float, seen: float, expected: float, grain: float = 0.0) -> Comparison:
        """A decision later.

        Args:
            now: seconds since the epoch.
            seen: work per second at that moment.
            expected: the same by the baseline.
            grain: work per record.
        """
        # A clock that goes back, as from one leader to the next, leaves this sample out, and no more than this one.
        elapsed = max(0.0, now - self.at)
        keep = math.exp(-elapsed / PERIOD_SECONDS)
        took = min(elapsed, SAMPLE_SECONDS_MAX)
        known = self.scale if self.seconds >= COMPARED_SECONDS_MIN else None
        # What is apart within a block cancels out as it came; only a gap without samples fades it.
        off, apart = self.off * keep, self.apart * (keep if elapsed > took else 1.0)
        if known is not None:
            apart += (seen - known * expected) * took
            block = _block_seconds(max(self.seen / self.seconds, known * expected), grain)
            if now // block > self.at // block:
                off, apart = off + abs(apart), 0.0
        return structs.replace(
            self,
            at=now,
            seconds=self.seconds * keep + took,
            seen=self.seen * keep + seen * took,
            expected=self.expected * keep + expected * took,
            off=off,
            apart=apart,
        )

    @classmethod
    def of(cls, use: BaselineUse, at: float) -> Comparison:
        """As an earlier leader's decision tells it."""
        return cls(
            at=at,
            seconds=use.seconds,
            seen=use.seen,
            expected=use.expected,
            off=use.off,
            most=use.most,
            most_at=at,
            most_since=min(use.most_since, at),
        )


def _block_seconds(level: float, grain: float) -> float:
    """Return the length of the blocks that are compared: whole minutes, within the memory."""
    if BLOCK_RECORDS * grain >= PERIOD_SECONDS * level:
        return PERIOD_SECONDS
    return BLOCK_SECONDS * max(1, math.ceil(BLOCK_RECORDS * grain / level / BLOCK_SECONDS))


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a baseline says at one decision, work per second of the group."""

    ahead: float | None = None
    """The most until the horizon; None: no baseline is counted in."""
    horizon_seconds: float = 0.0
    returning: float = 0.0
    """The most until a replica that is let go now would have paid."""
    use: BaselineUse | None = None
    """For the decision; None: nobody looked."""


NOTHING_EXPECTED = Expectation()
UNUSABLE = Expectation(use=BaselineUse(reason_code=Ignored.UNUSABLE.value, reason="it cannot be reckoned with"))
MISSING = Expectation(use=BaselineUse(reason_code=Ignored.MISSING.value))
"""Without the sums: most groups never have a baseline, and each of their decisions would carry them."""


def quantile_at(curve: TopicCurve, z: float) -> float:
    """A minute's rate relative to the expected that is exceeded no more often than ``z`` standard deviations are.

    The objective keeps z of them free (:attr:`.values.PlanConfig.z`), so the same quantile is asked of the baseline:
    84 % at a share of 0.999. Between those that are told the normal scores are interpolated; beyond p99 nothing is
    known, so that is the most.
    """
    for low, high, below, above in zip(SCORES, SCORES[1:], curve.quantiles, curve.quantiles[1:], strict=False):
        if z <= high:
            return below + (above - below) * (max(z, low) - low) / (high - low)
    return curve.quantiles[-1]


def startup_seconds(estimate: Estimate, told: float | None) -> float:
    """Return how long a replica that is asked for now takes to start: as measured, if that was often enough.

    Args:
        estimate: with what was measured.
        told: by the history (p90), or by the settings. It counts where it is longer and few were measured. None: it is
            not told.
    """
    if told is None or estimate.startups >= STARTUPS_MIN:
        return estimate.startup_seconds
    return max(estimate.startup_seconds, told)


def look_ahead(
    now: float,
    estimate: Estimate,
    curves: Mapping[str, TopicCurve],
    compared: Comparison,
    startup: float,
    config: PlanConfig,
) -> tuple[Expectation, Comparison]:
    """Compare, judge, and tell what is expected.

    Args:
        now: seconds since the epoch.
        seen: the estimate.
        curves: of the group's topics; topics that nobody subscribes are not looked at.
        compared: as the last decision left it.
        startup: seconds that a replica takes (:func:`startup_seconds`).
        config: of the planner.

    Returns:
        What is expected, and the comparison with this moment in it.

    Cost: ``O(partitions + topics)``.
    """
    if not curves:
        return MISSING, compared
    works, costs = _topics(estimate)
    refused = {topic: why for topic in sorted(works) if (why := _distrust(now, curves.get(topic))) is not None}
    told = {topic: curves[topic] for topic in sorted(works) if topic not in refused}
    if not told:
        codes = [code for code, _ in refused.values() if code is not Ignored.MISSING]
        return Expectation(use=_ignored(codes[0], "", refused, compared)) if codes else MISSING, compared
    if estimate.stale:
        # What is not seen would look like a day with less load.
        return Expectation(use=_ignored(Ignored.BLIND, "today's load is not seen", refused, compared)), compared

    def expected(start: float, end: float, z: float | None) -> float:
        factors = {t: curve.quantiles[0] if z is None else quantile_at(curve, z) for t, curve in told.items()}
        return sum((curve.most(start, end) or 0.0) * factors[t] * costs[t] for t, curve in told.items())

    present = sum(works[topic] for topic in told)
    compared = compared.with_most(now, present)
    if all(curve.since(now) >= _settle_seconds(curve, now) for curve in told.values()):
        compared = compared.with_sample(now, present, expected(now, now, None), estimate.grain)
    # Until a replica that is asked for now could help: it is decided and asked for, and it starts.
    horizon = answer_seconds(startup, estimate.restoring_seconds, config)
    # One that comes back costs while it starts: before a second start-up time has passed it was let go for nothing.
    paid = horizon + max(startup, BACK_SECONDS_MIN)
    believed = compared.believed(now, estimate.capacity_typical)
    scale = _scale(compared, SLIGHT * min(expected(now, now + paid, None), believed))
    if isinstance(scale, tuple):
        return Expectation(use=_ignored(*scale, refused, compared)), compared
    others = sum(work for topic, work in works.items() if topic not in told)
    ahead = min(scale * expected(now, now + horizon, config.z), believed) + others
    claimed = scale * expected(now, now + paid, config.z)
    returning = min(claimed, believed) + others
    use = _use(
        compared,
        refused,
        "it claims more than what ever came makes believable, so less of it counts" if claimed > believed else "",
        used=True,
        scale=round(scale, 4),
        quantile=round(NormalDist().cdf(config.z), 4),
        forecast=round(ahead, 4),
        returning=round(returning, 4),
        topics=tuple(sorted(told)) if len(told) < len(works) else (),
    )
    return Expectation(ahead=ahead, horizon_seconds=horizon, returning=returning, use=use), compared


def _settle_seconds(curve: TopicCurve, now: float) -> float:
    """How long after the beginning of this bucket nothing is compared."""
    return max(SETTLE_SECONDS, STEP_SETTLE_SHARE * curve.bucket_seconds if curve.step(now) > STEP else 0.0)


def _topics(estimate: Estimate) -> tuple[dict[str, float], dict[str, float]]:
    """Present work per topic, and what one of its records costs."""
    works: dict[str, float] = {}
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    for partition, entry in estimate.partitions.items():
        topic = partition.topic
        works[topic] = works.get(topic, 0.0) + entry.work
        rates[topic] = rates.get(topic, 0.0) + (entry.rate if entry.sized else 0.0)
        costs[topic] = max(costs.get(topic, 0.0), entry.cost)
    # With nothing arriving its most expensive partition stands for the topic.
    return works, {topic: works[topic] / rates[topic] if rates[topic] > 0 else costs[topic] for topic in works}


def _distrust(now: float, curve: TopicCurve | None) -> Refusal | None:
    """Why a topic's curve is not to be believed, whatever today is like."""
    if curve is not None and not curve.rates:
        return Ignored.TIME_ZONE, f"this machine does not know the time zone {curve.time_zone}"
    if curve is None or curve.most(now, now) is None:
        return Ignored.MISSING, ""
    age = now - curve.learnt_until
    if age > STALE_SECONDS:
        return Ignored.STALE, f"what it was learnt from ended {age / 86_400:.0f} days ago"
    if curve.error is not None and curve.error >= ERROR_MAX:
        return (
            Ignored.BACK_TEST,
            f"the back-test was off by {100.0 * curve.error:.0f} %, no better than expecting nothing",
        )
    return None


def _scale(compared: Comparison, slight: float) -> float | Refusal:
    """Today's level over the history's, or why the last hour speaks against the baseline.

    Args:
        compared: with this moment in it.
        slight: busy seconds per second that are as good as nothing.
    """
    if compared.seconds < COMPARED_SECONDS_MIN:
        return Ignored.UNCOMPARED, f"{compared.seconds:.0f} of {COMPARED_SECONDS_MIN:.0f} s of today are compared"
    if max(compared.seen, compared.expected) <= slight * compared.seconds:
        return 1.0
    scale = compared.scale
    if scale is None:
        return Ignored.CONTRADICTED, "nothing was expected in the last hour, and load came"
    if not 1.0 / SCALE_MAX <= scale <= SCALE_MAX:
        return Ignored.CONTRADICTED, f"{scale:.2f} times the expected load came in the last hour"
    if compared.distance > OFF_MAX * compared.seen:
        off = 100.0 * compared.distance / compared.seen if compared.seen > 0.0 else 100.0
        return Ignored.CONTRADICTED, f"the last hour was off what was expected by {off:.0f} %"
    return scale


def _ignored(why: Ignored, text: str, refused: Mapping[str, Refusal], compared: Comparison) -> BaselineUse:
    return _use(compared, refused, text, reason_code=why.value)


def _use(compared: Comparison, refused: Mapping[str, Refusal], text: str = "", **fields: Any) -> BaselineUse:
    """With what the next leader is to know.

    Args:
        compared: with this moment in it.
        refused: topics that are not counted in, whatever the others are like, and why.
        text: why all are ignored; empty: each for its own reason, or they are not.
        fields: the others.
    """
    # A group may read more topics than baselines are kept of; those that have one are named.
    named = sorted(refused, key=lambda topic: (refused[topic][0] is Ignored.MISSING, topic))[:TOPICS_MAX]
    reasons = [text] if text else []
    reasons += [f"for {topic} {refused[topic][1]}" for topic in named if refused[topic][1]]
    if len(reasons) > NAMES_MAX:
        reasons[NAMES_MAX:] = [f"and {len(reasons) - NAMES_MAX} more"]
    return BaselineUse(
        reason="; ".join(reasons),
        ignored={topic: refused[topic][0].value for topic in named},
        seconds=compared.seconds,
        seen=compared.seen,
        expected=compared.expected,
        off=compared.distance,
        most=compared.most,
        most_since=compared.most_since,
        **fields,
    )
