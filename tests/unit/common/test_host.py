"""What a process is called that the user gives no name."""

from __future__ import annotations

import multiprocessing
import os
import socket
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from loadtrim_agent.common import host
from loadtrim_agent.common.host import instance_name, process_id, process_name
from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.planning.values import GroupState, MemberState, units_of


@pytest.fixture(autouse=True)
def _bare_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in host.CONTAINER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "CONTAINER_FILES", (str(tmp_path / "container"),))
    monkeypatch.setattr(host, "CONTROL_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host, "SYSTEMD", tmp_path / "systemd")
    monkeypatch.setattr(socket, "gethostname", lambda: "box")


@pytest.fixture
def pid(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the id 4711."""
    monkeypatch.setattr(os, "getpid", lambda: 4711)


@pytest.mark.usefixtures("pid")
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


@pytest.mark.usefixtures("pid")
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


@pytest.mark.usefixtures("pid")
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("11:cpu:/docker/0a1b2c", "box"),
        ("0::/system.slice/docker-0a1b2c.scope", "box"),
        ("12:pids:/kubepods/burstable/pod1/2", "box"),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope", "box"),
        ("0::/machine.slice/libpod-0a1b2c.scope/container", "box"),
        ("4:memory:/ecs/task/0a1b2c", "box"),
        ("0::/", "box-4711"),
        ("0::/user.slice/user-1000.slice/session-3.scope", "box-4711"),
        ("0::/system.slice/docker.service", "box-4711"),
        ("0::/system.slice/my-docker-job.service", "box-4711"),
    ],
)
def test_a_container_is_known_by_its_control_group(tmp_path: Path, line: str, name: str) -> None:
    """Runtimes that leave neither a file nor a variable, with a shell as the first process."""
    (tmp_path / "cgroup").write_text(f"{line}\n")
    assert instance_name(AgentSettings()) == name


@pytest.mark.usefixtures("pid")
def test_what_systemd_has_booted_is_a_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Services of an LXC or WSL container come and go one by one."""
    (tmp_path / "systemd").mkdir()
    monkeypatch.setenv("container", "lxc")
    assert instance_name(AgentSettings()) == "box-4711"
    monkeypatch.setenv(host.KUBERNETES, "10.0.0.1")
    assert instance_name(AgentSettings()) == "box"


def _tell(end: Connection) -> None:
    end.send((instance_name(AgentSettings()), process_name()))
    end.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_one_process_have_names_of_their_own(method: str) -> None:
    """A server that forks its workers after the import, and one that starts them anew."""
    context = multiprocessing.get_context(method)
    own = process_name()
    told = []
    for _ in range(2):
        here, there = context.Pipe()
        worker = context.Process(target=_tell, args=(there,))
        worker.start()
        assert here.poll(60), "the worker told nothing"
        told.append((*here.recv(), worker.pid))
        worker.join()
    processes = {process for _, process, _ in told}
    assert len(processes | {own}) == 3
    assert [process_id(process) for _, process, _ in told] == [str(pid) for *_, pid in told]
    if method == "fork":  # a new interpreter knows nothing of this test's host
        assert [name for name, _, _ in told] == [f"box-{pid}" for *_, pid in told]


def test_the_name_of_a_process_stays() -> None:
    assert process_name() == process_name()
    assert process_id(process_name()) == str(os.getpid())


def test_two_processes_with_one_id_have_two_names() -> None:
    """In two containers both processes are often the first."""
    name = process_name()
    host._process_name.cache_clear()
    assert process_name() != name
    assert process_id(process_name()) == process_id(name)
