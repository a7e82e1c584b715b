"""The server of docs/webhook.md, run as it stands there."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pages.blocks import program

__all__ = ["TOKEN", "serving"]

TOKEN = "s3cret-t0ken"
START_SECONDS = 30.0
LOOK_SECONDS = 0.02


@asynccontextmanager
async def serving(directory: Path, *service: str, env: Mapping[str, str] | None = None) -> AsyncIterator[int]:
    """Run the server, and yield its port.

    It has a session of its own: its instances, which are its children, are killed with it.

    Args:
        directory: where the program is written to.
        service: what an instance runs.
        env: for the server and its instances, beside this process's.
    """
    port = _free_port()
    (directory / "scaler.py").write_text(program("docs/webhook.md", "A server"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(directory / "scaler.py"), *service, start_new_session=True,
        env={**os.environ, **(env or {}), "LOADTRIM_SCALER_TOKEN": TOKEN, "PORT": str(port)},
    )  # fmt: skip
    try:
        async with asyncio.timeout(START_SECONDS):
            while not _listens(port):  # noqa: ASYNC110 - nothing tells when a foreign process listens
                await asyncio.sleep(LOOK_SECONDS)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
