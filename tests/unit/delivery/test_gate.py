"""Until when records are handed out."""

from __future__ import annotations

import asyncio

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.delivery.gate import DeliveryGate
from loadtrim_agent.delivery.record_buffer import RecordBuffer

from .test_record_buffer import ONE, handout_of


def opened() -> tuple[RecordBuffer, DeliveryGate]:
    """A buffer with records of one partition, and a lease that lasts."""
    buffer = handout_of(ONE)
    gate = DeliveryGate(buffer)
    gate.lease_until = boot_time() + 100.0
    return buffer, gate


async def test_what_is_held_up_is_handed_out_when_that_is_over() -> None:
    buffer, gate = opened()
    assert buffer.take_one().offset == 0
    gate.hold_up(True)
    assert buffer.take_one() is None
    assert not buffer.take_many((), 5)
    waiting = asyncio.create_task(buffer.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.hold_up(False)
    await asyncio.wait_for(waiting, 5.0)
    assert buffer.take_one().offset == 1


async def test_a_lease_that_is_renewed_meanwhile_counts_afterwards() -> None:
    buffer, gate = opened()
    gate.hold_up(True)
    later = gate.lease_until + 1.0
    gate.lease_until = later
    assert buffer.take_one() is None
    gate.hold_up(False)
    assert (gate.lease_until, buffer.lease_until) == (later, later)


async def test_a_lease_that_ends_meanwhile_hands_nothing_out_afterwards() -> None:
    buffer, gate = opened()
    gate.hold_up(True)
    gate.lease_until = 0.0
    gate.hold_up(False)
    assert buffer.take_one() is None
