"""The guard: a tiny process of its own that owns the brokers' JVMs and their data directory.

It ends them for certain: when its parent is gone, however that ended (the pipe to its standard input closes;
where a forked child of the parent still holds that pipe, the changed parent id tells), it kills every JVM that it
started and removes the directories it was told to. On Linux the kernel kills the JVMs when the guard itself is killed.

Run as a script with ``python -I -S``, so it imports nothing but the standard library and is up in milliseconds.
Spoken to in lines of JSON, one answer per request, see :class:`loadtrim.testing.guarded.Guard`.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

PARENT_CHECK_SECONDS = 0.5
REMOVE_ATTEMPTS_MAX = 5
END = b"end"
LINUX_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    """Makes what to run in a new child so that the kernel kills it when the guard is gone (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask_kernel() -> None:
        prctl(LINUX_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask_kernel


class Keeper:
    """Starts, signals and reaps processes by name; kills them all at the end."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ask_kernel = die_with_parent()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what one request asks and returns the answer; an unknown request is a programming error."""
        handlers = {"start": self._start, "signal": self._signal, "poll": self._poll}
        try:
            return handlers[request["do"]](request)
        except OSError as error:
            return {"error": str(error)}

    def end(self) -> None:
        """Kills and reaps whatever still runs (a stopped process included)."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        with open(request["output"], "ab") as output:
            process = subprocess.Popen(
                request["command"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=request["cwd"],
                preexec_fn=self._ask_kernel,
            )
        self._processes[request["name"]] = process
        return {"process_id": process.pid}

    def _signal(self, request: dict[str, Any]) -> dict[str, Any]:
        # send_signal looks first whether the process ended, so a reused process id is never hit.
        self._processes[request["name"]].send_signal(request["signal"])
        return {}

    def _poll(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"exit_code": self._processes[request["name"]].poll()}


def serve(keeper: Keeper, parent_id: int) -> None:
    """Answers requests until the parent is gone or closes the pipe."""
    pending = b""
    while os.getppid() == parent_id:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_SECONDS)
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        pending += chunk
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if line == END:
                # Said in so many words, because a forked child may hold the pipe open.
                return
            request = json.loads(line)
            answer = keeper.answer(request) | {"number": request["number"]}
            os.write(1, json.dumps(answer).encode() + b"\n")


def remove(directories: list[str]) -> None:
    """Removes directories; tried again because a dying JVM's last files may appear while it is under way."""
    for directory in directories:
        for _ in range(REMOVE_ATTEMPTS_MAX):
            shutil.rmtree(directory, ignore_errors=True)
            if not os.path.exists(directory):
                break


def main(arguments: list[str]) -> None:
    """``guard.py PARENT_ID [DIRECTORY_TO_REMOVE...]``."""

    def stop(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, stop)
    keeper = Keeper()
    try:
        serve(keeper, int(arguments[0]))
    except BrokenPipeError:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        keeper.end()
        remove(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
