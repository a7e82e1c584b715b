"""The way of an instance's output: a log file, lines to a callback, or both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from loadtrim_agent.common.error_boundary import FirstOfKind

__all__ = ["Output", "open_output"]

_log = logging.getLogger("loadtrim.up")

LINE_BYTES_MAX = 65_536
TAIL_BYTES = 4_096
LAST_LINE_CHARACTERS_MAX = 200
FLUSH_SECONDS = 1.0


class Output:
    """The output of one process, straight into its log file: it goes on printing whatever this process does.

    Args:
        path: the log file, appended to; None: none.
        write_fd: what the process prints into. Closed by :meth:`handed_over`.
    """

    def __init__(self, path: Path | None, write_fd: int) -> None:
        self.path = path
        self.write_fd = write_fd
        # The log may hold what processes before this one have printed, of another day too.
        self._begins_at = os.fstat(write_fd).st_size

    @property
    def last_line(self) -> str:
        """The last line of this process that is not empty, cut to 200 characters."""
        if self.path is None:
            return ""
        try:
            with self.path.open("rb") as log:
                log.seek(max(self._begins_at, os.fstat(log.fileno()).st_size - TAIL_BYTES))
                return _last_line(log.read())
        except OSError:
            return ""

    def handed_over(self) -> None:
        """The process has its copy of the descriptor: ours is closed."""
        os.close(self.write_fd)

    async def close(self) -> None:
        """The process has ended."""


class PipedOutput(Output):
    """Passes lines to a callback, and copies them to the log file where there is one."""

    def __init__(self, name: str, path: Path | None, on_line: Callable[[str, str], None]) -> None:
        self._log = None if path is None else path.open("ab", buffering=0)
        self._read_fd, write_fd = os.pipe()
        super().__init__(path, write_fd)
        self._name = name
        self._on_line = on_line
        self._errors = FirstOfKind()
        self._tail = b""
        self._pump_task = asyncio.create_task(self._pump(), name=f"output of {name}")

    @property
    def last_line(self) -> str:
        return _last_line(self._tail)

    async def close(self) -> None:
        """Pass on what is still in the pipe; whoever else holds it open is not waited for."""
        await asyncio.wait({self._pump_task}, timeout=FLUSH_SECONDS)
        self._pump_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump_task

    async def _pump(self) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._read_fd, "rb", buffering=0)
        )
        pending = b""
        try:
            while chunk := await reader.read(LINE_BYTES_MAX):
                self._keep(chunk)
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                *lines, pending = (pending + chunk).split(b"\n")
                if len(pending) >= LINE_BYTES_MAX:
                    lines, pending = [*lines, pending], b""
                self._pass_on(lines)
        finally:
            self._pass_on([pending] if pending else [])
            transport.close()
            if self._log is not None:
                self._log.close()

    def _keep(self, chunk: bytes) -> None:
        """Write to the log, where there is one. A full disk does not end what prints."""
        if self._log is None:
            return
        try:
            self._log.write(chunk)
        except OSError as error:
            _log.warning("%s: what %s prints is not kept any more: %s", self.path, self._name, error)
            self._log.close()
            self._log = None

    def _pass_on(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self._on_line(self._name, line.decode(errors="replace").rstrip("\r"))
            except Exception as error:
                _log.log(
                    self._errors.level(error),
                    "what on_line does with a line of %s failed; the instance goes on. Said once",
                    self._name,
                    exc_info=error,
                )


def open_output(name: str, directory: Path | None, on_line: Callable[[str, str], None] | None) -> Output:
    """Open what an instance prints into: its log in ``directory``, or a pipe to ``on_line``, or both."""
    path = directory / f"{name}.log" if directory else None
    if on_line:
        return PipedOutput(name, path, on_line)
    assert path is not None
    return Output(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))


def _last_line(data: bytes) -> str:
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:LAST_LINE_CHARACTERS_MAX] if lines else ""
