"""The gate opens the way of records to user code for as long as the lease lasts, and closes it meanwhile."""

from __future__ import annotations

from .record_buffer import RecordBuffer

__all__ = ["DeliveryGate"]


class DeliveryGate:
    """The gate of one consumer. All methods run in the agent's loop.

    Args:
        buffer: user code takes records from it; it looks at one time only, for each record.
    """

    def __init__(self, buffer: RecordBuffer) -> None:
        self._buffer = buffer
        self._lease_until = 0.0
        self._held_up = False

    @property
    def lease_until(self) -> float:
        """Time at which the lease ends (boot clock). A longer one opens no gate that is held up."""
        return self._lease_until

    @lease_until.setter
    def lease_until(self, until: float) -> None:
        self._lease_until = until
        self._buffer.lease_until = 0.0 if self._held_up else until

    def hold_up(self, held_up: bool) -> None:
        """Hand nothing out until this is called with False. What is in hand already stays there."""
        self._held_up = held_up
        self.lease_until = self._lease_until
        if not held_up:
            self._buffer.wake()
