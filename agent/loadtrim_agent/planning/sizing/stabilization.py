"""The stabilization window: fewer replicas are taken only when they have been enough for so long.

The window is the longest of four times:

* 2 s;
* twice what no trend foresees of the start-up time;
* the time that a hundred records take to come;
* the time in which the share permits what a reversal's moves make late.

A reversal is a down after which more are asked for soon. It doubles the window, which halves every minute again. Where
records are few both take longer: what is known of them varies more slowly. From a start-up of a minute on a reversal
adds nothing. Flink's ``DelayedScaleDown`` is the model of the state.
"""

from __future__ import annotations

import math
import statistics

from msgspec import field, structs

from ..forecast import dispersion_of, reach_seconds
from ..history import busy_behind
from ..policy_state import StatePart
from ..settling import DEAR_OBJECTIVES
from .marginal_benefit import DOWN_MARGIN
from .policy import View

__all__ = ["Stabilization", "given_behind", "is_reversal", "remaining_window", "reversed_down", "window", "window_min"]

WINDOW_SECONDS = 2.0
WINDOW_UNSEEN = 2.0
"""Or this many times what no trend foresees of a start-up time, where that is longer: 3 s of 10, 21 of 30, 66 of 60.
Derived: the break-even rule of :func:`window_min`."""
WINDOW_RECORDS = 100.0
"""Records that tell a rate to a tenth: the window is as long as they take to come, where that is longer. Chosen."""
WINDOW_SECONDS_MAX = 300.0
DECAY_SECONDS = 60.0
"""The window halves after this time without a reversal, or after :data:`MARGIN_RECORDS`. So where a replica takes a
minute or more to start, reversals add nothing: what is waited there pays for itself already, whatever comes back.
Chosen."""
FALLING_SECONDS = 30.0
FALLING_STARTUPS = 2.0
"""A load that has fallen for so long, or for so many start-up times, is no noise that the window would have to sit out.
Chosen."""
REVERSAL_SECONDS = 10.0
"""More that is asked for so soon after a down, or within three start-up times, or before :data:`MARGIN_RECORDS` have
come, reverses it. Chosen."""
REVERSAL_STARTUPS = 3.0
MARGIN_RECORDS = (DOWN_MARGIN - 1.0) ** -2
"""Records that tell a rate as exactly as the margin with which fewer replicas must do: 1,100. What is known of fewer
records than that varies by more than the margin, so it asks for fewer and for more in turns. Derived."""
MOVES_SHARE = 0.5
"""Of what the share permits to be late: so much of it may be late by moves that a smaller group takes. Chosen."""


class Stabilization(StatePart, frozen=True, kw_only=True):
    """What scaling down remembers."""

    fit_since: float | None = None
    """Since when fewer replicas would do, without a break; None: they would not."""
    fit_replicas: int | None = None
    """The most of them that any decision since asked for."""
    window_seconds: float | None = field(name="patience", default=None)
    """Length of the window at the last reversal; None: there was none."""
    reversal_at: float | None = field(name="regret_at", default=None)
    """Time of the last reversal."""
    down_at: float | None = None
    """Time of the last down; None: there was none, or it was reversed."""

    def interrupted(self) -> Stabilization:
        """Return the state after time that was not seen, which is no quiet time: the window begins anew."""
        return structs.replace(self, fit_since=None)


def window_min(view: View) -> float:
    """Return the window of a group without reversals, seconds.

    A load that comes back is overdue until a replica is there again, except for what the trend foresees. To keep a
    replica for as long as it takes to start costs at most twice what a policy pays that knows the future.

    Source: the break-even rule of renting and buying; A. Gandhi et al., *AutoScale*, 2012 (delayed off). Changed: what
    is foreseen does not count.
    """
    startup = view.estimate.startup_seconds
    unseen = WINDOW_UNSEEN * (startup - reach_seconds(startup))
    return max(WINDOW_SECONDS, unseen, _coming(view, WINDOW_RECORDS), _moving(view))


def _moving(view: View) -> float:
    """Return how long the share takes to permit what is late by a replica's going and coming back.

    A replica that goes gives its part of the load away, and one that comes takes as much. Each of these partitions
    stops for a handoff. That is milliseconds, or the time in which its new owner restores what it keeps about it. What
    waits for half of the objective meanwhile counts as late, and as much again until it is worked off.
    """
    late = 2.0 * max(0.0, view.estimate.restoring_seconds - DEAR_OBJECTIVES * view.config.sla_seconds)
    if late == 0.0:
        return 0.0
    permitted = MOVES_SHARE * (1.0 - view.config.sla_share)
    return min(2.0 * late / view.replicas / permitted, WINDOW_SECONDS_MAX)


def _coming(view: View, records: float) -> float:
    """Return how long it takes to know a load as well as by so many records that come by chance, at most the longest
    window. Of none nothing is waited for; what comes more evenly than by chance is known sooner.
    """
    return _coming_at(view, records, view.forecast.level)


def _coming_at(view: View, records: float, level: float) -> float:
    """Return the same of another load than there is now."""
    if level <= 0.0:
        return 0.0
    apart = min(view.estimate.cost, dispersion_of(view.estimate, view.config.sla_seconds))
    return min(records * apart / level, WINDOW_SECONDS_MAX)


def window(view: View, state: Stabilization) -> float:
    """Return the present window, seconds: it doubles with every reversal and halves with every quiet minute."""
    least = window_min(view)
    seconds = least if state.window_seconds is None else state.window_seconds
    quiet = 0.0 if state.reversal_at is None else max(0.0, view.now - state.reversal_at)
    halved = max(DECAY_SECONDS, _coming(view, MARGIN_RECORDS))
    return max(least, seconds * math.exp(-math.log(2.0) * quiet / halved))


def remaining_window(view: View, state: Stabilization) -> float:
    """Return how long fewer must have been enough: without a reversal the less the longer the load has been falling.

    Not less than it takes to know a load, were it as large as in the mean before: of few records one or two that do not
    come look like a fall, or like nothing at all.
    What comes between two decisions is seen by the first one that says so.
    """
    series = view.estimate.series
    before = max(view.forecast.level, statistics.fmean(series) if series else 0.0)
    known = _coming_at(view, WINDOW_RECORDS, before) - view.config.decision_seconds
    seconds, falling = window(view, state), max(FALLING_SECONDS, FALLING_STARTUPS * view.estimate.startup_seconds)
    if seconds > window_min(view) or view.forecast.slope >= 0.0:
        return max(seconds, known)
    return max(known, seconds * max(0.0, 1.0 - view.forecast.window_seconds / falling))


def given_behind(view: View, seconds: float) -> float:
    """Return the work per second that members gave in a window of so long, where more came than they did; 0: they kept
    up. Fewer cannot do it, whatever a record is taken to cost."""
    busy = busy_behind(view.estimate.past, max(seconds, WINDOW_SECONDS))
    members = view.estimate.members.values()
    able = sum(member.capacity for member in members)
    return busy * able / sum(member.capacity / member.speed for member in members) if busy > 0.0 else 0.0


def is_reversal(view: View, state: Stabilization) -> bool:
    """Return whether a down was so short ago that more replicas now reverse it."""
    startups = REVERSAL_STARTUPS * view.estimate.startup_seconds
    soon = max(REVERSAL_SECONDS, startups, _coming(view, MARGIN_RECORDS))
    return state.down_at is not None and view.now - state.down_at <= soon


def reversed_down(view: View, state: Stabilization) -> Stabilization:
    """Return the state after a reversal: the next down is slower."""
    return structs.replace(
        state,
        window_seconds=min(2.0 * window(view, state), WINDOW_SECONDS_MAX),
        reversal_at=view.now,
        down_at=None,
    )
