"""The process guard: a tiny process that ends what another one has started, however that one ends.

Run by file name with ``python -I -S``, so it imports nothing but the standard library and is up in milliseconds. It
watches its parent: the pipe to its standard input closes; where a forked child of the parent still holds that pipe, the
changed parent id tells. Three modes:

``launch PARENT_ID REGISTER_FD COMMAND...`` becomes an instance of the orchestrator: asks the kernel for SIGTERM when
the parent is gone (Linux; kept over exec), tells the guard its process id (which is its process group's too), then
turns into the command. No process stays in between, and there is no moment at which the command runs unguarded.

``watch PARENT_ID GRACE_SECONDS`` reads the process groups that launchers register. When the parent is gone it gives
them the grace to leave their consumer group in order and kills them, with whatever they started.

``own PARENT_ID [DIRECTORY...]`` starts processes itself, asked in lines of JSON (:mod:`loadtrim.testing.guard`); when
the parent is gone it kills them and removes the directories. The kernel kills them when the guard is killed (Linux).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

LINUX_PR_SET_PDEATHSIG = 1
PARENT_CHECK_SECONDS = 0.5
GROUP_CHECK_SECONDS = 0.05
REMOVE_ATTEMPTS_MAX = 5
COMMAND_NOT_RUN = 127
"""The shell's exit code for a command that could not be run."""
END = b"end"
"""The parent says so before it closes the pipe, because a forked child may hold that open."""


def launch(parent_id: int, register_fd: int, command: list[str]) -> int:
    """Become the command; return only when that is not possible."""
    end_with_parent(signal.SIGTERM)()
    # A parent that died before the request above sends no signal any more.
    if os.getppid() != parent_id:
        return COMMAND_NOT_RUN
    # Where the guard itself was killed, the kernel's signal is what is left.
    with contextlib.suppress(OSError):
        os.write(register_fd, b"+%d\n" % os.getpid())
    os.close(register_fd)
    # Python ignores these for itself, and what is ignored stays so over exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"loadtrim: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
    return COMMAND_NOT_RUN


def watch(parent_id: int, grace_seconds: float) -> int:
    """Wait for the parent's end, then end the registered process groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: dict[int, None] = {}
    for line in lines_until_end(parent_id):  # "+ID" registers a group, "-ID" forgets it
        if line.startswith(b"+"):
            groups[int(line[1:])] = None
        else:
            groups.pop(int(line[1:]), None)
    if not sys.platform.startswith("linux"):
        for group in groups:
            send(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(send(group, 0) for group in groups):
        time.sleep(GROUP_CHECK_SECONDS)
    for group in groups:
        send(group, signal.SIGKILL)
    return 0


def own(parent_id: int, directories: list[str]) -> int:
    """Start, signal and poll processes as asked until the parent's end, then kill them and remove the directories."""

    def stop(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, stop)
    owned = OwnedProcesses()
    try:
        for line in lines_until_end(parent_id):
            request = json.loads(line)
            answer = owned.answer(request) | {"number": request["number"]}
            os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        owned.kill()
        remove(directories)
    return 0


class OwnedProcesses:
    """The processes that the guard has started, by name."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._end_with_guard = end_with_parent(signal.SIGKILL)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what one request asks and return the answer; an unknown request is a programming error."""
        handlers = {"start": self._start, "signal": self._signal, "poll": self._poll}
        try:
            return handlers[request["do"]](request)
        except OSError as error:
            return {"error": str(error)}

    def kill(self) -> None:
        """Kill and reap whatever still runs (a stopped process included)."""
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
                preexec_fn=self._end_with_guard,
            )
        self._processes[request["name"]] = process
        return {"process_id": process.pid}

    def _signal(self, request: dict[str, Any]) -> dict[str, Any]:
        # send_signal looks first whether the process ended, so a reused process id is never hit.
        self._processes[request["name"]].send_signal(request["signal"])
        return {}

    def _poll(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"exit_code": self._processes[request["name"]].poll()}


def end_with_parent(number: int) -> Callable[[], None]:
    """Return what asks the kernel to send the calling process this signal when its parent ends (Linux only)."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded before a fork, called after it
    return lambda: prctl(LINUX_PR_SET_PDEATHSIG, number, 0, 0, 0)


def lines_until_end(parent_id: int) -> Iterator[bytes]:
    """Yield the lines on standard input until the parent is gone, closes the pipe, or says :data:`END`."""
    pending = b""
    while True:
        # What was said before the parent's end is in the pipe by then, and may not have been read yet.
        gone = os.getppid() != parent_id
        readable, _, _ = select.select([0], [], [], 0.0 if gone else PARENT_CHECK_SECONDS)
        if not readable and gone:
            return
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line == END:
                return
            yield line


def send(group: int, number: int) -> bool:
    """Send a signal to a process group; return False when there is none. Number 0 only looks."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def remove(directories: list[str]) -> None:
    """Remove directories; again when a dying process's last files appear while it is under way."""
    for directory in directories:
        for _ in range(REMOVE_ATTEMPTS_MAX):
            shutil.rmtree(directory, ignore_errors=True)
            if not os.path.exists(directory):
                break


def main(mode: str, parent_id: str, *rest: str) -> int:
    if mode == "launch":
        return launch(int(parent_id), int(rest[0]), list(rest[1:]))
    if mode == "watch":
        return watch(int(parent_id), float(rest[0]))
    return own(int(parent_id), list(rest))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
