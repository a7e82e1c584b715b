"""Free ports on 127.0.0.1 that stay free."""

from __future__ import annotations

import random
import socket
from pathlib import Path

__all__ = ["free_ports", "port_is_free"]

PORT_MIN = 15_000
ATTEMPTS_MAX = 1_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_MIN_ELSEWHERE = 49_152


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on now, all different.

    They lie below the range the system takes outgoing connections' ports from: a port in it may be taken while its
    broker restarts, even by a client that keeps trying to reach that broker and so connects to itself.

    Raises:
        OSError: no port is free.
    """
    highest = _ephemeral_min() - 1
    if highest - PORT_MIN < 10 * count:
        return _any_ports(count)
    # Two processes may look at the same time: drawing at random keeps them apart where counting up would not.
    draw = random.SystemRandom()
    ports: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        if len(ports) == count:
            return ports
        port = draw.randint(PORT_MIN, highest)
        if port not in ports and port_is_free(port):
            ports.append(port)
    return _any_ports(count)


def _ephemeral_min() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_MIN_ELSEWHERE


def port_is_free(port: int) -> bool:
    """Return whether nobody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _any_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
