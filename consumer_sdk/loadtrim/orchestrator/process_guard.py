"""Keeps instances from outliving their orchestrator, also when that is killed with -9.

Run by file name with ``python -I -S``, so it imports nothing but the standard library. Two modes:

``process_guard.py launch PARENT_ID REGISTER_FD COMMAND...`` becomes the instance: asks the kernel for SIGTERM when the
orchestrator is gone (Linux; kept over exec), tells the guard its process id (which is its process group's too), then
turns into the command. No process stays in between, and there is no moment at which the command runs unguarded.

``process_guard.py guard PARENT_ID GRACE_SECONDS`` waits for the orchestrator to end (its standard input closes; where a
forked child still holds that pipe, the changed parent id tells). Then it gives the instances the grace to leave their
group in order and kills their process groups, with whatever they started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

LINUX_PR_SET_PDEATHSIG = 1
PARENT_CHECK_SECONDS = 0.5
GROUP_CHECK_SECONDS = 0.05
COMMAND_NOT_RUN = 127
"""The shell's exit code for a command that could not be run."""


def launch(parent_id: int, register_fd: int, command: list[str]) -> int:
    """Becomes the command; returns only when that is not possible."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(LINUX_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
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


def guard(parent_id: int, grace_seconds: float) -> int:
    """Waits for the parent's end, then ends the registered process groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = read_groups(parent_id)
    if not sys.platform.startswith("linux"):
        for group in groups:
            send(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(alive(group) for group in groups):
        time.sleep(GROUP_CHECK_SECONDS)
    for group in groups:
        send(group, signal.SIGKILL)
    return 0


def read_groups(parent_id: int) -> list[int]:
    """Reads ``+ID`` and ``-ID`` lines until the parent is gone. Returns the groups that are left."""
    groups: dict[int, None] = {}
    pending = b""
    while os.getppid() == parent_id:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_SECONDS)
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                groups[int(line[1:])] = None
            else:
                groups.pop(int(line[1:]), None)
    return list(groups)


def alive(group: int) -> bool:
    """Whether a process of the group is left."""
    return send(group, 0)


def send(group: int, number: int) -> bool:
    """Sends a signal to a process group; False when there is none."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        sys.exit(launch(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
    sys.exit(guard(int(sys.argv[2]), float(sys.argv[3])))
