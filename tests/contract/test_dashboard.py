"""The dashboard of examples/grafana: each expression finds something in the metrics of a group that is busy.

A real Prometheus evaluates them (``promtool``), on series that the agent's metrics make.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from contract.test_alerts import MINUTES, NAMESPACE, PROMTOOL, Member, needs_promtool, scraped
from loadtrim_agent.observability.families import FAMILIES

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "loadtrim.json"
VARIABLES = {"$__rate_interval": "4m", "$namespace": NAMESPACE, "$group": "payments-service"}
"""As Grafana fills them in; each metric is scraped once a minute here."""


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def busy(member: Member, minute: int) -> None:
    """All happens that a panel is about."""
    metrics = member.metrics
    metrics.utilization(0.7)
    metrics.owned(4)
    metrics.handoff("acquire", 0.02)
    metrics.handoff("release", 0.01)
    metrics.move("done")
    metrics.entered(minute, "loadtrim")
    metrics.commit_failed("rebalance")
    metrics.scaler_request("accepted")
    metrics.agent_error("planning")
    metrics.manual_override("hold")
    metrics.unowned(0)


@needs_promtool
def test_each_expression_finds_something(tmp_path: Path) -> None:
    series = scraped(CollectorRegistry(), busy, buckets=True)
    checks = []
    for _, expression in expressions():
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        found = {"labels": "{}", "value": 1}
        checks.append(
            {"expr": f"clamp_max(count({expression}), 1)", "eval_time": f"{MINUTES - 1}m", "exp_samples": [found]}
        )
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}))
    run = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


def test_expressions_name_metrics_and_labels_that_there_are() -> None:
    families = {family.name: family for family in FAMILIES}
    for title, expression in expressions():
        names = re.findall(r"\bloadtrim_\w+", expression)
        assert names, title
        for name in names:
            family = families[re.sub(r"_(count|sum|bucket)$", "", name)]
            assert not family.instead, f"{title} uses {name}, which is deprecated"
            for label in re.findall(r"by \(([^)]*)\)", expression):
                assert {each.strip() for each in label.split(",")} <= {*family.labels, "le", "namespace"}, title
        selectors = expression.count("loadtrim_")
        one = 'namespace="$namespace",group="$group"'
        assert expression.count(one) == selectors, f"{title} shows several groups at once"


def test_panels_have_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, "Grafana's grid is 24 wide"
        taken |= cells
