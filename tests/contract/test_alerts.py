"""The alert rules of examples/alerts, on series that the agent's metrics make: each fires for its fault alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from loadtrim_agent.observability.families import FAMILIES
from loadtrim_agent.observability.metrics import Metrics
from pages.metrics import PAGE, RULES, rules, written

MINUTES = 40
FAULT_FROM = 10
"""Minute at which the fault begins: before it all is well, and no rule fires."""
NAMESPACE = "production"
"""Of the group; a PodMonitor gives this label to all that it scrapes."""
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus): the rules are not evaluated"
)


@dataclass
class Member:
    """One member that leads its group, and the clock of its machine."""

    metrics: Metrics
    now: float = 0.0

    def is_well(self) -> None:
        """Tell a minute in which nothing is wrong: one record of 2,000 is late, which the objective allows."""
        if self.works:
            self.metrics.records_done("payments", 0, 2_000, [0.1] * 2_000, [0.01] * 2_000)
            self.late += 1
        self.metrics.records_late({"queued": self.late})
        self.metrics.partition("payments", 0, 20, 0.2, 33.0)
        if self.connected:
            self.metrics.heartbeat_age(0.2)
        self.metrics.plan("none", 0.002)
        self.metrics.replicas("wanted", 2)
        self.metrics.replicas("actual", 2)
        self.metrics.replicas("max", 4)
        self.metrics.unowned(0)
        self.metrics.in_hand(None)

    late: int = 0
    works: bool = True
    """Records are done."""
    connected: bool = True
    """Heartbeats are answered."""


Fault = Callable[[Member, int], None]
"""What goes wrong in a minute, told after :meth:`Member.is_well`; its number counts from the fault's beginning."""


def records_late(member: Member, minute: int) -> None:
    member.late += 10
    member.metrics.records_late({"serial": member.late})


def degraded(protocol: str) -> Fault:
    def enter(member: Member, minute: int) -> None:
        if minute == 0:
            member.metrics.entered(2, protocol)

    return enter


def lag_grows(wanted: int) -> Fault:
    def grow(member: Member, minute: int) -> None:
        member.metrics.partition("payments", 0, 500 * minute, 10.0 * minute, 99.0)
        member.metrics.replicas("wanted", wanted)

    return grow


def stands_still(member: Member, minute: int) -> None:
    """Records wait, and none is done."""
    member.works = False
    member.metrics.partition("payments", 0, 500 * minute, 60.0 * minute, 33.0)


def cut_off(member: Member, minute: int) -> None:
    """The broker answers nothing, so nobody knows what waits."""
    member.works = member.connected = False


def cut_off_while_others_work(member: Member, minute: int) -> None:
    member.connected = False


def idle(member: Member, minute: int) -> None:
    """Nothing comes, so nothing is done."""
    member.works = False
    member.metrics.partition("payments", 0, 0, 0.0, 0.0)


def lag_shrinks(member: Member, minute: int) -> None:
    member.metrics.partition("payments", 0, 500, max(0.0, 600.0 - 10 * minute), 99.0)
    member.metrics.replicas("wanted", 4)


def scaler_answers(*outcomes: str) -> Fault:
    def answer(member: Member, minute: int) -> None:
        for outcome in outcomes:
            member.metrics.scaler_request(outcome)

    return answer


def another_autoscaler(member: Member, minute: int) -> None:
    """It corrects what the leader writes, so that the leader holds for ten minutes after each three changes."""
    if minute % 10 == 0:
        scaler_answers(*["accepted"] * 3)(member, minute)
    scaler_answers("refused")(member, minute)


def scaler_fails_now_and_then(member: Member, minute: int) -> None:
    scaler_answers("accepted" if minute % 3 == 0 else "failed")(member, minute)


def commits_fail(reason: str) -> Fault:
    return lambda member, minute: member.metrics.commit_failed(reason)


def coordinator_moves(member: Member, minute: int) -> None:
    """It does so now and then, and one commit is sent again for it."""
    if minute % 9 == 0:
        member.metrics.commit_failed("coordinator")


def record_stuck(seconds: float) -> Fault:
    """A record is in hand, from the fault's beginning, or for so many seconds at most."""
    return lambda member, minute: member.metrics.in_hand(member.now - min(60.0 * minute, seconds))


def unowned(member: Member, minute: int) -> None:
    member.metrics.unowned(3)


def unowned_for_a_minute(member: Member, minute: int) -> None:
    member.metrics.unowned(3 if minute % 10 == 0 else 0)


def dead(member: Member, minute: int) -> None:
    member.metrics.close()


def nothing(member: Member, minute: int) -> None:
    """All stays well."""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@needs_promtool
@pytest.mark.parametrize(
    ("fault", "fires"),
    [
        (nothing, None),
        (records_late, "LoadtrimRecordsLate"),
        (degraded("mixed"), "LoadtrimGroupDegraded"),
        (degraded("consumer"), "LoadtrimGroupDegraded"),
        (degraded("loadtrim"), None),
        (lag_grows(wanted=4), "LoadtrimLagGrowsAtMaxReplicas"),
        (lag_grows(wanted=3), None),
        (lag_shrinks, None),
        (stands_still, "LoadtrimStandsStill"),
        (cut_off, "LoadtrimStandsStill"),
        (cut_off_while_others_work, None),
        (idle, None),
        (scaler_answers("refused"), "LoadtrimScalerRefuses"),
        (scaler_answers("failed"), "LoadtrimScalerRefuses"),
        (scaler_answers("failed", "accepted"), None),
        (another_autoscaler, "LoadtrimScalerRefuses"),
        (scaler_fails_now_and_then, None),
        (commits_fail("fenced"), "LoadtrimCommitsFail"),
        (commits_fail("refused"), "LoadtrimCommitsFail"),
        (commits_fail("rebalance"), None),
        (commits_fail("coordinator"), "LoadtrimCommitsFail"),
        (coordinator_moves, None),
        (record_stuck(1e9), "LoadtrimRecordStuck"),
        (record_stuck(50.0), None),
        (unowned, "LoadtrimPartitionsUnowned"),
        (unowned_for_a_minute, None),
        (dead, "LoadtrimNoMember"),
    ],
)
def test_a_rule_fires_for_its_fault_and_no_other(
    fault: Fault, fires: str | None, registry: CollectorRegistry, tmp_path: Path
) -> None:
    expect(fires, scraped(registry, fault), tmp_path)


@needs_promtool
@pytest.mark.parametrize(
    ("fault", "fires", "in_staging"),
    [
        (records_late, "LoadtrimRecordsLate", nothing),
        (stands_still, "LoadtrimStandsStill", nothing),
        (scaler_answers("refused"), "LoadtrimScalerRefuses", scaler_answers("accepted")),
        (lag_grows(wanted=4), "LoadtrimLagGrowsAtMaxReplicas", nothing),
        (unowned, "LoadtrimPartitionsUnowned", nothing),
    ],
)
def test_a_group_of_the_same_name_in_another_namespace_hides_nothing(
    fault: Fault, fires: str, in_staging: Fault, registry: CollectorRegistry, tmp_path: Path
) -> None:
    there = [*scraped(registry, fault), *scraped(CollectorRegistry(), in_staging, namespace="staging")]
    expect(fires, there, tmp_path, f'namespace="{NAMESPACE}"')


def expect(fires: str | None, series: list[dict[str, str]], tmp_path: Path, where: str = "") -> None:
    """Evaluate the rules: before the fault none fires, and in the end this one alone; ``where``: a label it has."""
    expected = [{"labels": f'{{alertname="{fires}"}}', "value": 1}] if fires is not None else []
    query = f'count by (alertname) (ALERTS{{alertstate="firing",{where}}})'
    checks = [
        {"expr": query, "eval_time": f"{FAULT_FROM - 1}m", "exp_samples": []},
        {"expr": query, "eval_time": f"{MINUTES - 1}m", "exp_samples": expected},
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    file = tmp_path / "alerts.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    run = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    run = subprocess.run([str(PROMTOOL), "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(rules(RULES.read_text()))} rules found" in run.stdout


@needs_promtool
def test_promtool_finds_nothing_wrong_with_what_is_scraped(registry: CollectorRegistry) -> None:
    from prometheus_client import generate_latest

    member = well(registry)
    member.metrics.agent_error("planning")
    text = generate_latest(registry)
    run = subprocess.run([str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")


def test_rules_name_metrics_labels_and_values_that_there_are() -> None:
    names = {family.name: family for family in FAMILIES}
    for rule in rules(RULES.read_text()):
        used = re.findall(r"\b(loadtrim_\w+)(?:\{(\w+)\W+\"([\w-]+)\"\})?", rule.expr)
        assert used, rule.name
        for name, label, value in used:
            family = names[re.sub(r"_(count|sum|bucket)$", "", name)]
            assert not family.instead, f"{rule.name} uses {name}, which is deprecated"
            assert not label or label in family.labels
            assert not label or label == "group" or value in family.words


def test_the_page_is_as_the_code_makes_it() -> None:
    """``PYTHONPATH=tests .venv/bin/python -m pages --write`` makes it anew."""
    assert PAGE.read_text() == written(PAGE.read_text())


def well(registry: CollectorRegistry) -> Member:
    member = Member(Metrics(registry, "payments-service", "pod-a", 1.0, clock=lambda: member.now))
    member.metrics.about(version="1.0", policy="objective", packer="trim", mode="active", share=0.999)
    member.metrics.entered(1, "loadtrim")
    member.metrics.leader(True)
    member.metrics.owned(1)
    member.is_well()
    return member


def scraped(
    registry: CollectorRegistry, fault: Fault, *, buckets: bool = False, namespace: str = NAMESPACE
) -> list[dict[str, str]]:
    """Scrape a member each minute, and return its series, with those of buckets or without, as promtool reads them."""
    values: dict[str, list[str]] = {}
    member = well(registry)
    for minute in range(MINUTES):
        member.now = minute * 60.0
        member.is_well()
        if minute >= FAULT_FROM:
            fault(member, minute - FAULT_FROM)
        for name, value in samples(registry, buckets, namespace):
            values.setdefault(name, ["_"] * minute).append(f"{value:g}" if value < 1e6 else f"{value:.0f}")
        for told in values.values():
            told.extend(["_"] * (minute + 1 - len(told)))
    return [{"series": name, "values": " ".join(told)} for name, told in values.items()]


def samples(registry: CollectorRegistry, buckets: bool, namespace: str) -> Iterator[tuple[str, float]]:
    for metric in registry.collect():
        for sample in metric.samples:
            labels = {"job": "payments", "instance": "10.0.0.1:9095", "namespace": namespace, **sample.labels}
            if sample.name.endswith("_created") or (sample.name.endswith("_bucket") and not buckets):
                continue
            listed = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
            yield f"{sample.name}{{{listed}}}", sample.value
