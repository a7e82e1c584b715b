"""A way to the API server on which what it answers arrives late, so that the caches of its clients lag behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Self

__all__ = ["LaggingWay"]

CHUNK_BYTES = 65536


class LaggingWay:
    """Forwards connections on loopback, in a thread of its own. Use it in ``with``.

    Args:
        to: port that is connected to.
        port: that is listened at.
    """

    def __init__(self, to: int, port: int) -> None:
        self.port = port
        self._to = to
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="lagging-way", daemon=True)
        self._listens = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    @contextlib.contextmanager
    def late_by(self, seconds: float) -> Iterator[None]:
        """What is read meanwhile arrives so much later. Nothing overtakes what came before it."""
        self._seconds = seconds
        try:
            yield
        finally:
            self._seconds = 0.0

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self._listens.set()
        await self._ends.wait()
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
            await asyncio.gather(self._at_once(reader, far_writer), self._late(far_reader, writer))

    async def _at_once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def _late(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.create_task(self._write(chunks, writer))
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                chunks.put_nowait((self._loop.time() + self._seconds, chunk))
        finally:
            chunks.put_nowait((0.0, b""))
            await writing

    async def _write(self, chunks: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, chunk = await chunks.get()
            if not chunk:
                break
            await asyncio.sleep(due - self._loop.time())
            writer.write(chunk)
            await writer.drain()
        writer.close()
