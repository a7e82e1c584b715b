"""How a change of the group reaches its members, and what stands still meanwhile: ours and Kafka's three.

Every figure is a default of Kafka's or was measured on this stack; what was measured is said where it stands.

* ``loadtrim``: a partition that moves stops at its owner when the record in hand is done, and starts at its new one
  10 to 18 ms later. Nothing else stops, whoever comes or goes.
* ``eager`` (classic protocol, range, round-robin and sticky assignors): a member learns of a rebalance at its next
  heartbeat, gives everything up and waits; all start again when the last one has come. Heartbeats begin anew with every
  assignment (``HeartbeatThread.enable`` of the Java client resets its timer), so that members learn of the next
  rebalance at the same moment: who comes holds nobody up for long, but what a leaver owned waits for that heartbeat.
  CLOSER'24 saw just that: long latencies when replicas went, none when they came.
* ``cooperative`` (KIP-429): everybody goes on consuming; when the last one has come, what is to move is given up, and
  is handed out in a second rebalance, a heartbeat later.
* ``kip848``: the broker knows the new assignment at once; a member gives up what it loses at its next heartbeat, and
  the new owner is given it at its own next one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from .loads import WrongLoadError

__all__ = ["PROTOCOLS", "Protocol", "protocol_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way of rebalancing."""

    name: str
    rebalances: bool
    """False: partitions move one by one."""
    stops_all: bool = False
    """Everybody gives up everything when it learns of a rebalance."""
    barrier: bool = False
    """Nobody is told its new partitions before all have come."""
    heartbeat_seconds: float = 3.0
    """How often a member asks; it learns of everything then."""
    sync_seconds: float = 0.05
    """From the last member's coming until all are told their partitions."""
    handoff_seconds: tuple[float, float] = (0.010, 0.018)
    """Least and most from giving a partition up until the new owner starts on it (evenly between)."""
    source: str = ""


_KINDS = (
    Protocol(
        name="loadtrim",
        rebalances=False,
        source="docs/benchmarks.md: move and membership (handoff 7.5 / 13.5 ms p50 / p99 with the record in hand)",
    ),
    Protocol(
        name="eager",
        rebalances=True,
        stops_all=True,
        barrier=True,
        source="KIP-62 and Kafka's default heartbeat of 3 s; 0.05 s: the p99 measured by CLOSER'24",
    ),
    Protocol(
        name="cooperative",
        rebalances=True,
        barrier=True,
        source="KIP-429; measured with librdkafka: moved 2.2 to 3.0 s, unmoved 0.03 to 0.08 s",
    ),
    Protocol(
        name="kip848",
        rebalances=True,
        heartbeat_seconds=5.0,
        source="KIP-848, group.consumer.heartbeat.interval.ms = 5000; measured: moved 0.4 to 3.8 s",
    ),
)
PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in _KINDS}


def protocol_of(name: str) -> Protocol:
    """The protocol with this name.

    Raises:
        WrongLoadError: there is none; the message lists them and the nearest.
    """
    if name not in PROTOCOLS:
        near = difflib.get_close_matches(name, sorted(PROTOCOLS), n=1, cutoff=0.0)[0]
        raise WrongLoadError(
            f"There is no protocol {name!r}, so no handover can be played; choose one of "
            f"{', '.join(sorted(PROTOCOLS))} (the nearest is {near!r})."
        )
    return PROTOCOLS[name]
