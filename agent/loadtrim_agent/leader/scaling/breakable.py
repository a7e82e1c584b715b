"""A blocking HTTP connection in a thread of its own, which the loop may break off at any time.

The time-out of a socket counts per call, so the loop keeps the time of a whole request. When that is over, the socket
is shut down under the thread, and the call that waits there ends.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator

__all__ = ["BreakableConnection"]


class BreakableConnection:
    """One connection. :meth:`opened` runs in its thread, :meth:`break_off` in any.

    Args:
        connect: makes the connection, unconnected. Called in the thread, for reading certificates takes a while.
    """

    def __init__(self, connect: Callable[[], http.client.HTTPConnection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._broken_off = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[http.client.HTTPConnection]:
        """Connect, and close the connection at the end of the block.

        Raises:
            ConnectionAbortedError: it was broken off before, so that nothing is to be sent.
        """
        connection = self._connection = self._connect()
        try:
            connection.connect()
            with self._lock:
                # The connection forgets its socket while an answer is still read from it.
                self._sock = connection.sock
                if self._broken_off:
                    raise ConnectionAbortedError("broken off")
            yield connection
        finally:
            connection.close()

    def break_off(self) -> None:
        """Make the thread end soon; what it has not sent yet is never sent. Fine at any time."""
        with self._lock:
            self._broken_off = True
            _shut_down(self._sock)
            if self._connection is not None:
                _shut_down(self._connection.sock)


def _shut_down(sock: socket.socket | None) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):  # not connected any more
            # Of the plain socket, because that of TLS changes state which the request's thread is using.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
