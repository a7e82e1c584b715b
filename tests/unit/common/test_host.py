"""What a process is called that the user gives no name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from loadtrim_agent.common import host
from loadtrim_agent.common.host import instance_name
from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.planning.values import GroupState, MemberState, units_of


@pytest.fixture(autouse=True)
def _bare_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in host.CONTAINER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "CONTAINER_FILES", (str(tmp_path / "container"),))
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(os, "getpid", lambda: 4711)


def test_the_setting_is_the_name() -> None:
    assert instance_name(AgentSettings(instance="pod-7")) == "pod-7"


def test_processes_of_one_host_are_replicas_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both had the host's name, so that two processes counted as one replica."""
    names = []
    for pid in (4711, 4712):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        names.append(instance_name(AgentSettings()))
    assert names == ["box-4711", "box-4712"]
    members = {name: MemberState(instance=name) for name in names}
    group = GroupState(generation=1, leader=names[0], members=members, owners={})
    assert len(units_of(group)) == 2


@pytest.mark.parametrize("name", host.CONTAINER_VARIABLES)
def test_a_container_is_known_by_its_host_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "10.0.0.1")
    assert instance_name(AgentSettings()) == "box"


def test_a_container_without_any_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert instance_name(AgentSettings()) == "box"
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    (tmp_path / "container").touch()
    assert instance_name(AgentSettings()) == "box"
