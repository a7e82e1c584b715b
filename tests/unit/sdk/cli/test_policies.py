"""``loadtrim policies`` says what the code says."""

from __future__ import annotations

import json

import pytest

from loadtrim.cli import main
from loadtrim.cli.policies import describe
from loadtrim_agent.planning.registry import POLICIES


def test_every_policy_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("\n\n")[0].splitlines()]
    assert listed == list(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_says_what_it_does_and_what_can_be_set(name: str) -> None:
    told = describe(name)
    assert told.looks_at
    assert "`" not in told.text.partition("Source:")[0], "references are written out"
    assert told.text.count("\n") >= 2 or name == "fixed"
    assert all(each.meaning and each.allowed for each in told.parameters)


def test_what_one_policy_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "keda", "fixed"]) == 0
    told = capsys.readouterr().out
    assert "keda: looks at lag\n" in told
    assert "\n  replicas: how many" in told
    assert "\n  lag_threshold_records (default 290)" in told


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "--json", "closer24"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told["name"] == "closer24"
    assert {"name", "default", "allowed", "meaning"} == set(told["parameters"][0])


def test_a_name_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "obejctive"]) == 2
    assert "the nearest is 'objective'" in capsys.readouterr().err
