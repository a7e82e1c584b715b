"""The metrics as a scrape sees them."""

from __future__ import annotations

import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families

from loadtrim_agent.leader.scaling.port import Answer
from loadtrim_agent.metering.lateness import LateCause
from loadtrim_agent.observability.families import COMMITS_FAILED, MOVES, PLANS, RECORDS_LATE, SCALER_REQUESTS
from loadtrim_agent.observability.histogram import LATENCY_BOUNDS
from loadtrim_agent.observability.metrics import FAMILIES, OTHER, WORDS_MAX, Family, Metrics
from loadtrim_agent.planning.values import Outcome
from loadtrim_agent.protocol.commits import CommitFailure
from loadtrim_agent.protocol.counters import ProtocolCount, Severity
from loadtrim_agent.wire.telemetry_records import Capacity

GROUP = {"group": "payments"}
MEMBER = GROUP | {"client_id": "pod-a"}
P3 = MEMBER | {"topic": "orders", "partition": "3"}

CONTRACT = {
    "loadtrim_records_done_total": {"group", "client_id", "topic", "partition"},
    "loadtrim_record_latency_seconds": {"group", "client_id", "topic"},
    "loadtrim_record_busy_seconds": {"group", "client_id", "topic"},
    "loadtrim_partition_lag_records": {"group", "client_id", "topic", "partition"},
    "loadtrim_partition_lag_seconds": {"group", "client_id", "topic", "partition"},
    "loadtrim_partition_arrival_rate": {"group", "client_id", "topic", "partition"},
    "loadtrim_partition_arrival_records_per_second": {"group", "client_id", "topic", "partition"},
    "loadtrim_info": {"group", "client_id", "version", "policy", "packer", "mode"},
    "loadtrim_objective_seconds": {"group", "client_id"},
    "loadtrim_objective_share_ratio": {"group", "client_id"},
    "loadtrim_records_late_total": {"group", "client_id", "cause"},
    "loadtrim_records_latency_unknown_total": {"group", "client_id"},
    "loadtrim_record_in_hand_age_seconds": {"group", "client_id"},
    "loadtrim_partitions_unowned": {"group"},
    "loadtrim_rebalances_total": {"group", "client_id"},
    "loadtrim_group_protocol": {"group", "client_id", "protocol"},
    "loadtrim_manual_override": {"group", "client_id", "action"},
    "loadtrim_commit_failures_total": {"group", "client_id", "reason"},
    "loadtrim_partitions_owned": {"group", "client_id"},
    "loadtrim_handoff_seconds": {"group", "client_id", "side"},
    "loadtrim_utilization_ratio": {"group", "client_id"},
    "loadtrim_capacity_ratio": {"group", "client_id", "bound"},
    "loadtrim_leader": {"group", "client_id"},
    "loadtrim_generation": {"group", "client_id"},
    "loadtrim_replicas": {"group", "state"},
    "loadtrim_plans_total": {"group", "outcome"},
    "loadtrim_moves_total": {"group", "client_id", "outcome"},
    "loadtrim_slices_total": {"group", "client_id", "outcome"},
    "loadtrim_plan_seconds": {"group"},
    "loadtrim_heartbeat_age_seconds": {"group", "client_id"},
    "loadtrim_scaler_requests_total": {"group", "outcome"},
    "loadtrim_agent_errors_total": {"group", "client_id", "where"},
}
"""Names and labels that users build dashboards on."""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


def make(registry: CollectorRegistry, client_id: str = "pod-a", sla: float = 0.7, group: str = "payments") -> Metrics:
    return Metrics(registry, group, client_id, sla)


def fill(metrics: Metrics) -> None:
    """One of everything."""
    metrics.about(version="1.2.3", policy="objective", packer="trim", mode="active", share=0.999)
    metrics.records_late({"queued": 1}, unknown=3)
    metrics.in_hand(None)
    metrics.unowned(2)
    metrics.manual_override(None)
    metrics.commit_failed("fenced")
    metrics.records_done("orders", 3, 2, [0.2, 0.8], [0.006, 0.006])
    metrics.partition("orders", 3, 12, 0.5, 85.0)
    metrics.owned(1)
    metrics.utilization(0.62, Capacity(10.0, 0.4))
    metrics.handoff("release", 0.007)
    metrics.handoff("acquire", 0.001)
    metrics.move("done")
    metrics.move("kept", slice_=True)
    metrics.leader(True)
    metrics.entered(7, "loadtrim")
    metrics.replicas("wanted", 4)
    metrics.replicas("actual", 3)
    metrics.replicas("max", 9)
    metrics.plan("up", 0.002)
    metrics.scaler_request("accepted")
    metrics.heartbeat_age(0.1)
    metrics.agent_error("planning")


def value(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> float | None:
    return registry.get_sample_value(name, labels)


def test_every_metric_of_the_contract_is_there_with_its_labels(registry: CollectorRegistry) -> None:
    fill(make(registry))
    shown: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            name = sample.name
            for suffix in ("_bucket", "_sum", "_count"):
                name = name.removesuffix(suffix)
            shown.setdefault(name, set()).update(set(sample.labels) - {"le"})
    assert shown == CONTRACT


def test_values(registry: CollectorRegistry) -> None:
    fill(make(registry))
    assert value(registry, "loadtrim_records_done_total", P3) == 2
    assert value(registry, "loadtrim_partition_lag_records", P3) == 12
    assert value(registry, "loadtrim_partition_lag_seconds", P3) == 0.5
    assert value(registry, "loadtrim_partition_arrival_rate", P3) == 85
    assert value(registry, "loadtrim_partitions_owned", MEMBER) == 1
    assert value(registry, "loadtrim_utilization_ratio", MEMBER) == 0.62
    assert value(registry, "loadtrim_capacity_ratio", MEMBER | {"bound": "expected"}) == 10.0
    assert value(registry, "loadtrim_capacity_ratio", MEMBER | {"bound": "least"}) == 9.6
    assert value(registry, "loadtrim_handoff_seconds_count", MEMBER | {"side": "release"}) == 1
    assert value(registry, "loadtrim_handoff_seconds_sum", MEMBER | {"side": "acquire"}) == 0.001
    assert value(registry, "loadtrim_moves_total", MEMBER | {"outcome": "done"}) == 1
    assert value(registry, "loadtrim_slices_total", MEMBER | {"outcome": "kept"}) == 1
    assert value(registry, "loadtrim_leader", MEMBER) == 1
    assert value(registry, "loadtrim_generation", MEMBER) == 7
    assert value(registry, "loadtrim_replicas", GROUP | {"state": "wanted"}) == 4
    assert value(registry, "loadtrim_plans_total", GROUP | {"outcome": "up"}) == 1
    assert value(registry, "loadtrim_plan_seconds_count", GROUP) == 1
    assert value(registry, "loadtrim_scaler_requests_total", GROUP | {"outcome": "accepted"}) == 1
    assert value(registry, "loadtrim_agent_errors_total", MEMBER | {"where": "planning"}) == 1
    about = {"version": "1.2.3", "policy": "objective", "packer": "trim", "mode": "active"}
    assert value(registry, "loadtrim_info", MEMBER | about) == 1
    assert value(registry, "loadtrim_objective_seconds", MEMBER) == 0.7
    assert value(registry, "loadtrim_objective_share_ratio", MEMBER) == 0.999
    assert value(registry, "loadtrim_records_late_total", MEMBER | {"cause": "queued"}) == 1
    assert value(registry, "loadtrim_records_latency_unknown_total", MEMBER) == 3
    assert value(registry, "loadtrim_partition_arrival_records_per_second", P3) == 85
    assert value(registry, "loadtrim_replicas", GROUP | {"state": "max"}) == 9
    assert value(registry, "loadtrim_partitions_unowned", GROUP) == 2
    assert value(registry, "loadtrim_rebalances_total", MEMBER) == 1
    assert value(registry, "loadtrim_commit_failures_total", MEMBER | {"reason": "fenced"}) == 1


# The objective's bucket


@pytest.mark.parametrize("sla", [0.7, 0.5, 1, 0.0333, 3600.0])
def test_one_latency_bucket_is_exactly_the_objective(registry: CollectorRegistry, sla: float) -> None:
    metrics = make(registry, sla=sla)
    metrics.records_done("orders", 3, 3, [sla, sla * 1.000001, sla * 0.999999], [])
    labels = MEMBER | {"topic": "orders"}
    bounds = [
        float(sample.labels["le"])
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "loadtrim_record_latency_seconds_bucket"
    ]
    assert bounds == sorted({*LATENCY_BOUNDS, sla, float("inf")})
    assert value(registry, "loadtrim_record_latency_seconds_bucket", labels | {"le": str(float(sla))}) == 2
    assert value(registry, "loadtrim_record_latency_seconds_count", labels) == 3


def test_groups_with_different_objectives_have_their_own_buckets(registry: CollectorRegistry) -> None:
    fill(make(registry, sla=0.7))
    fill(make(registry, sla=0.3, group="fraud"))
    name = "loadtrim_record_latency_seconds_bucket"
    topic = {"topic": "orders"}
    assert value(registry, name, MEMBER | topic | {"le": "0.7"}) == 1
    assert value(registry, name, MEMBER | topic | {"le": "0.3"}) is None
    assert value(registry, name, MEMBER | topic | {"group": "fraud", "le": "0.3"}) == 1


def test_the_same_labels_with_different_objectives_have_both_buckets(registry: CollectorRegistry) -> None:
    first = make(registry, sla=0.7)
    first.records_done("orders", 3, 1, [0.6], [])
    second = make(registry, sla=0.61)
    second.records_done("orders", 4, 2, [0.6, 0.65], [])
    second.records_done("refunds", 0, 1, [0.65], [])
    name = "loadtrim_record_latency_seconds_bucket"
    assert value(registry, name, MEMBER | {"topic": "orders", "le": "0.7"}) == 3
    # The first 0.6 was counted before anybody asked for this bound: taken to be above it.
    assert value(registry, name, MEMBER | {"topic": "orders", "le": "0.61"}) == 1
    assert value(registry, name, MEMBER | {"topic": "refunds", "le": "0.7"}) == 1
    generate_latest(registry)


@pytest.mark.parametrize("sla", [0, -1, float("nan")])
def test_an_unusable_objective(registry: CollectorRegistry, sla: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        make(registry, sla=sla)


# Several consumers


def test_consumers_of_one_registry_do_not_clash(registry: CollectorRegistry) -> None:
    for client_id in ("pod-a", "pod-b"):
        fill(make(registry, client_id))
    assert value(registry, "loadtrim_records_done_total", P3) == 2
    assert value(registry, "loadtrim_records_done_total", P3 | {"client_id": "pod-b"}) == 2
    assert value(registry, "loadtrim_plans_total", GROUP | {"outcome": "up"}) == 2, "the group's are added up"


def test_consumers_with_the_same_client_id_add_up(registry: CollectorRegistry) -> None:
    """aiokafka's default client id is the same for every consumer."""
    first, second = make(registry), make(registry)
    fill(first)
    fill(second)
    second.heartbeat_age(100.0)
    second.leader(False)
    assert value(registry, "loadtrim_records_done_total", P3) == 4
    assert value(registry, "loadtrim_partitions_owned", MEMBER) == 2
    assert value(registry, "loadtrim_leader", MEMBER) == 1
    age = value(registry, "loadtrim_heartbeat_age_seconds", MEMBER)
    assert age is not None
    assert age >= 100
    series = generate_latest(registry).decode().splitlines()
    keys = [line.rpartition(" ")[0] for line in series if not line.startswith("#")]
    assert len(keys) == len(set(keys)), "a series twice makes Prometheus drop the whole scrape"


def test_close_takes_only_its_own_series(registry: CollectorRegistry) -> None:
    first, second, other = make(registry), make(registry, "pod-b"), make(registry, group="fraud")
    for metrics in (first, second, other):
        fill(metrics)
    first.close()
    text = generate_latest(registry).decode()
    assert 'client_id="pod-a",group="payments"' not in text
    assert value(registry, "loadtrim_records_done_total", P3 | {"client_id": "pod-b"}) == 2
    assert value(registry, "loadtrim_plans_total", GROUP | {"outcome": "up"}) == 2, "the group is still there"
    second.close()
    assert 'group="payments"' not in generate_latest(registry).decode()
    assert value(registry, "loadtrim_plans_total", {"group": "fraud", "outcome": "up"}) == 1
    other.close()
    assert generate_latest(registry) == b"", "the last one takes the collector with it"


def test_close_of_one_of_two_with_the_same_labels_keeps_the_counts(registry: CollectorRegistry) -> None:
    first, second = make(registry), make(registry)
    fill(first)
    fill(second)
    first.close()
    assert value(registry, "loadtrim_records_done_total", P3) == 4, "a counter must not fall"
    assert value(registry, "loadtrim_partitions_owned", MEMBER) == 1


def test_after_close_nothing_is_counted_and_a_new_one_starts_from_zero(registry: CollectorRegistry) -> None:
    old, lasting = make(registry), make(registry, "pod-z")
    fill(old)
    old.close()
    old.close()
    fill(old)
    assert 'client_id="pod-a"' not in generate_latest(registry).decode()
    fill(make(registry))
    assert value(registry, "loadtrim_records_done_total", P3) == 2
    lasting.close()


def test_the_default_registry() -> None:
    metrics = Metrics(None, "payments", "pod-a", 1.0)
    try:
        fill(metrics)
        assert metrics.registry is REGISTRY
        assert REGISTRY.get_sample_value("loadtrim_generation", MEMBER) == 7
    finally:
        metrics.close()
    assert b"loadtrim_" not in generate_latest(REGISTRY)


def test_a_registry_that_already_has_such_names(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    Counter("loadtrim_moves", "Somebody else's.", registry=registry)
    with caplog.at_level(logging.ERROR, "loadtrim.metrics"):
        metrics = make(registry)
        make(registry)
    assert len(caplog.records) >= 1
    assert "Give the consumer a registry of its own" in caplog.text
    fill(metrics)
    assert metrics.registry is not registry
    assert value(metrics.registry, "loadtrim_generation", MEMBER) == 7
    metrics.close()


def test_somebody_emptied_the_registry(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    registry.unregister(metrics._series.page)
    metrics.close()
    fill(make(registry))
    assert value(registry, "loadtrim_generation", MEMBER) == 7


def test_a_registry_is_not_kept_alive() -> None:
    registry = CollectorRegistry()
    metrics = make(registry)
    metrics.close()
    gone = weakref.ref(registry)
    del registry, metrics
    gc.collect()
    assert gone() is None


# States that come and go


def test_a_dropped_partition_loses_its_gauges_and_keeps_its_count(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    fill(metrics)
    metrics.dropped_partition("orders", 3)
    metrics.dropped_partition("orders", 99)
    assert value(registry, "loadtrim_partition_lag_records", P3) is None
    assert value(registry, "loadtrim_partition_arrival_rate", P3) is None
    assert value(registry, "loadtrim_records_done_total", P3) == 2


def test_what_is_not_known_is_not_shown(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    metrics.partition("orders", 3, 5, 1.0, 2.0)
    metrics.partition("orders", 3, None, 0.0, None)
    metrics.utilization(0.5)
    metrics.utilization(None)
    assert value(registry, "loadtrim_partition_lag_records", P3) is None
    assert value(registry, "loadtrim_partition_lag_seconds", P3) == 0
    assert value(registry, "loadtrim_partition_arrival_rate", P3) is None
    assert value(registry, "loadtrim_utilization_ratio", MEMBER) is None


def test_only_a_leader_tells_replicas(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    fill(metrics)
    metrics.leader(False)
    assert value(registry, "loadtrim_leader", MEMBER) == 0
    for state in ("wanted", "actual", "max"):
        assert value(registry, "loadtrim_replicas", GROUP | {"state": state}) is None
    assert value(registry, "loadtrim_partitions_unowned", GROUP) is None


def test_the_heartbeats_age_grows_while_nobody_calls(registry: CollectorRegistry) -> None:
    now = 100.0
    metrics = Metrics(registry, "payments", "pod-a", 1.0, clock=lambda: now)
    assert value(registry, "loadtrim_heartbeat_age_seconds", MEMBER) is None
    metrics.heartbeat_age(0.5)
    now = 107.0
    assert value(registry, "loadtrim_heartbeat_age_seconds", MEMBER) == 7.5


def test_a_caller_with_ever_new_words_is_bounded(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    for number in range(WORDS_MAX + 10):
        metrics.agent_error(f"place {number}")
    assert value(registry, "loadtrim_agent_errors_total", MEMBER | {"where": "place 0"}) == 1
    assert value(registry, "loadtrim_agent_errors_total", MEMBER | {"where": OTHER}) == 10


def test_labels_that_need_escaping(registry: CollectorRegistry) -> None:
    make(registry, 'a"b\\c\nd').entered(1, "loadtrim")
    families = text_string_to_metric_families(generate_latest(registry).decode())
    labels = {sample.labels.get("client_id") for family in families for sample in family.samples} - {None}
    assert list(labels) == ['a"b\\c\nd']


def test_names_are_known_without_a_scrape(registry: CollectorRegistry) -> None:
    make(registry)
    restricted = registry.restricted_registry(["loadtrim_generation"])
    assert [metric.name for metric in restricted.collect()] == []
    assert {family.name for family in FAMILIES} == set(CONTRACT)


def test_what_is_counted_by_words_begins_with_zero(registry: CollectorRegistry) -> None:
    """Without the 0 before it, ``increase()`` does not see the first one."""
    metrics = make(registry)
    for cause in LateCause:
        assert value(registry, "loadtrim_records_late_total", MEMBER | {"cause": cause}) == 0
    assert value(registry, "loadtrim_scaler_requests_total", GROUP | {"outcome": "refused"}) == 0
    metrics.scaler_request("refused")
    make(registry)
    assert value(registry, "loadtrim_scaler_requests_total", GROUP | {"outcome": "refused"}) == 1


def test_words_of_labels_are_those_that_the_code_has() -> None:
    assert set(SCALER_REQUESTS.words) == {answer.value for answer in Answer}
    assert set(COMMITS_FAILED.words) == {failure.value for failure in CommitFailure}
    assert set(RECORDS_LATE.words) == {cause.value for cause in LateCause}
    assert set(PLANS.words) == {outcome.value for outcome in Outcome}
    outcomes = {count.outcome for count in ProtocolCount if count.severity is Severity.MOVE}
    assert set(MOVES.words) == {"done"} | outcomes
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_late_records_are_counted_from_totals(registry: CollectorRegistry) -> None:
    metrics, twin = make(registry), make(registry)
    for totals in ({}, {"queued": 3}, {"queued": 3, "serial": 1}, {"queued": 5, "serial": 1}):
        metrics.records_late(totals)
    twin.records_late({"queued": 2})
    assert value(registry, "loadtrim_records_late_total", MEMBER | {"cause": "queued"}) == 7
    assert value(registry, "loadtrim_records_late_total", MEMBER | {"cause": "serial"}) == 1
    assert value(registry, "loadtrim_records_late_total", MEMBER | {"cause": "blocked"}) == 0


def test_the_record_in_hand_ages_by_itself(registry: CollectorRegistry) -> None:
    now = 100.0
    metrics = Metrics(registry, "payments", "pod-a", 1.0, clock=lambda: now)
    assert value(registry, "loadtrim_record_in_hand_age_seconds", MEMBER) == 0
    metrics.in_hand(98.0)
    assert value(registry, "loadtrim_record_in_hand_age_seconds", MEMBER) == 2
    now = 160.0
    assert value(registry, "loadtrim_record_in_hand_age_seconds", MEMBER) == 62
    metrics.in_hand(None)
    assert value(registry, "loadtrim_record_in_hand_age_seconds", MEMBER) == 0


def test_of_protocols_and_orders_one_is_in_force(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    for entered in ("loadtrim", "mixed", "consumer"):
        metrics.entered(1, entered)
        for protocol in ("loadtrim", "mixed", "consumer"):
            labels = MEMBER | {"protocol": protocol}
            assert value(registry, "loadtrim_group_protocol", labels) == int(protocol == entered)
    metrics.manual_override("hold")
    assert value(registry, "loadtrim_manual_override", MEMBER | {"action": "hold"}) == 1
    assert value(registry, "loadtrim_manual_override", MEMBER | {"action": "scale"}) == 0
    metrics.manual_override(None)
    assert value(registry, "loadtrim_manual_override", MEMBER | {"action": "hold"}) == 0


NAMED_BY_WHAT_IS_COUNTED = {
    "loadtrim_partitions_owned", "loadtrim_partitions_unowned", "loadtrim_replicas", "loadtrim_leader",
    "loadtrim_generation", "loadtrim_group_protocol", "loadtrim_manual_override", "loadtrim_info",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_says_its_unit(family: Family) -> None:
    if family.instead:
        assert family.instead in {other.name for other in FAMILIES}
        assert family.help.startswith("Deprecated: ")
    elif family.kind == "counter":
        assert family.name.endswith("_total")
    elif family.unit in ("count", "flag", "number"):
        assert family.name in NAMED_BY_WHAT_IS_COUNTED
    else:
        assert family.name.endswith(f"_{family.unit.replace('/s', '_per_second')}")


# Threads and time


def test_scrapes_while_batches_are_counted_are_consistent(registry: CollectorRegistry) -> None:
    metrics = make(registry)
    batches, size = 300, 40
    stop = threading.Event()
    torn: list[str] = []

    def scrape() -> None:
        while not stop.is_set():
            samples = {
                (sample.name, sample.labels.get("le")): sample.value
                for metric in registry.collect()
                for sample in metric.samples
            }
            done = samples.get(("loadtrim_records_done_total", None), 0)
            late = samples.get(("loadtrim_record_latency_seconds_bucket", "+Inf"), 0)
            busy = samples.get(("loadtrim_record_busy_seconds_bucket", "+Inf"), 0)
            if not done == late == busy:
                torn.append(f"{done} {late} {busy}")

    def feed() -> None:
        for _ in range(batches):
            metrics.records_done("orders", 3, size, [0.2] * size, [0.001] * size)

    def join_and_leave() -> None:
        while not stop.is_set():
            twin = make(registry, sla=random.uniform(0.1, 0.3))
            twin.entered(3, "loadtrim")
            twin.close()

    feeders = [threading.Thread(target=feed) for _ in range(2)]
    others = [threading.Thread(target=scrape), threading.Thread(target=join_and_leave)]
    for thread in feeders + others:
        thread.start()
    for thread in feeders:
        thread.join()
    stop.set()
    for thread in others:
        thread.join()
    assert torn == []
    assert value(registry, "loadtrim_records_done_total", P3) == 2 * batches * size
    labels = MEMBER | {"topic": "orders", "le": "+Inf"}
    assert value(registry, "loadtrim_record_latency_seconds_bucket", labels) == 2 * batches * size


def test_a_bound_that_comes_while_a_batch_is_bucketed(registry: CollectorRegistry) -> None:
    """The batch was bucketed by the bounds of before: it must not be added to the buckets of after."""

    class Meddling(list[float]):
        def __iter__(self) -> Iterator[float]:
            if not twins:
                twins.append(make(registry, sla=0.21))
            return super().__iter__()

    twins: list[Metrics] = []
    metrics = make(registry)
    metrics.records_done("orders", 3, 1, [0.3], [])
    metrics.records_done("orders", 3, 1, Meddling([0.24]), [])
    assert twins
    name, labels = "loadtrim_record_latency_seconds_bucket", MEMBER | {"topic": "orders"}
    assert value(registry, name, labels | {"le": "0.1"}) == 0
    assert value(registry, name, labels | {"le": "0.21"}) == 0
    assert value(registry, name, labels | {"le": "0.25"}) == 1
    assert value(registry, name, labels | {"le": "0.5"}) == 2


def test_a_batch_costs_a_small_part_of_what_record_by_record_costs(registry: CollectorRegistry) -> None:
    """Ratios, because the machine may be busy: measured 0.15 us against 2 x 1.2 us per record."""
    metrics, size, rounds = make(registry), 256, 20
    latencies = [random.expovariate(4) for _ in range(size)]
    busies = [random.expovariate(170) for _ in range(size)]
    theirs = TheirHistogram("theirs", "x", ["topic"], registry=registry).labels("orders")
    ours_best = theirs_best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        metrics.records_done("orders", 3, size, latencies, busies)
        between = time.perf_counter()
        for latency, busy in zip(latencies, busies, strict=True):
            theirs.observe(latency)
            theirs.observe(busy)
        ended = time.perf_counter()
        ours_best, theirs_best = min(ours_best, between - started), min(theirs_best, ended - between)
    assert ours_best < theirs_best / 5


def test_latencies_are_told_by_bucket_also_after_the_end(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry, "payments", "pod-a", 0.7)
    latencies = [0.0004, 0.6, 0.69, 0.7, 0.71, 1e6]
    told = {0.001: 1, 0.7: 3, 1.0: 1, float("inf"): 1}
    assert metrics.records_done("orders", 3, 6, latencies, []) == told
    metrics.close()
    assert metrics.records_done("orders", 3, 6, latencies, []) == told


def test_what_was_done_of_a_topic_that_is_gone_goes_after_a_while(registry: CollectorRegistry) -> None:
    """A pattern whose topics come and go made a page without end."""
    clock = [0.0]
    metrics = Metrics(registry, "payments", "pod-a", 0.7, clock=lambda: clock[0])
    kept = MEMBER | {"topic": "orders", "partition": "0"}
    for topic in ("orders", "orders.1", "gone"):
        metrics.records_done(topic, 0, 5, [0.1], [0.1])
    metrics.records_done("gone", 1, 5, [0.1], [0.1])
    for topic, partition in (("orders", 0), ("gone", 0)):
        metrics.dropped_partition(topic, partition)
    metrics.owned(2)
    clock[0] = 900.0
    metrics.owned(2)
    done = "loadtrim_records_done_total"
    assert value(registry, done, MEMBER | {"topic": "gone", "partition": "0"}) == 5, "a partition of it is owned"
    assert value(registry, done, kept) is None
    assert value(registry, "loadtrim_record_latency_seconds_count", MEMBER | {"topic": "orders"}) is None
    assert value(registry, done, MEMBER | {"topic": "orders.1", "partition": "0"}) == 5
    metrics.records_done("orders", 0, 2, [0.1], [0.1])
    assert value(registry, done, kept) == 2


def test_what_a_twin_has_done_stays(registry: CollectorRegistry) -> None:
    clock = [0.0]
    one, other = (Metrics(registry, "payments", "pod-a", 0.7, clock=lambda: clock[0]) for _ in range(2))
    for metrics in (one, other):
        metrics.records_done("orders", 0, 5, [0.1], [0.1])
    one.dropped_partition("orders", 0)
    clock[0] = 900.0
    one.owned(0)
    assert value(registry, "loadtrim_records_done_total", MEMBER | {"topic": "orders", "partition": "0"}) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_show_what_its_parent_did() -> None:
    """Its gauges stood still for ever beside the parent's, a second leader among them."""
    program = """
import os
from prometheus_client import CollectorRegistry
from loadtrim_agent.observability.metrics import Metrics
registry = CollectorRegistry()
parent = Metrics(registry, "payments", "parent", 0.7)
parent.leader(True)
parent.records_done("orders", 0, 5, [0.1], [0.1])
leads = lambda name: registry.get_sample_value("loadtrim_leader", {"group": "payments", "client_id": name})
if (child := os.fork()) == 0:
    own = Metrics(registry, "payments", "child", 0.7)
    own.leader(False)
    labels = {"group": "payments", "client_id": "parent", "topic": "orders", "partition": "0"}
    left = registry.get_sample_value("loadtrim_records_done_total", labels)
    shown = leads("parent"), leads("child"), left
    parent.close()
    os._exit(0 if shown == (None, 0, None) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert leads("parent") == 1
raise SystemExit(code)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_number_that_cannot_be_asked_for_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It was a trace with every scrape."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, "payments", "pod-a", 0.5)

    def broken() -> float:
        raise ZeroDivisionError

    metrics.requested(broken)
    with caplog.at_level(logging.ERROR, "loadtrim"):
        for _ in range(3):
            generate_latest(registry)
    assert len(caplog.records) == 1
