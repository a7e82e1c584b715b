"""The scaler ``template``, to copy: the leader's way to ask *your* orchestrator for replicas.

1. Copy this file to ``agent/loadtrim_agent/leader/scaling/<name>.py``. Make the imports relative, and rename the
   classes and ``name``.
2. Fill in :meth:`Orchestrator.put`: one call of your orchestrator's API. Keep ``FakeOrchestrator`` for the test.
3. ``SCALER=<path of the copy> pytest tests/contract/test_scaler_contract.py`` runs the contract suite on the copy.
4. ``agent/loadtrim_agent/common/settings.py``: its name in ``ScalerName``.
5. ``agent/loadtrim_agent/runtime/scaling.py``: make it in ``make_scaler``.
6. ``docs/reference.md``: its name at ``LOADTRIM_SCALER``.
7. ``.venv/bin/ruff check --fix .`` sorts the imports; then ``make test-unit lint types``.

The suite asks four things of every scaler. A request is the *wanted state*: to send it again changes nothing, and the
newest one replaces all before it. Whatever the other side does is an outcome, never an exception. A request ends in
bounded time. After ``close()`` nothing is sent.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest, one_line

__all__ = ["FakeOrchestrator", "TemplateScaler", "template"]

TIMEOUT_SECONDS = 5.0
"""A request that is not answered within this time has failed. Chosen: below the reconciler's 10 s between requests."""


class Orchestrator(Protocol):
    """The other side."""

    async def put(self, group: str, replicas: int, victims: tuple[str, ...]) -> None:
        """Store the wanted state. It raises PermissionError where it is refused, OSError without an answer."""


class TemplateScaler:
    """The leader asks an orchestrator through it, as :class:`loadtrim_agent.leader.scaling.port.Scaler` says.

    Args:
        orchestrator: the other side.
    """

    name = "template"
    """As in ``LOADTRIM_SCALER``."""
    scales = True
    """False: there is nobody to ask."""
    withdrawable = False
    """True: a call that was cancelled cannot take effect after a later one; a newer wish need not wait for it."""
    per_generation = False
    """True: a wish counts in its generation only, so it is sent again in the next one, also where the group is so."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._closed = asyncio.Event()

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """Send the wanted state. Cancellation is raised; the call under way is cancelled with it."""
        if self._closed.is_set():
            return ScaleOutcome(Answer.FAILED, "the scaler is closed")
        call = asyncio.create_task(self._orchestrator.put(wanted.group, wanted.replicas, wanted.victims))
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait((call, closed), timeout=TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                why = "the scaler was closed" if closed.done() else f"no answer within {TIMEOUT_SECONDS:g} s"
                return ScaleOutcome(Answer.FAILED, why)
            call.result()
        except PermissionError as error:
            return ScaleOutcome(Answer.REFUSED, one_line(f"{type(error).__name__}: {error}"))
        except Exception as error:
            return ScaleOutcome(Answer.FAILED, one_line(f"{type(error).__name__}: {error}"))
        finally:
            call.cancel()
            closed.cancel()
        return ScaleOutcome(Answer.ACCEPTED)

    async def close(self) -> None:
        """Break off what is under way. Closing twice is fine."""
        self._closed.set()


class FakeOrchestrator:
    """The other side in memory, for the contract suite, which sets the three flags."""

    def __init__(self) -> None:
        self.state: tuple[int, tuple[str, ...]] | None = None
        """Replicas and victims of the last request that was accepted."""
        self.fails_next = False
        self.hangs_next = False

    async def put(self, group: str, replicas: int, victims: tuple[str, ...]) -> None:
        """Store the wanted state, unless told otherwise."""
        if self.fails_next:
            self.fails_next = False
            raise OSError("the orchestrator does not answer")
        if self.hangs_next:
            self.hangs_next = False
            await asyncio.sleep(3600.0)
        self.state = replicas, victims


def template() -> tuple[TemplateScaler, FakeOrchestrator]:
    """Return a scaler and its other side: the contract suite calls this."""
    orchestrator = FakeOrchestrator()
    return TemplateScaler(orchestrator), orchestrator
