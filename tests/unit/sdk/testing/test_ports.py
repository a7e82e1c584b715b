"""Free ports: free, different, and out of the way of outgoing connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from loadtrim.testing import ports


def test_they_are_different_and_can_be_bound() -> None:
    found = ports.free_ports(6)

    assert len(set(found)) == 6
    for port in found:
        # As a broker does: what only waits for the end of an old connection is free for it.
        socket.create_server(("127.0.0.1", port)).close()


def test_they_lie_below_the_range_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest - ports.PORT_MIN < 100:
        pytest.skip("this system hands out nearly all ports to outgoing connections")

    assert all(ports.PORT_MIN <= port < lowest for port in ports.free_ports(20))


def test_where_no_room_is_left_below_any_free_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "PORT_MIN", 65_000)

    found = ports.free_ports(3)

    assert len(set(found)) == 3
    assert all(ports.port_is_free(port) for port in found)


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not ports.port_is_free(port)
    assert ports.port_is_free(port)
