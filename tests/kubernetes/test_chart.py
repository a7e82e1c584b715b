"""The chart makes what the kustomization makes, object by object: neither can be changed alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .binaries import Missing, helm
from .shop import EXAMPLE
from .test_manifests import built

pytestmark = pytest.mark.kubernetes
CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ()),
    ({"scaler": "hpa"}, ("metric-hpa",)),
    ({"scaler": "keda"}, ("metric-keda",)),
    ({"ended": True}, ("ended",)),
    ({"operations": True}, ("operations",)),
    ({"lease": True, "ended": True, "operations": True}, ("lease", "ended", "operations")),
    ({"scaler": "hpa", "ended": True, "operations": True}, ("metric-hpa", "ended", "operations")),
]


def chart(values: dict[str, Any], namespace: str = "default") -> list[dict[str, Any]]:
    """Return the objects that the chart makes of these values."""
    try:
        program = helm()
    except Missing as missing:
        pytest.skip(str(missing))
    command = [str(program), "template", "any", str(EXAMPLE / "chart"), "--namespace", namespace, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), check=True, capture_output=True, text=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def by_name(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the objects by kind and name; of an environment the order tells nothing."""
    found = {f"{item['kind']} {item['metadata']['name']}": item for item in items}
    assert len(found) == len(items)
    for item in items:
        if item["kind"] == "Deployment":
            for container in item["spec"]["template"]["spec"]["containers"]:
                container["env"].sort(key=lambda entry: entry["name"])
    return found


@pytest.mark.parametrize(("values", "components"), CASES, ids=[json.dumps(values) for values, _ in CASES])
def test_it_makes_what_the_kustomization_makes(
    tmp_path: Path, values: dict[str, Any], components: tuple[str, ...]
) -> None:
    assert by_name(chart(values)) == by_name(built(tmp_path, *components))


def test_its_values_reach_every_object() -> None:
    """Another name, group, namespace and bounds leave no word of the example's."""
    values = {
        "name": "orders",
        "image": "shop/orders:7",
        "group": "or.ders",
        "env": {"BOOTSTRAP": "k:9092"},
        "minReplicas": 2,
        "maxReplicas": 9,
        "ended": True,
        "operations": True,
    }
    for more in ({"lease": True}, {"scaler": "hpa"}, {"scaler": "keda"}):
        text = json.dumps(chart(values | more, "shop"))
        assert "payments" not in text
        assert "PAYMENTS" not in text.replace("PAYMENTS_BOOTSTRAP", "")
        assert '"value": "2"' in text
        assert "12" not in text.replace("127", "").replace("128Mi", "")
        assert "default" not in text.replace("RuntimeDefault", "")
    assert "replicas.or\\\\.ders" in text


def test_releases_in_two_namespaces_share_no_object_of_the_cluster() -> None:
    """The second one was refused: the first one's admission policy had the name."""
    here, there = ({name for name in by_name(chart({"operations": True}, space)) if "Policy" in name} for space in "ab")
    assert {name.split()[0] for name in here} >= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert {name for name in here & there if "Admission" in name} == set()
    (binding,) = (item for item in chart({"operations": True}, "a") if item["kind"].endswith("PolicyBinding"))
    assert f"ValidatingAdmissionPolicy {binding['spec']['policyName']}" in here


def test_an_upgrade_writes_no_replicas_and_a_wrong_scaler_is_refused() -> None:
    (deployment,) = (item for item in chart({}) if item["kind"] == "Deployment")
    assert "replicas" not in deployment["spec"]
    with pytest.raises(subprocess.CalledProcessError) as raised:
        chart({"scaler": "metric"})
    assert "kubernetes, hpa or keda" in raised.value.stderr
