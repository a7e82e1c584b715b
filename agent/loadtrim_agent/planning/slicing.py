"""What a member does when it will not be done in time, and somebody else would be: pass work on inside the objective.

Packing whole partitions wastes what does not divide: 5 partitions on 4 members work like 3. Handoffs of milliseconds
let a partition be worked on by one member first and by another one afterwards, so that the work of all must fit.

Theory of operation. A member looks at every record boundary, and decides for itself alone:

* *hard tier*. What is in its queues, on its way to it and in its hand, less what it can do until the youngest of these
  records is too old, is its excess. Above one and a half records (the one in hand counts as a whole one, however much
  of it is done), it gives one partition to somebody who has the time: the smallest partition that holds the excess. If
  it holds hardly more than that it goes at once; else it is worked on FIRST, until only the excess is left in it, and
  goes then. (McNaughton's wrap-around rule: the part that is left over is the end of one member's time and of another
  one's, and the two never overlap, because the partition is with one of them at a time.)
* *soft tier*. Where nothing would be late but a member would be done much later than another: the partition that
  halves the difference best. Rate-limited, for it is a comfort and no promise.
* a partition that was taken over lately is given on last: what goes back and forth is in nobody's hand meanwhile.

* a partition that nobody could finish in time stays where it is, and the others make room for it.

Who has the time is known from the others' ``load`` records, half a second old, and from what was promised and released
since, which is on the log (:func:`predicted`).

Source: R. McNaughton, *Scheduling with deadlines and loss functions*, 1959. Changed: the work is not known beforehand
and moving costs a handoff, so it is decided anew at every step, each member for itself.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence

import msgspec

from loadtrim_agent.common.errors import LoadtrimError
from loadtrim_agent.common.partition import Partition

__all__ = [
    "BURST_SHARE",
    "LOOK_SECONDS",
    "QUIET_SHARE",
    "SLICES_PER_LOOK_MAX",
    "SOFT_SECONDS",
    "Limits",
    "Own",
    "Peer",
    "Slice",
    "SliceError",
    "SlicingOff",
    "Tier",
    "predicted",
    "sliced",
]

LOOK_SECONDS = 0.02
"""The time between two looks while much waits: about the length of a few records."""
QUIET_SHARE = 0.25
"""Of the objective: with less work waiting nothing is looked at closely."""
BURST_SHARE = 0.1
"""Of the objective: where so much work came since the last look, the others are told at once. Chosen."""
SLICES_PER_LOOK_MAX = 4
SOFT_SECONDS = 20.0
"""The least time between two soft slices of a group. Measured (decision on slicing): once a second made a fifth more
moves and no more records in time."""

SOFT_LATENCY_SHARE = 0.5
"""Of the objective: below it nobody is bothered for comfort."""
SOFT_GAP_SHARE = 0.15
SOFT_GAP_HANDOFFS = 4.0
"""The difference that is worth a move: this share of the objective and this many handoffs at least."""
EXCESS_COSTS_MIN = 1.5
"""Records; what is less is noise: the record in hand counts as a whole one."""


class SliceError(LoadtrimError, ValueError):
    """Queues, limits or times that nothing can be decided by. Raised where the value is made, or by what is called with
    it."""


class Tier(enum.StrEnum):
    """Why work is passed on."""

    HARD = "hard"
    """It would be late here."""
    SOFT = "soft"
    """It would be in time here, and much sooner there."""


class SlicingOff(enum.StrEnum):
    """Reason why a member passes nothing on."""

    NOTHING = ""
    """There is none: it may."""
    SETTING = "setting"
    """``LOADTRIM_SLICING`` is ``off``."""
    SHADOW = "shadow"
    """In mode ``shadow`` only a plan moves partitions, when members come or go."""
    MIXED = "mixed"
    """In a mixed group nothing moves."""
    MANUAL_COMMITS = "manual_commits"
    """Only what user code commits counts, transactions included: each slice would repeat what is not committed yet."""
    LISTENER = "listener"
    """A rebalance listener of the plain kind is called for each partition that comes or goes, and delivery waits."""
    OBJECTIVE = "objective"
    """The objective is too short for what a handoff takes."""
    HANDOFFS = "handoffs"
    """Handoffs take a good part of the objective, as where a new owner restores what it keeps about a partition."""
    UNTOLD = "untold"
    """Nobody knows when records are done, so nobody knows what they cost."""
    LEAVING = "leaving"
    REBALANCE = "rebalance"
    """The member is in no generation now."""
    BLIND = "blind"
    """In a blind generation nothing moves."""
    LOG = "log"
    """The coordination log cannot be read or written."""

    @property
    def passing(self) -> bool:
        """Return whether it is soon over, so that a group is sized as if it were: each time would start a replica."""
        return self in _PASSING


_PASSING = frozenset({SlicingOff.MIXED, SlicingOff.LEAVING, SlicingOff.REBALANCE, SlicingOff.BLIND, SlicingOff.LOG})


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of this member's. Work in busy seconds of this member."""

    partition: Partition
    work: float
    """Of what waits in it, the record in hand included."""
    cost: float
    """Of one of its records."""
    newest_age: float
    """Seconds since its youngest record came; 0 where nothing waits."""
    movable: bool = True
    """False: on its way, paused, or at rest after a move that failed."""
    taken_seconds: float = math.inf
    """For how long this member has had it."""
    rate: float = 0.0
    """Work that arrives in it, busy seconds per second."""

    def __post_init__(self) -> None:
        values = (self.work, self.cost, self.rate)
        if not all(0.0 <= value < math.inf for value in values) or not math.isfinite(self.newest_age):
            raise SliceError(f"the queue of {self.partition} is {values}, which is negative or no finite number")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another member that may be given work."""

    member: str
    busy_seconds: float
    """How long it is busy with what it has, what is on its way to it included."""
    speed: float = 1.0
    """Times as fast as this member."""
    slack: float = 1.0
    """Busy seconds per second that it has left over in the long run."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.busy_seconds < math.inf or not 0.0 < self.speed < math.inf or not math.isfinite(self.slack):
            raise SliceError(
                f"{self.member} is said to be busy for {self.busy_seconds} s at a speed of {self.speed}, and cannot be"
            )


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be kept, and what a move costs. Seconds."""

    objective_seconds: float
    margin_seconds: float = 0.02
    """Kept free of the objective: the handoff at its slowest, and the record in hand."""
    handoff_seconds: float = 0.015
    rest_seconds: float = 0.1
    """What was taken over less long ago is not given on."""
    soft: bool = True
    """Is the soft tier allowed now? The group's rate limit says."""

    def __post_init__(self) -> None:
        values = (self.objective_seconds, self.margin_seconds, self.handoff_seconds, self.rest_seconds)
        if not all(0.0 <= value < math.inf for value in values) or self.objective_seconds <= self.margin_seconds:
            raise SliceError(f"limits of {values} s leave no time to do anything in")


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Pass a partition on."""

    partition: Partition
    target: str
    tier: Tier
    keep_records: int = 0
    """So many of its records are to be done here first, before all others; 0: it goes at once."""


def predicted(
    queue_seconds: float, told_at: float, changes: Iterable[tuple[float, float]], now: float, capacity: float
) -> float:
    """How long another member is busy now, by what it told last.

    It has worked since, records came, and what it passes on or is given is known: work is neither lost nor made up.
    How its records came is judged by one's own: bursts reach all members of a topic together.

    Args:
        queue_seconds: work that waited there when it told, busy seconds.
        told_at: when that was, seconds.
        changes: (when, busy seconds) that came since, or went (negative), in any order.
        now: seconds.
        capacity: busy seconds per second that it can give, 0 or more.

    Returns:
        Seconds, never negative; infinite without capacity.

    Raises:
        SliceError: a queue or a capacity that is negative or not finite, a time that is not finite.

    Cost: O(n log n) for n changes.
    """
    # What is not a number would come out as 0.0, which is an idle member that everybody gives their work to.
    if not (0.0 <= queue_seconds < math.inf and 0.0 <= capacity < math.inf and -math.inf < told_at + now < math.inf):
        raise SliceError(
            f"a member is said to have told {queue_seconds} s of work at {told_at} s and to have a capacity of "
            f"{capacity} at {now} s, of which one is negative or no finite number, so it is not known how long it is "
            "busy; give what was measured"
        )
    if capacity == 0.0:
        return math.inf
    queue, at = queue_seconds, told_at
    for when, work in sorted(changes):
        if when > at:
            # It was idle where there was nothing to do, however much comes now.
            queue, at = max(0.0, queue - capacity * (when - at)), when
        queue = max(0.0, queue + work)
    return max(0.0, queue / capacity - (now - at))


def sliced(
    own: Sequence[Own], peers: Sequence[Peer], limits: Limits, *, incoming_seconds: float = 0.0, capacity: float = 1.0
) -> Slice | None:
    """What to pass on now, if anything; one partition at a time.

    Args:
        own: this member's partitions, in any order.
        peers: the others that may be given them, in any order.
        limits: what has to be kept.
        incoming_seconds: work on its way to this member, busy seconds, 0 or more.
        capacity: busy seconds per second of this member, 0 or more; without any, nothing is decided.

    Returns:
        The partition, who is to have it, and how much of it is to be done here first. None: all is well, or nobody can
        help. The same for the same input in any order.

    Raises:
        SliceError: work on its way or a capacity that is negative or not finite.

    Cost: O(p + m).
    """
    if not (0.0 <= incoming_seconds < math.inf and 0.0 <= capacity < math.inf):
        raise SliceError(
            f"{incoming_seconds} s of work are said to be on their way to a member with a capacity of {capacity}, of "
            "which one is negative or no finite number, so it is not known what is too much for it; give what was "
            "measured"
        )
    waiting = [entry for entry in own if entry.work > 0.0]
    movable = sorted(
        (e for e in waiting if e.movable and e.taken_seconds >= limits.rest_seconds),
        key=lambda e: (e.work, e.partition),
    )
    if not movable or not peers or capacity == 0.0:
        return None
    work = sum(entry.work for entry in waiting) + incoming_seconds
    youngest = min(entry.newest_age for entry in waiting)
    room = (limits.objective_seconds - limits.margin_seconds - youngest) * capacity
    cost = max(entry.cost for entry in movable)
    excess = work - max(0.0, room)
    if excess > EXCESS_COSTS_MIN * cost:
        return _hard(movable, peers, limits, excess, room / capacity, work / capacity)
    if limits.soft and work / capacity + youngest > SOFT_LATENCY_SHARE * limits.objective_seconds:
        return _soft(movable, peers, limits, work / capacity)
    return None


def _hard(
    movable: Sequence[Own],
    peers: Sequence[Peer],
    limits: Limits,
    excess: float,
    room_seconds: float,
    busy_seconds: float,
) -> Slice | None:
    """The smallest partition that holds the excess, to who has the time, as long as all together have it.

    The receiver passes on what is too much for it, from what it had before. To cut a second partition here instead
    would not do: of two that are cut one can be worked on first, and what is left of the other comes when all are at
    the end of their time.
    """

    def time_left(peer: Peer) -> float:
        return (room_seconds - max(peer.busy_seconds, limits.handoff_seconds)) * peer.speed

    # One partition is one member's at a time. Of those that nobody could do in time, the largest stays, for a handoff
    # would make it later; another such goes at once and as a whole.
    serial = max(room_seconds - limits.handoff_seconds, *map(time_left, peers))
    if movable[-1].work > serial:
        movable = movable[:-1]
        if not movable:
            return None
    # The other ones' records are as young as ours: a burst reaches all.
    free = sum(max(0.0, time_left(peer)) for peer in peers)
    holding = [entry for entry in movable if entry.work >= excess]
    entry = holding[0] if holding else movable[-1]
    best = min(peers, key=lambda peer: (peer.busy_seconds, -peer.slack, -peer.speed, peer.member))
    able = [peer for peer in peers if entry.work <= time_left(peer)]
    if able or entry.work > serial:
        # At once, for the other one may have nothing to do until then. What comes after this goes there, too: of those
        # who have the time for all of it, who has most left over in the long run passes it on last.
        best = min(able, key=lambda peer: (-peer.slack, peer.busy_seconds, -peer.speed, peer.member), default=best)
        if not able and best.busy_seconds + entry.work / best.speed + limits.handoff_seconds >= busy_seconds:
            return None  # Late here or there: a busier member would only give it on.
        return Slice(partition=entry.partition, target=best.member, tier=Tier.HARD)
    given = min(excess, entry.work, free)
    if given <= EXCESS_COSTS_MIN * entry.cost:
        return None
    records = math.ceil(given / entry.cost - 1e-9) if entry.cost > 0 else 0
    whole = math.floor(entry.work / entry.cost + 1e-9) if entry.cost > 0 else 0
    keep = max(0, whole - records)
    if keep <= 1:
        keep = 0
    return Slice(partition=entry.partition, target=best.member, tier=Tier.HARD, keep_records=keep)


def _soft(movable: Sequence[Own], peers: Sequence[Peer], limits: Limits, busy_seconds: float) -> Slice | None:
    """The partition that halves the difference to the least busy member best."""
    least = min(peers, key=lambda peer: (peer.busy_seconds, -peer.slack, -peer.speed, peer.member))
    gap = busy_seconds - least.busy_seconds
    if gap <= max(SOFT_GAP_SHARE * limits.objective_seconds, SOFT_GAP_HANDOFFS * limits.handoff_seconds):
        return None
    entry = min(movable, key=lambda entry: (abs(entry.work - gap / 2.0), entry.partition))
    # What is more than the difference would only turn it round.
    if entry.work + limits.handoff_seconds >= gap:
        return None
    return Slice(partition=entry.partition, target=least.member, tier=Tier.SOFT)
