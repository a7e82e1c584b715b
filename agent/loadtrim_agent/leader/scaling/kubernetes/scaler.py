"""The scaler of the backend ``kubernetes``.

Theory of operation, for each request, of which the reconciler makes one at a time::

    a Lease is named, and another holds it              refused
    read the workload
        it has 0 replicas                               refused: somebody stops the group
        replicas are as wanted                          accepted, and what keeps pods from being ready is told
        written last by another group                   refused: two groups cannot both own them
        changed by somebody else since our last change  told; refused for a while after the third time
        fewer are wanted, and ready pods not counted    refused
        fewer are wanted, and a ready pod would go      read again until the readiness has arrived, or time is over;
                                                        the next time for the same: no more than once
        fewer are wanted, and one that works is unwell  read again for some probes: it may have failed only one
    write the replicas, naming the version that was read, while the member's lease holds, and the Lease
        another version by now                          read again

A request may be broken off for a newer one, above all where it waits. A write that was under way may still be carried
out, as it would have been without that; it names the version that it read, so it cannot undo a newer one.

Nothing but the number of replicas is ever written, and no pod is ever touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Literal

from loadtrim_agent.common.clock import boot_time

from ..port import Answer, ScaleOutcome, ScaleRequest, WriteFence, one_line
from .api import ApiError, Conversation, WorkloadApi
from .foreign import ForeignChanges, other_group
from .lease_renewal import LeaseRenewal
from .manager import field_manager, quoted
from .target import Target
from .workload import Workload, not_yet, one_is_unwell, shortfall, uncounted

__all__ = ["Foreign", "KubernetesScaler"]

log = logging.getLogger("loadtrim.scaling")

Foreign = Literal["respect", "correct"]
READINESS_SECONDS: Final = 10.0
"""A request waits this long for victims to be seen as not ready. Chosen: some probes of a second each. The
reconciler asks again after it, and each time takes one look then: what lasts so long may last for hours."""
UNWELL_SECONDS: Final = 5.0
"""A pod that works and is not ready for longer than this is not well, and may go in place of a victim. Chosen: a probe
that failed once is made good by the next one, after a second; some seconds more for a machine that is busy."""
LOOK_SECONDS: Final = 0.25
"""Between two looks at the workload in that time. Measured: the count follows the pod in 22 to 188 ms."""
CONFLICTS_MAX: Final = 5
"""Changes by others that one request reads again for. A workload whose pods come and go changes several times a
second."""


class KubernetesScaler:
    """Changes ``spec.replicas`` of one workload through its ``scale`` subresource.

    Args:
        target: the workload; None: the pod's name does not tell, and the user has not named it.
        api: the API server.
        fence: whether the member may still act for its group.
        foreign: what becomes of replicas that somebody else has written: left until the leader wants another number
            (``respect``), or corrected at once.
        lease: the group's hold on the workload; None: the user has named no Lease.
        clock: seconds, of the boot-time clock.
    """

    name = "kubernetes"
    scales = True
    withdrawable = True
    per_generation = False

    def __init__(
        self,
        target: Target | None,
        api: WorkloadApi,
        fence: WriteFence,
        foreign: Foreign = "correct",
        lease: LeaseRenewal | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._target = target
        self._api = api
        self._fence = fence
        self.lease = lease
        self._foreign = ForeignChanges(respect=foreign == "respect", leased=lease is not None, clock=clock)
        self._waited_for: ScaleRequest | None = None
        """The request that has waited in vain, last of all; None: none has since something was accepted."""
        self._seen = False
        """The present request has read the workload: where it fails after that, it found other replicas than wanted."""
        self._requests: set[asyncio.Timeout] = set()
        self._closed = False

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """Bring the workload to the wanted replicas, if no pod that is ready would go. Never raises."""
        if self._closed:
            return ScaleOutcome(Answer.FAILED, "the scaler is closed")
        if self._target is None:
            return ScaleOutcome(
                Answer.REFUSED,
                "The workload is not known: this instance's name is that of no pod of a Deployment or StatefulSet. Set "
                "LOADTRIM_KUBERNETES_TARGET, e.g. deployment/payments.",
            )
        self._seen = False
        try:
            async with asyncio.timeout(None) as scope:
                self._requests.add(scope)
                try:
                    async with self._api.conversation() as conversation:
                        if refused := await self._lease_refuses(conversation):
                            return refused
                        return await self._converse(conversation, self._target, wanted)
                finally:
                    self._requests.discard(scope)
        except TimeoutError:
            return ScaleOutcome(Answer.FAILED, "the scaler was closed")
        except ApiError as error:
            return self._failed(error)
        except Exception as error:
            return ScaleOutcome(Answer.FAILED, one_line(f"{type(error).__name__}: {error}"), unseen=not self._seen)

    def withdraw(self) -> None:
        """Do nothing: what was carried out stays."""

    async def close(self) -> None:
        """Break off what is under way. Closing twice is fine."""
        self._closed = True
        for scope in self._requests:
            if not scope.expired():
                scope.reschedule(0.0)

    async def _converse(self, api: Conversation, target: Target, wanted: ScaleRequest) -> ScaleOutcome:
        clock = asyncio.get_running_loop().time
        ends = clock() + (0.0 if wanted.asks_the_same(self._waited_for) else READINESS_SECONDS)
        well_at = clock()
        conflicts = 0
        while True:
            workload = await api.workload(target)
            self._seen = True
            fewer = workload.replicas > wanted.replicas
            unwell = fewer and one_is_unwell(target, workload, wanted)
            if not unwell:
                well_at = clock()
            if outcome := self._settled(target, workload, wanted):
                self._waited_for = None
                return outcome
            if fewer and (why := not_yet(target, workload, wanted)):
                if clock() >= ends:
                    self._waited_for = wanted
                    return ScaleOutcome(Answer.FAILED, one_line(f"{target} stays at {workload.replicas}: {why}"))
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if unwell and clock() < well_at + UNWELL_SECONDS:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if not self._fence.holds():
                return ScaleOutcome(Answer.FAILED, "this member's lease has run out: nothing was changed")
            if refused := await self._lease_refuses(api):
                return refused
            try:
                await api.set_replicas(target, wanted.replicas, workload.version, field_manager(wanted.group))
            except ApiError as error:
                conflicts += 1
                if error.status == HTTPStatus.NOT_FOUND:
                    return _unscalable(target, error)
                if error.status != HTTPStatus.CONFLICT or conflicts > CONFLICTS_MAX:
                    raise
                continue
            self._waited_for = None
            self._foreign.wrote(wanted.replicas)
            return ScaleOutcome(Answer.ACCEPTED, f"{target}: {workload.replicas} -> {wanted.replicas}", changeable=True)

    async def _lease_refuses(self, api: Conversation) -> ScaleOutcome | None:
        """Take the Lease where it is not held, and return the outcome where that is not possible; None: it is held.

        The last look before a write: what is held now was renewed a moment ago, or is taken anew.
        """
        if self.lease is None or self.lease.holds():
            return None
        try:
            why = await self.lease.take(api)
        except ApiError as error:
            if not error.lacks_right:
                raise
            why = (
                f"403 Forbidden: the ServiceAccount's Role has to permit get and update on leases (apiGroups "
                f"[coordination.k8s.io], resourceNames [{self.lease.name}], namespace {self._api.namespace}). The API "
                f"server says: {error.message}"
            )
        return ScaleOutcome(Answer.REFUSED, one_line(f"nothing was changed: {why}")) if why else None

    def _settled(self, target: Target, workload: Workload, wanted: ScaleRequest) -> ScaleOutcome | None:
        """Return the outcome where nothing is to be written; None: something is."""
        if workload.metadata.deletion_timestamp:
            return ScaleOutcome(Answer.REFUSED, f"{target} is being deleted")
        if workload.replicas == 0:
            by = quoted(workload.writer) if workload.writer else "somebody"
            stopped = f"{target} was set to 0 replicas by {by}, which stops the group"
            return ScaleOutcome(Answer.REFUSED, one_line(f"{stopped}: nothing is changed until it has some again"))
        if workload.replicas == wanted.replicas:
            self._foreign.found(wanted)
            has = f"{target} has {wanted.replicas} replicas"
            if other := other_group(workload, wanted):
                has += f", which the group {quoted(other)} set"
            said = filter(None, (has, shortfall(workload)))
            return ScaleOutcome(Answer.ACCEPTED, one_line("; ".join(said)), changeable=True)
        if refused := self._foreign.refuses(target, workload, wanted):
            return ScaleOutcome(Answer.REFUSED, one_line(refused), stands=workload.replicas)
        if workload.replicas > wanted.replicas and (why := uncounted(target, workload)):
            return ScaleOutcome(Answer.REFUSED, one_line(f"{target} stays at {workload.replicas}: {why}"))
        return None

    def _failed(self, error: ApiError) -> ScaleOutcome:
        answer = Answer.REFUSED if error.status in _REFUSALS else Answer.FAILED
        said = f"{error.status} {error.message}" if error.status else error.message
        if hint := self._hint(error):
            # The hint first: the API server's words may be longer than there is room for.
            said = f"{error.status} {hint}. The API server says: {error.message}"
        return ScaleOutcome(answer, one_line(said), error.retry_after_seconds, unseen=not self._seen)

    def _hint(self, error: ApiError) -> str:
        """Return what to do about a refusal; empty: its own words are all that there is to say."""
        target, namespace = self._target, self._api.namespace
        if error.lacks_right and target is not None:
            return (
                f"Forbidden: the ServiceAccount's Role has to permit get on {target.resource} and patch on "
                f"{target.resource}/scale (apiGroups [{target.group}], resourceNames [{target.name}], namespace "
                f"{namespace})"
            )
        if error.status == HTTPStatus.FORBIDDEN:
            return "Forbidden: no right of the Role is missing; an admission webhook, a policy or a proxy denies it"
        if error.status == HTTPStatus.NOT_FOUND:
            return (
                f"There is no {target} in namespace {namespace}: set LOADTRIM_KUBERNETES_TARGET to this pod's workload"
            )
        return ""


def _unscalable(target: Target, error: ApiError) -> ScaleOutcome:
    """Return the outcome where a workload was read a moment ago, and its ``scale`` is not there."""
    why = f"404 {target} has no scale subresource, or was deleted a moment ago"
    what_to_do = "Name a workload that can be scaled in LOADTRIM_KUBERNETES_TARGET"
    return ScaleOutcome(Answer.REFUSED, one_line(f"{why}. {what_to_do}. The API server says: {error.message}"))


_REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
