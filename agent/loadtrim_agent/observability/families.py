"""Every metric by name: its kind, its labels, its unit, and what it tells. docs/metrics.md is made from this list.

A name says its unit last (``_seconds``, ``_records``, ``_ratio``), as Prometheus asks; what counts things is called by
the things. Label values are bounded: those that are known are listed, and :data:`WORDS_MAX` bounds the others.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

__all__ = [
    "FAMILIES",
    "GROUP_PROTOCOLS",
    "MANUAL_OVERRIDES",
    "MEMBER",
    "OTHER",
    "WORDS_MAX",
    "Family",
    "Labels",
]

OTHER: Final = "other"
"""Stands for every further value of such a label as ``outcome``, ``where`` or ``side`` beyond :data:`WORDS_MAX`."""
WORDS_MAX: Final = 64
"""Most different values of such a label per consumer, so that a wrong caller cannot fill a Prometheus."""

Labels = tuple[str, ...]
Unit = Literal["seconds", "records", "records/s", "ratio", "count", "flag", "number"]

GROUP: Final = ("group",)
MEMBER: Final = ("group", "client_id")
_TOPIC: Final = (*MEMBER, "topic")
_PARTITION: Final = (*MEMBER, "topic", "partition")

GROUP_PROTOCOLS: Final = ("loadtrim", "mixed", "consumer")
"""Partitions are assigned: by the group itself, by a standard protocol, by the broker (KIP-848)."""
MANUAL_OVERRIDES: Final = ("hold", "scale")


class Family(msgspec.Struct, frozen=True, eq=False):
    """One metric: its name, its labels and how several consumers' gauges with the same labels are merged."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: Unit
    help: str
    labels: Labels
    merge: Literal["sum", "max"] = "max"
    words: tuple[str, ...] = ()
    """Known values of the last label; tests compare them with what the code counts. A counter of each is there from the
    start with 0, so that the first one is seen as an increase."""
    instead: str = ""
    """The metric that took the place of this one, which goes with the next release but one."""

    @property
    def per_member(self) -> bool:
        """Whether the second label is the client id."""
        return self.labels[:2] == MEMBER


INFO = Family(
    "loadtrim_info",
    "gauge",
    "flag",
    "Always 1. The labels tell what runs: version of loadtrim, policy, packer and mode.",
    (*MEMBER, "version", "policy", "packer", "mode"),
)
OBJECTIVE_SECONDS = Family(
    "loadtrim_objective_seconds",
    "gauge",
    "seconds",
    "The objective W: seconds from a record's timestamp until it is done.",
    MEMBER,
)
OBJECTIVE_SHARE = Family(
    "loadtrim_objective_share_ratio",
    "gauge",
    "ratio",
    "Share of the records that must meet the objective.",
    MEMBER,
)
RECORDS_DONE = Family("loadtrim_records_done_total", "counter", "records", "Records done.", _PARTITION)
RECORDS_LATE = Family(
    "loadtrim_records_late_total",
    "counter",
    "records",
    "Records done later than the objective, by what the member knows of the cause.",
    (*MEMBER, "cause"),
    words=("already_late", "blocked", "queued", "serial"),
)
LATENCY_UNKNOWN = Family(
    "loadtrim_records_latency_unknown_total",
    "counter",
    "records",
    "Records of which nobody knows whether they were done in time: user code asked for the next ones while it worked "
    "on them, and neither says when they are done nor commits them in time.",
    MEMBER,
)
LATENCY = Family(
    "loadtrim_record_latency_seconds",
    "histogram",
    "seconds",
    "Seconds from a record's timestamp until it is done. One bucket is exactly the objective.",
    _TOPIC,
)
BUSY = Family("loadtrim_record_busy_seconds", "histogram", "seconds", "Seconds of processing one record takes.", _TOPIC)
IN_HAND_AGE = Family(
    "loadtrim_record_in_hand_age_seconds",
    "gauge",
    "seconds",
    "Seconds since user code was handed the record that it has had for longest and that is not done; 0 without one.",
    MEMBER,
)
LAG_RECORDS = Family(
    "loadtrim_partition_lag_records", "gauge", "records", "Records not done, of owned partitions.", _PARTITION
)
LAG_SECONDS = Family(
    "loadtrim_partition_lag_seconds",
    "gauge",
    "seconds",
    "Age of the oldest record not done, of owned partitions.",
    _PARTITION,
)
ARRIVAL_RATE = Family(
    "loadtrim_partition_arrival_records_per_second",
    "gauge",
    "records/s",
    "Records per second that arrive, of owned partitions.",
    _PARTITION,
)
ARRIVAL_RATE_UNNAMED = Family(
    "loadtrim_partition_arrival_rate",
    "gauge",
    "records/s",
    "Deprecated: the same as loadtrim_partition_arrival_records_per_second.",
    _PARTITION,
    instead=ARRIVAL_RATE.name,
)
OWNED = Family("loadtrim_partitions_owned", "gauge", "count", "Partitions that the member owns.", MEMBER, "sum")
UNOWNED = Family(
    "loadtrim_partitions_unowned", "gauge", "count", "Partitions without an owner, told by the leader only.", GROUP
)
HANDOFF = Family(
    "loadtrim_handoff_seconds",
    "histogram",
    "seconds",
    "Seconds of a handoff. Side release: from the stop until the release is in the log; side acquire: from "
    "reading the release until records may be delivered.",
    (*MEMBER, "side"),
    words=("release", "acquire"),
)
UTILIZATION = Family(
    "loadtrim_utilization_ratio", "gauge", "ratio", "Busy seconds per second over the member's capacity.", MEMBER
)
CAPACITY = Family(
    "loadtrim_capacity_ratio",
    "gauge",
    "ratio",
    "Busy seconds per second that the member can give, x its speed, as far as it has learnt it: expected, and the "
    "least that it may well be (one standard error less, or what it was seen to give).",
    (*MEMBER, "bound"),
    words=("expected", "least"),
)
LEADER = Family("loadtrim_leader", "gauge", "flag", "1 when the member leads its group, else 0.", MEMBER)
GENERATION = Family("loadtrim_generation", "gauge", "number", "Generation of the group that the member is in.", MEMBER)
REBALANCES = Family("loadtrim_rebalances_total", "counter", "count", "Generations that the member has entered.", MEMBER)
GROUP_PROTOCOL = Family(
    "loadtrim_group_protocol",
    "gauge",
    "flag",
    "1 for the protocol by which the member's generation assigns partitions, else 0. Mixed: a member without the agent "
    "is in the group; consumer: one of Kafka's consumer protocol. In both nothing moves and nothing is scaled.",
    (*MEMBER, "protocol"),
    words=GROUP_PROTOCOLS,
)
MANUAL_OVERRIDE = Family(
    "loadtrim_manual_override",
    "gauge",
    "flag",
    "1 while the command line's hold or scale is in force, as the member has read it, else 0.",
    (*MEMBER, "action"),
    words=MANUAL_OVERRIDES,
)
COMMITS_FAILED = Family(
    "loadtrim_commit_failures_total",
    "counter",
    "count",
    "Commit requests that were not acknowledged. Rebalance: the generation had ended, the next one sends it again; "
    "coordinator: none answered, or it knows too little yet, and it is sent again; fenced: the member is out of the "
    "group; refused: any other reason.",
    (*MEMBER, "reason"),
    words=("rebalance", "coordinator", "fenced", "refused"),
)
REPLICAS = Family(
    "loadtrim_replicas",
    "gauge",
    "count",
    "Replicas, told by the leader only. Max: the most that a plan may ask for, by LOADTRIM_MAX_REPLICAS and the number "
    "of partitions. Requested, with LOADTRIM_SCALER=metric: what an autoscaler is to make so; above wanted while a "
    "victim is not drained and not ready.",
    (*GROUP, "state"),
    words=("wanted", "actual", "max", "requested"),
)
PLANS = Family(
    "loadtrim_plans_total",
    "counter",
    "count",
    "Decisions that the leader made.",
    (*GROUP, "outcome"),
    words=("none", "move", "up", "down", "hold"),
)
MOVES = Family(
    "loadtrim_moves_total",
    "counter",
    "count",
    "Moves that the member was to make.",
    (*MEMBER, "outcome"),
    words=("done", "timed_out", "refused", "dropped", "not_possible", "void"),
)
SLICES = Family(
    "loadtrim_slices_total",
    "counter",
    "count",
    "Partitions that the member gave away, or was about to, by its own decision. Promised: all of them.",
    (*MEMBER, "outcome"),
    words=("promised", "kept", "overtaken", "timed_out", "dropped", "not_possible"),
)
PLAN_SECONDS = Family("loadtrim_plan_seconds", "histogram", "seconds", "Seconds that making a decision takes.", GROUP)
HEARTBEAT_AGE = Family(
    "loadtrim_heartbeat_age_seconds", "gauge", "seconds", "Seconds since the last answered heartbeat was sent.", MEMBER
)
SCALER_REQUESTS = Family(
    "loadtrim_scaler_requests_total",
    "counter",
    "count",
    "Requests for replicas. Refused: the scaler understood and will not (4xx); failed: no usable answer.",
    (*GROUP, "outcome"),
    words=("accepted", "refused", "failed"),
)
AGENT_ERRORS = Family(
    "loadtrim_agent_errors_total",
    "counter",
    "count",
    "What broke in the agent and was contained.",
    (*MEMBER, "where"),
)

FAMILIES: Final = (
    INFO, OBJECTIVE_SECONDS, OBJECTIVE_SHARE, RECORDS_DONE, RECORDS_LATE, LATENCY_UNKNOWN, LATENCY, BUSY, IN_HAND_AGE,
    LAG_RECORDS, LAG_SECONDS, ARRIVAL_RATE, ARRIVAL_RATE_UNNAMED, OWNED, UNOWNED, HANDOFF, UTILIZATION, CAPACITY,
    LEADER, GENERATION, REBALANCES, GROUP_PROTOCOL, MANUAL_OVERRIDE, COMMITS_FAILED, REPLICAS, PLANS, MOVES, SLICES,
    PLAN_SECONDS, HEARTBEAT_AGE, SCALER_REQUESTS, AGENT_ERRORS,
)  # fmt: skip
"""Every metric, in the order of the page."""
