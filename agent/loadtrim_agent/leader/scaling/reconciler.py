"""Keeps telling a scaler what is wanted until the group is so.

Theory of operation: the leader says what it wants (:meth:`ScaleReconciler.want`) and what it sees
(:meth:`ScaleReconciler.observed`); a loop sends. Due is, of the newest wish only and never two at a time::

    wish not sent yet                    now not accepted (n-th time in a row)    first_seconds * 2^(n-1)
    after the answer, at most every_seconds after sending accepted, the group differs from it  every_seconds
    or when the other side asked to be asked again
    accepted in an older generation, and the scaler's
    wishes count in their generation only              now
    after sending accepted, the group is so            never; where others may change it, look_seconds (a look)

A look that fails before it has seen anything changes nothing: the wish stays accepted until the next look.

A wish that never was accepted is sent again even when the group happens to be so: the other side still holds
an older one and would act on it. A newer wish breaks off the request under way where the scaler allows it, and
waits for its answer otherwise. Everything here runs on one loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from loadtrim_agent.common.error_boundary import FirstOfKind
from loadtrim_agent.observability.text import printable, wish_line

from .port import Answer, ScaleOutcome, Scaler, ScaleRequest
from .unmet import EXECUTE_SECONDS, Unmet

__all__ = ["Cadence", "ReconcilerView", "ScaleObserver", "ScaleReconciler"]

_log = logging.getLogger("loadtrim.scaling")
_uncounted = FirstOfKind()

_ADVICE: Final = {"webhook": " Look at the scaler's own log, LOADTRIM_SCALER_URL and LOADTRIM_SCALER_TOKEN."}
"""Where to look, by the scaler's name, beyond what its answer says."""
_UNMET_ADVICE: Final = {
    "metric": " The usual causes: bounds of the autoscaler other than LOADTRIM_MIN_REPLICAS and LOADTRIM_MAX_REPLICAS, "
    "a tolerance (10 % unless set) or a stabilization window (300 s unless set), a query that finds nothing, pods that "
    "do not start."
}
"""The same where a number was taken, and the group does not come to it."""


class ScaleObserver(Protocol):
    """The observer counts answers to requests."""

    def scaled(self, request: ScaleRequest, outcome: ScaleOutcome) -> None:
        """A request was answered."""

    def error(self, where: str) -> None:
        """The scaler raised, which it must not, or :meth:`scaled` did; ``where`` is ``"scaler"``."""


class Cadence(msgspec.Struct, frozen=True, kw_only=True):
    """When to send again. Seconds."""

    first_seconds: float = 0.5
    """Wait after the first request that was not accepted; doubles with each further one."""
    every_seconds: float = 10.0
    """Longest time between two requests while something is open."""
    look_seconds: float = 60.0
    """Between two requests where nothing is open, of what others may change. Chosen: one read a minute."""
    request_seconds_max: float = 30.0
    """Bound on one request, should a scaler not keep its own."""

    def __post_init__(self) -> None:
        if not 0 < self.first_seconds <= self.every_seconds or not self.request_seconds_max > 0:
            raise ValueError(f"0 < first <= every and request_seconds_max > 0 does not hold: {self}")


class ReconcilerView(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciler is at, for ``/status``."""

    scaler: str
    wanted: ScaleRequest | None
    delivered: bool
    """The wish was accepted."""
    answer: str | None
    """The last answer to it, and its detail; None: none yet."""
    detail: str
    failures: int
    """Answers in a row that were not ACCEPTED."""


class _Sent(msgspec.Struct, frozen=True):
    request: ScaleRequest
    outcome: ScaleOutcome
    sent_at: float
    answered_at: float


class _There(msgspec.Struct, frozen=True):
    """The group as it was seen last."""

    replicas: int | None = None
    instances: frozenset[str] = frozenset()


class _UnderWay:
    """One request until its answer."""

    def __init__(self, request: ScaleRequest, scope: asyncio.Timeout) -> None:
        self.request = request
        self.scope = scope
        self.broken_off = False

    def break_off(self) -> None:
        self.broken_off = True
        if not self.scope.expired():
            self.scope.reschedule(0.0)


class ScaleReconciler:
    """One group's wish for replicas.

    Args:
        scaler: Whom to tell. Closed with the reconciler.
        observer: Told each answer; None: nobody.
        cadence: When to send again.
    """

    def __init__(
        self,
        scaler: Scaler,
        *,
        observer: ScaleObserver | None = None,
        cadence: Cadence | None = None,
    ) -> None:
        self._scaler = scaler
        self._observer = observer
        self._cadence = cadence or Cadence()
        self._wanted: ScaleRequest | None = None
        self._last: _Sent | None = None
        self._there = _There()
        self._standing: tuple[int, int] | None = None
        """Replicas that the scaler has left as somebody else set them, and those that were wanted in the end."""
        self._failures = 0
        self._failing_since = 0.0
        self._told: set[Answer] = set()
        self._unmet = Unmet()
        self._changed = asyncio.Event()
        self._progress = asyncio.Event()
        self._under_way: _UnderWay | None = None
        self._closed = False

    # What the leader says

    def want(self, request: ScaleRequest | None) -> None:
        """The wanted state from now on; None: nothing is wanted any more, because the member leads no longer, or holds.

        A wish that differs from the one before is sent at once (in place of the request under way, or after it:
        :attr:`Scaler.withdrawable`); one that does not only brings its plan and reason up to date. None breaks off
        the request under way: an older leader says no more.
        """
        self._wanted = request
        if request is None:
            self._last = self._standing = None
            self._failures = 0
            self._told.clear()
            self._unmet.met()
            self._break_off()
            self._scaler.withdraw()
        elif self._scaler.withdrawable and self._under_way and not self._goes_on(self._under_way.request, request):
            # The other side may have got it: what was accepted before it has to be said again.
            self._last = None
            self._break_off()
        self._changed.set()
        self._signal()

    def _goes_on(self, under_way: ScaleRequest, newer: ScaleRequest) -> bool:
        """Return whether a request may go on: to one that waits, a member that came meanwhile would be nobody."""
        return under_way.asks_the_same(newer) and under_way.spares(newer) and self._counts_still(under_way, newer)

    def _counts_still(self, earlier: ScaleRequest, newer: ScaleRequest) -> bool:
        return not self._scaler.per_generation or earlier.generation == newer.generation

    def observed(self, replicas: int, instances: Collection[str]) -> None:
        """The group as it is.

        Args:
            replicas: Instances in the group, >= 0.
            instances: Their names.
        """
        if self._wanted is not None and replicas == self._wanted.replicas:
            self._unmet.met()
        there = _There(replicas, frozenset(instances))
        if there != self._there:
            self._there = there
            self._changed.set()

    @property
    def standing(self) -> int | None:
        """Replicas that somebody else set and that the scaler leaves, whatever is wanted less; None: there are none."""
        if self._standing is None or self._wanted is None:
            return None
        stands, settled = self._standing
        return stands if self._wanted.settled_replicas == settled else None

    def view(self) -> ReconcilerView:
        """What it is at."""
        last = self._last if self._last and self._last.request.asks_the_same(self._wanted) else None
        return ReconcilerView(
            scaler=self._scaler.name,
            wanted=self._wanted,
            delivered=last is not None and last.outcome.accepted,
            answer=last.outcome.answer.value if last else None,
            detail=last.outcome.detail if last else "",
            failures=self._failures,
        )

    async def delivered(self, timeout_seconds: float) -> bool:
        """Wait until the present wish was accepted: a leader that stops sends its last wish before it leaves.

        Returns:
            True when it was, or nothing is wanted, or there is nobody to ask; False when the time was over or
            the reconciler closed. :meth:`run` must be running.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._open() and not self._closed:
                    await self._progress.wait()
        except TimeoutError:
            return False
        return not self._open()

    def _signal(self) -> None:
        """Wake everybody who waits for progress, once."""
        self._progress.set()
        self._progress = asyncio.Event()

    def _open(self) -> bool:
        return self._wanted is not None and self._scaler.scales and not self.view().delivered

    # The loop

    async def run(self) -> None:
        """Send what is due until :meth:`close`. Raises nothing; started once, by whoever owns the agent's
        tasks.
        """
        loop = asyncio.get_running_loop()
        while not self._closed:
            due = self._due_at()
            if due is not None and due <= loop.time():
                assert self._wanted is not None
                await self._send(self._wanted)
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Stop, breaking off the request under way, and close the scaler. Closing twice is fine."""
        self._closed = True
        self._break_off()
        self._changed.set()
        self._signal()
        await self._scaler.close()

    def _due_at(self) -> float | None:
        """Loop time at which to send; None: nothing to send. See the theory of operation."""
        if self._wanted is None or not self._scaler.scales:
            return None
        last = self._last
        if last is None or not last.request.asks_the_same(self._wanted):
            return 0.0
        regular = last.sent_at + self._cadence.every_seconds
        if last.outcome.accepted:
            if not self._counts_still(last.request, self._wanted):
                return 0.0
            if self._differs(self._wanted):
                return regular
            # Members do not tell of what joins no group: replicas that somebody else has set, whose pods do not start.
            return last.sent_at + self._cadence.look_seconds if last.outcome.changeable else None
        asked = last.answered_at + (last.outcome.retry_after_seconds or 0.0)
        return max(asked, min(last.answered_at + self._retry_seconds(), regular))

    def _differs(self, wanted: ScaleRequest) -> bool:
        return self._there.replicas != wanted.replicas or not self._there.instances.isdisjoint(wanted.victims)

    def _retry_seconds(self) -> float:
        wait = self._cadence.first_seconds
        for _ in range(self._failures - 1):
            if wait >= self._cadence.every_seconds:
                break
            wait *= 2
        return min(wait, self._cadence.every_seconds)

    async def _send(self, request: ScaleRequest) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        outcome = await self._ask(request)
        if outcome is None:
            return
        known = self._known_still(request, outcome)
        if known is None:
            self._tell(request, outcome, loop.time())
        else:
            _log.debug("%s: %s gave no answer to a look (%s)", request.group, self._scaler.name, outcome.detail)
        if self._wanted is not None:
            self._last = _Sent(request, known or outcome, sent_at, loop.time())
            self._standing = (outcome.stands, request.settled_replicas) if outcome.stands is not None else None
        try:
            if self._observer is not None:
                self._observer.scaled(request, outcome)
        except Exception as error:
            text = "an answer of the scaler could not be counted. Said once; please report it with this trace"
            _log.log(_uncounted.level(error), text, exc_info=error)
            self._broke()
        self._signal()

    def _known_still(self, request: ScaleRequest, outcome: ScaleOutcome) -> ScaleOutcome | None:
        """Return the accepted outcome that a look which saw nothing leaves as it was; None: the answer is news."""
        if outcome.answer is not Answer.FAILED or not outcome.unseen or self._differs(request):
            return None
        last = self._last
        if last is None or not last.request.asks_the_same(request) or not self._counts_still(last.request, request):
            return None
        return last.outcome if last.outcome.accepted else None

    async def _ask(self, request: ScaleRequest) -> ScaleOutcome | None:
        """The scaler's answer; None: broken off by us."""
        under_way = self._under_way = _UnderWay(request, asyncio.timeout(self._cadence.request_seconds_max))
        try:
            async with under_way.scope:
                return await self._scaler.request(request)
        except TimeoutError:
            if under_way.broken_off:
                return None
            return ScaleOutcome(Answer.FAILED, f"no answer within {self._cadence.request_seconds_max:g} s")
        except Exception as error:
            self._broke()
            return ScaleOutcome(Answer.FAILED, f"{type(error).__name__}: {error}")
        finally:
            self._under_way = None

    def _broke(self) -> None:
        if self._observer is not None:
            self._observer.error("scaler")

    def _break_off(self) -> None:
        if self._under_way is not None:
            self._under_way.break_off()

    def _tell(self, request: ScaleRequest, outcome: ScaleOutcome, now: float) -> None:
        """Log what is new: each kind of failure once until it recovers, each new wish once."""
        name = self._scaler.name
        if outcome.accepted:
            if self._failures:
                lasted = now - self._failing_since
                _log.info("%s accepts again, after %d failures in %.1f s", name, self._failures, lasted)
            self._failures = 0
            self._told.clear()
            repeated = self._last is not None and self._last.request.asks_the_same(request)
            if not repeated or not (self._last and self._last.outcome.accepted):
                wish = wish_line(request.replicas, request.victims, request.reason)
                _log.info("asked %s for %s", name, printable(wish))  # Names of instances come from records.
            self._look_after(request, outcome, now)
            return
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        if outcome.answer not in self._told:
            self._told.add(outcome.answer)
            _log.warning(
                "%s: %s did not take the request for %d replicas (%s). The group goes on with the replicas it has; "
                "the request is repeated, after %.1f s at first, then at least every %.0f s. Said once until it "
                "works.%s",
                request.group,
                name,
                request.replicas,
                outcome.detail,
                self._cadence.first_seconds,
                self._cadence.every_seconds,
                _ADVICE.get(name, ""),
            )

    def _look_after(self, request: ScaleRequest, outcome: ScaleOutcome, now: float) -> None:
        """Complain where nobody makes it so: too few machines, a quota, bounds of somebody else."""
        there = self._there.replicas
        if there is None or there == request.replicas or request.rollout:
            return
        if not self._unmet.lasts(request.replicas, now):
            return
        _log.warning(
            "%s: %s took the request for %d replicas %.0f s ago, and the group has %d (%s).%s Said once for this "
            "number.",
            request.group,
            self._scaler.name,
            request.replicas,
            EXECUTE_SECONDS,
            there,
            outcome.detail,
            _UNMET_ADVICE.get(self._scaler.name, ""),
        )
