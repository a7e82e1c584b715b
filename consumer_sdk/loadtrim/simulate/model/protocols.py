"""The way in which a change of the group reaches its members, and what stands still meanwhile: ours and Kafka's three.

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

from dataclasses import dataclass

from loadtrim_agent.common.checks import within

from ..loads.load import WrongLoadError, check_known, digits

__all__ = ["INTERVAL_SECONDS_MIN", "PROTOCOLS", "Protocol", "protocol_of"]

INTERVAL_SECONDS_MIN = 1e-3
"""Of what comes again and again: with much less the time, seconds since the epoch, would not get on at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way of rebalancing.

    Raises:
        WrongLoadError: a time that is none.
    """

    name: str
    rebalances: bool
    """False: partitions move one by one."""
    stops_all: bool = False
    """Everybody gives up everything when it learns of a rebalance."""
    barrier: bool = False
    """Nobody is told its new partitions before all have come."""
    heartbeat_seconds: float = 3.0
    """The time between two questions of a member; it learns of everything then."""
    sync_seconds: float = 0.05
    """From the last member's coming until all are told their partitions."""
    handoff_seconds: tuple[float, float] = (0.010, 0.018)
    """Least and most from giving a partition up until the new owner starts on it (evenly between)."""
    source: str = ""

    def __post_init__(self) -> None:
        if not within(self.heartbeat_seconds, INTERVAL_SECONDS_MIN):
            raise WrongLoadError(
                f"A heartbeat (--heartbeat) comes every {digits(self.heartbeat_seconds)} s, which nobody can keep to; "
                f"give a finite number of seconds of at least {INTERVAL_SECONDS_MIN:g}."
            )
        least, most = self.handoff_seconds
        if not (within(least, 0.0) and within(most, least) and within(self.sync_seconds, 0.0)):
            raise WrongLoadError(
                f"A handoff takes {digits(least)} to {digits(most)} s, and a sync {digits(self.sync_seconds)} s, which "
                "cannot be played; give finite numbers of seconds, none below 0, the least of a handoff first."
            )


_KINDS = (
    Protocol(
        name="loadtrim",
        rebalances=False,
        source="measured on two cores, 7.5 / 13.5 ms p50 / p99 beside the record in hand; today's: docs/results.md",
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
    check_known("protocol", name, PROTOCOLS, means="no handoff can be played")
    return PROTOCOLS[name]
