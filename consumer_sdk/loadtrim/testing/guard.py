"""The side of the process guard's parent: brokers that end with this process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtrim import process_guard
from loadtrim.process_guard import END
from loadtrim.testing.errors import BrokerError

__all__ = ["ProcessGuard"]

GUARD_END_SECONDS = 30.0


class ProcessGuard:
    """Owns processes through a guard process, so that they end with this one whatever happens to it.

    Thread-safe. A process forked from this one may hold a copy: its calls are ignored at :meth:`close`, so that a
    forked worker which unwinds does not stop its parent's brokers.

    Args:
        remove: directories removed when the guard ends, after all its processes have ended.
    """

    def __init__(self, remove: Sequence[Path] = ()) -> None:
        self._owner_id = os.getpid()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        command = [sys.executable, "-I", "-S", process_guard.__file__, "own", str(self._owner_id), *map(str, remove)]
        # A session of its own: Ctrl-C in the terminal reaches this process only, which then closes the guard.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    @property
    def owned(self) -> bool:
        """Return whether this process made it, rather than being forked from the one that did."""
        return os.getpid() == self._owner_id

    def start(self, name: str, command: Sequence[str], output: Path, cwd: Path) -> int:
        """Start a process that appends what it prints to ``output``; return its process id.

        Raises:
            BrokerError: the command could not be run.
        """
        request = {"do": "start", "name": name, "command": list(command), "output": str(output), "cwd": str(cwd)}
        return int(self._ask(request)["process_id"])

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process started before; nothing happens when it has ended."""
        self._ask({"do": "signal", "name": name, "signal": int(number)})

    def exit_code(self, name: str) -> int | None:
        """Return how a process ended (negative: by that signal), None while it runs."""
        code = self._ask({"do": "poll", "name": name})["exit_code"]
        return None if code is None else int(code)

    def close(self) -> None:
        """Kills every process, removes the directories, returns when that is done. May be called again."""
        if not self.owned:
            return
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._process.stdin.write(END + b"\n")
                self._process.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(GUARD_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()
            self._process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                answer = self._exchange(request)
            except (BrokenPipeError, ValueError):
                answer = None
        if answer is None:
            raise BrokerError(
                "the guard process of the local Kafka has ended, and its brokers with it "
                "(stopped already, or killed from outside): start a new LocalKafka"
            )
        if "error" in answer:
            raise BrokerError(f"cannot run {request.get('command', request)}: {answer['error']}")
        return answer

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request and return its answer, None when the guard has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps(request | {"number": number}).encode() + b"\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            # Ctrl-C may have come while an earlier answer was waited for: that one is skipped.
            if answer["number"] == number:
                return answer
        return None
