"""Processes that are asked by JSON lines on their standard input, and answer on their standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Child", "serve"]

PROJECT = Path(__file__).resolve().parents[2]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ANSWER_SECONDS = 60.0
LINE_BYTES_MAX = 1 << 24

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Child:
    """The asking side. Every process is ended by :meth:`close`, also the ones that hang."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, of all its threads. From outside: an answer would be work too."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    @property
    def resident_bytes(self) -> int:
        """Private and shared pages in use now."""
        return self._kilobytes("smaps_rollup", "Rss:") * 1024

    @property
    def peak_bytes(self) -> int:
        """The most that was resident since the start, or since :meth:`forget_peak`."""
        return self._kilobytes("status", "VmHWM:") * 1024

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def descriptors(self) -> tuple[int, int]:
        """Return how many are open: (sockets, others)."""
        links = []
        for path in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(str(path.readlink()))
        sockets = sum(link.startswith("socket:") for link in links)
        return sockets, len(links) - sockets

    @property
    def lines(self) -> int:
        """Return how many lines it has logged."""
        return self.log.read_bytes().count(b"\n")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _kilobytes(self, file: str, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/{file}").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise RuntimeError(f"no {name} of {self.name}")

    @classmethod
    async def spawn(
        cls, module: str, name: str, options: Mapping[str, Any], logs: Path, env: Mapping[str, str] | None = None
    ) -> Child:
        """Start ``python -m module``; returns when it has said that it is ready."""
        paths = [str(PROJECT), *(str(PROJECT / path) for path in ("agent", "consumer_sdk", "examples"))]
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LOADTRIM_")},
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "LOADTRIM_INSTANCE": name,
            **(env or {}),
        }
        log = logs / f"{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                json.dumps(dict(options)),
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES_MAX,
            )
        child = cls(name, process, log)
        await child._read()
        return child

    async def ask(self, do: str, *, timeout_seconds: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            RuntimeError: the process has ended, or its handler raised; with the end of its log.
        """
        async with self._turn:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            await self.process.stdin.drain()
            answer = await self._read(timeout_seconds)
        if "error" in answer:
            raise RuntimeError(f"{self.name} failed at {do}: {answer['error']}\n{self._tail()}")
        return answer

    async def _read(self, timeout_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout_seconds):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def close(self) -> None:
        """Close its input, which ends it; kill it when that takes too long."""
        if self.process.returncode is None:
            with contextlib.suppress(OSError):
                assert self.process.stdin is not None
                self.process.stdin.close()
            try:
                async with asyncio.timeout(15.0):
                    await self.process.wait()
            except TimeoutError:
                self.kill()
                await self.process.wait()


async def serve(handler: Handler) -> None:
    """The answering side: until the input ends."""
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _say({"ready": True})
    while line := await reader.readline():
        try:
            answer = await handler(json.loads(line))
        except Exception as error:
            answer = {"error": repr(error)}
        _say(answer)


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(dict(answer)) + "\n")
    sys.stdout.flush()
