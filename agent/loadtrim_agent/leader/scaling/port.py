"""The port through which the leader asks an orchestrator for replicas.

A request is the *wanted state*, not a change: the same one may be sent again, and the newest one replaces all
before it. Every implementation passes ``tests/contract/test_scaler_contract.py``.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

import msgspec

__all__ = ["DETAIL_MAX", "Answer", "ScaleOutcome", "ScaleRequest", "Scaler", "WriteFence", "one_line", "retry_after"]

DETAIL_MAX: Final = 300
"""Most characters of an outcome's detail, which may quote the other side."""
RETRY_AFTER_SECONDS_MAX: Final = 60.0
"""An answer that asks for more is asked again after this: a group is not left as it is for hours. Chosen."""


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted state of one group, as the leader sees it now."""

    group: str
    replicas: int
    """Instances wanted, >= 1."""
    settled: int = 0
    """Instances wanted once those that drain have gone, >= 1; 0: as many as :attr:`replicas`."""
    victims: tuple[str, ...] = ()
    """Instances (as the orchestrator names them) that own nothing any more and are to go, each once."""
    staying: tuple[str, ...] = ()
    """Instances of the group that are not named as victims: they may still own something."""
    unknown: int = 0
    """Members whose instance is not known yet: any instance may be theirs."""
    rollout: bool = False
    """There are more instances than are wanted because a rollout is under way: its controllers end some of them."""
    generation: int
    """Of the plan that this comes from."""
    sequence: int
    """Of the plan within its generation: (generation, sequence) tells which of two requests is the newer
    one.
    """
    reason: str = ""
    """One English sentence."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas is {self.replicas}, not 1 or more: with no member there is no leader")
        if len(set(self.victims)) != len(self.victims):
            raise ValueError(f"a victim is named twice: {', '.join(self.victims)}")

    def asks_the_same(self, other: ScaleRequest | None) -> bool:
        """Whether both want the same state, whatever plan and reason they come from."""
        return other is not None and self._wish == other._wish

    def spares(self, newer: ScaleRequest) -> bool:
        """Return whether all that a newer request keeps from going is kept by this one as well."""
        return set(newer.staying) <= set(self.staying) and newer.unknown <= self.unknown

    @property
    def settled_replicas(self) -> int:
        """Instances wanted in the end."""
        return self.settled or self.replicas

    @property
    def _wish(self) -> tuple[str, int, frozenset[str]]:
        return self.group, self.replicas, frozenset(self.victims)


class Answer(enum.StrEnum):
    """What became of one request. The values are the metric's label ``outcome``."""

    ACCEPTED = "accepted"
    """The other side has the wanted state and will make it so."""
    REFUSED = "refused"
    """The other side understood and will not: wrong token, over a quota, no such group."""
    FAILED = "failed"
    """No usable answer: not reachable, too slow, broken."""


class ScaleOutcome(msgspec.Struct, frozen=True):
    """The answer to one request."""

    answer: Answer
    detail: str = ""
    """What happened, in words; never holds a token. At most :data:`DETAIL_MAX` characters, one line."""
    retry_after_seconds: float | None = None
    """The other side asks not to be asked again before; None: it does not say."""
    stands: int | None = None
    """Replicas that somebody else has set, and that are left as they are; None: there are none."""
    changeable: bool = False
    """Others may change what was accepted: it is asked for again now and then, also where the group is as wanted."""
    unseen: bool = False
    """Nothing was seen of what the other side has: what it accepted before may well be there still."""

    @property
    def accepted(self) -> bool:
        """Whether the other side has the wanted state."""
        return self.answer is Answer.ACCEPTED


class Scaler(Protocol):
    """A replica backend."""

    @property
    def name(self) -> str:
        """As in ``LOADTRIM_SCALER``."""
        ...

    @property
    def scales(self) -> bool:
        """False: there is nobody to ask, the group keeps the size it is given (``PlanConfig.can_scale``)."""
        ...

    @property
    def withdrawable(self) -> bool:
        """A request may be broken off for a newer one, which it cannot overtake on the other side then. False: the
        newer one waits for its answer.
        """
        ...

    @property
    def per_generation(self) -> bool:
        """A wish that was accepted counts in its generation only, so that it is said again in the next one."""
        ...

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """Tell the other side the wanted state.

        Never raises for what the other side does, and ends in bounded time. After :meth:`close` nothing is
        sent or accepted any more. Cancelled: the other side may or may not have got it; nothing of the
        request goes on in this process that could hold up its end.
        """
        ...

    def withdraw(self) -> None:
        """Let no request go on to count: the member wants no number any more. Where it was carried out, do nothing."""
        ...

    async def close(self) -> None:
        """Break off what is under way. Closing twice is fine."""
        ...


def retry_after(header: str | None) -> float | None:
    """Return the seconds that an answer's ``Retry-After`` asks for, :data:`RETRY_AFTER_SECONDS_MAX` at most.

    None: it asks for none, or names a date, which nobody's clock here is held to.
    """
    text = (header or "").strip()
    return min(float(text), RETRY_AFTER_SECONDS_MAX) if text.isascii() and text.isdigit() else None


def one_line(text: str) -> str:
    """Return a text that may quote the other side as an outcome's detail: one printable line of bounded length."""
    line = " ".join(text.split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in line)
    return printable if len(printable) <= DETAIL_MAX else printable[: DETAIL_MAX - 3] + "..."


class WriteFence(Protocol):
    """The fence before each write."""

    def holds(self) -> bool:
        """Return whether the member's lease in its group holds. A process that was frozen has none when it wakes up."""
