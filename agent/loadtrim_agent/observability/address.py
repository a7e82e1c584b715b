"""Where a server is to listen, as ``LOADTRIM_HTTP`` names it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["OFF", "Address", "parse_address"]

OFF: Final = "off"
"""The address of no server."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int
    """0: any free port."""


def parse_address(text: str) -> Address | None:
    """Read a ``LOADTRIM_HTTP`` value: ``host:port``, ``[ipv6]:port`` or ``off`` (None).

    Raises:
        ValueError: it is none of these; the text says what is allowed.
    """
    if text.strip().lower() == OFF:
        return None
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    plain = host and (bracketed or ":" not in host)
    if not (colon and plain and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(
            f"{text!r} is no address to listen on. Allowed: host:port, for example 127.0.0.1:0 (port 0: any "
            f"free one), 0.0.0.0:9095 or [::1]:9095, and {OFF}."
        )
    return Address(host, int(port))
