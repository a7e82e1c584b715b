"""What ``loadtrim doctor`` asks for, and what it leaves."""

from __future__ import annotations

import pytest

from loadtrim.cli import doctor, main
from loadtrim.observer.checkup import Finding, Needs, Verdict
from loadtrim.observer.connection import Connection
from loadtrim.observer.rights import ClusterRights, Operation, Rights

ALL = frozenset(Operation)
WELL = Rights(operations=ALL)


@pytest.mark.parametrize(("partitions", "asked"), [(1, False), (2, True)])
async def test_no_telemetry_is_read_from_a_topic_that_is_too_small(
    partitions: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 10 s it said that the cluster failed, though the line that mends it stood above."""

    async def rights(*_: object) -> ClusterRights:
        control = Rights(operations=ALL, partitions=partitions)
        return ClusterRights(brokers=1, cluster=WELL, group=WELL, topics={"c": control})

    async def settings(*_: object) -> None:
        return None

    async def clocks(*_: object) -> Finding:
        return Finding(what="clocks", verdict=Verdict.OK, detail="")

    monkeypatch.setattr(doctor, "ask_rights", rights)
    monkeypatch.setattr(doctor, "_settings", settings)
    monkeypatch.setattr(doctor, "_clocks", clocks)
    needs = Needs(bootstrap="b:1", group="g", topics=(), control="c")
    found = await doctor._look(Connection("b:1", "--bootstrap"), needs)
    assert ("clocks" in [each.what for each in found]) == asked
    assert any("--alter" in each.remedy for each in found) != asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context", "test"], "are of a kubeconfig"),
        (["--namespace", "pay"], "are of a kubeconfig"),
        (["--service-account", "pay"], "are of a kubeconfig"),
        (["--workload", "deployment/payments"], "--workload was given, and LOADTRIM_SCALER=none has none"),
        (["--workload", "payments"], "--workload: "),
    ],
)
def test_what_is_of_a_cluster_that_is_not_asked_is_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of them were passed over in silence: nothing was missing, and no cluster had been asked."""
    monkeypatch.delenv("LOADTRIM_SCALER", raising=False)
    assert main(["doctor", "g", "--bootstrap", "127.0.0.1:1", *words]) == 2
    assert said in capsys.readouterr().err
