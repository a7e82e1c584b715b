"""The leader takes its group's Lease before it changes anything, and renews it for as long as it leads.

A write of the workload has two fences without it: the lease of the member in its Kafka group, and the version of the
workload. The Lease tells two groups apart that know nothing of each other, and that another group has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from loadtrim_agent.common.clock import boot_time, wall_time

from .api import ApiError, Conversation, WorkloadApi
from .lease import Claim, LeaseObserver, WorkloadLease

__all__ = ["Leader", "LeaseRenewal"]

log = logging.getLogger("loadtrim.scaling")

HOLD_SECONDS: Final = 20.0
"""The holder writes within this time of its renewal. Chosen: a third less than others wait, so that a clock that is
slow and a request that is late do no harm."""
RENEW_SECONDS: Final = 10.0
"""Between two renewals: one request each. Chosen: a third of what others wait."""
TRIES: Final = 3
"""Times that one look reads again because somebody else was faster."""


class Leader(Protocol):
    """The member, as the Lease knows it."""

    def claim(self) -> Claim | None:
        """Return by which name, member and generation it leads; None: it does not, or its lease has run out."""


class LeaseRenewal:
    """One member's hold on the Lease of its workload.

    Args:
        name: of the Lease.
        leader: the member.
        api: the API server.
        clock: seconds, of the boot-time clock, which goes on while a process is frozen.
    """

    def __init__(self, name: str, leader: Leader, api: WorkloadApi, clock: Callable[[], float] = boot_time) -> None:
        self.name = name
        self._leader = leader
        self._api = api
        self._clock = clock
        self._observer = LeaseObserver()
        self._held: WorkloadLease | None = None
        """As it was written last by this member; None: it does not hold it, or that is not known."""
        self._renews = False
        """This member has taken it, and nobody else since, as far as is known: errors may end."""
        self._held_until = 0.0
        self._told = ""
        """The trouble with a renewal that was told last."""

    def holds(self) -> bool:
        """Return whether something may be written now."""
        claim = self._leader.claim()
        return (
            claim is not None
            and self._held is not None
            and self._held.claimed_by(claim)
            and self._clock() < self._held_until
        )

    async def take(self, conversation: Conversation) -> str:
        """Take the Lease, or renew it, and return why that is not possible, in words; empty: it is held.

        Raises:
            ApiError: the API server does not let it, or is not there.
        """
        for _ in range(TRIES):
            claim = self._leader.claim()
            if claim is None:
                return "this member leads its group no more, or its lease there has run out"
            # What this member wrote last is what is there, as a rule: then one request is enough.
            lease = self._held or await self._read(conversation)
            if refused := self._observer.refuses(lease, claim, self._clock()):
                self._held, self._renews = None, False
                return f"the Lease {self.name} is {refused}"
            asked_at = self._clock()
            try:
                self._held = await conversation.put_lease(self.name, lease.taken(claim, wall_time()))
            except ApiError as error:
                self._held = None
                if not lease.metadata.resource_version:
                    raise _not_there(self.name, self._api.namespace, error) from None
                if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    raise
                continue
            self._observer.refuses(self._held, claim, self._clock())
            self._held_until = asked_at + HOLD_SECONDS
            self._renews = True
            return ""
        return f"the Lease {self.name} was changed by another writer {TRIES} times in a row"

    async def _read(self, conversation: Conversation) -> WorkloadLease:
        try:
            return await conversation.lease(self.name)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return WorkloadLease.missing(self.name)

    async def run(self) -> None:
        """Renew for ever, while this member leads: from when it has taken the Lease until another has it."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            # One that does not lead at this moment may lead again after a rebalance, with nothing to scale that would
            # take the Lease anew. Where it never does, the next leader of the group takes it by its generation.
            if self._renews and self._leader.claim() is not None:
                await self._renew()

    async def _renew(self) -> None:
        try:
            async with self._api.conversation() as conversation:
                why = await self.take(conversation)
        except ApiError as error:
            why = f"{error.status} {error.message}" if error.status else error.message
        except Exception as error:  # A renewal that ends for good would give the Lease away.
            log.debug("A renewal broke", exc_info=True)
            why = f"{type(error).__name__}: {error}"
        if why and why != self._told:
            log.warning("The Lease %s was not renewed, and nothing is scaled without it: %s", self.name, why)
        self._told = why


def _not_there(name: str, namespace: str, error: ApiError) -> ApiError:
    """Return the error where a Lease is to be made; which one it was where that is permitted."""
    if error.status != HTTPStatus.FORBIDDEN:
        return error
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"There is no Lease {name} in namespace {namespace}: apply the one of examples/kubernetes/lease, or permit "
        f"create on leases. The API server says: {error.message}",
    )
