"""The processes of the instances: started under the guard, signalled, reaped; with what they print."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from loadtrim import process_guard

from .instances import (
    CommandNotFoundError,
    InstanceInfo,
    LogDirectoryError,
    LogDirectoryTakenError,
    OrchestratorOptions,
)
from .output import Output, open_output
from .supervisor import Instance

__all__ = ["InstanceProcesses"]

GUARD_END_SECONDS = 10.0
GROUP_LOOK_SECONDS = 0.05
LOCK_NAME = ".lock"
"""The file of a log directory that its orchestrator holds a lock on: no instance's log is called so."""
PASSED_ON_SECONDS = 5.0
"""The processes that a command leaves behind get SIGTERM only so long after the command. Chosen: the margin of the
default time until SIGKILL. A consumer that hears of the end only then still has the drain and the exit time."""


class InstanceProcesses:
    """One process per running instance, by the instance's name; it decides nothing.

    Args:
        command: the command of every instance and its arguments.
        options: where it runs and where its output goes.
        stop_seconds: from SIGTERM to SIGKILL.
    """

    def __init__(self, command: tuple[str, ...], options: OrchestratorOptions, stop_seconds: float) -> None:
        self._command = command
        self._options = options
        # Of a short time half is left to a consumer that hears of the end only then.
        self._passed_on_seconds = min(PASSED_ON_SECONDS, stop_seconds / 2)
        self.log_directory: Path | None = None
        """The directory of the instances' output; None: it is not kept (lines go to ``on_line``)."""
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._log_lock: int | None = None
        """The descriptor of the locked file in a log directory that was given."""
        self._outputs: dict[str, Output] = {}
        self._early_signals: dict[str, int] = {}
        """Signals for instances whose process is just being made."""
        self._asked: dict[str, float] = {}
        """Instances whose process was asked to end, with the loop's time of it."""

    @property
    def running(self) -> bool:
        """Return whether any process is left."""
        return bool(self._processes)

    def id_of(self, name: str) -> int | None:
        """Return the process id of an instance; None where it has no process."""
        process = self._processes.get(name)
        return process.pid if process else None

    def describe(self, instance: Instance, *, epoch: float) -> InstanceInfo:
        """Return an instance as users see it.

        Args:
            instance: as the supervisor sees it.
            epoch: seconds from its clock to the wall's.
        """
        output = self._outputs.get(instance.name)
        return InstanceInfo(
            name=instance.name,
            phase=instance.phase,
            asked_at=instance.asked_at + epoch,
            started_at=None if instance.started_at is None else instance.started_at + epoch,
            process_id=self.id_of(instance.name),
            due_at=None if instance.due_at is None else instance.due_at + epoch,
            log=output.path if output else None,
            failures=instance.failures,
        )

    # -- before the first and after the last ---------------------------------------------------------------------

    def check_command(self, env: Mapping[str, str]) -> None:
        """Look for the command before anything is started.

        Raises:
            CommandNotFoundError: it is not there or may not be run.
        """
        command, where = self._command, self._options.directory or Path()
        found = bool(command) and (
            shutil.which(command[0], path=env.get("PATH"))
            or (os.sep in command[0] and (where / command[0]).is_file() and os.access(where / command[0], os.X_OK))
        )
        if not found:
            name = command[0] if command else ""
            raise CommandNotFoundError(
                f"the command {name!r} was not found or may not be run, so no instance was started; "
                "give its path, or look at PATH"
            )

    def make_log_directory(self) -> None:
        """Make the directory of the logs, where they go into files, and keep others out of it.

        Raises:
            LogDirectoryError: it cannot be made, or another orchestrator writes there.
        """
        directory = self._options.log_directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
                self.log_directory = directory.resolve()
                self._lock(self.log_directory)
            elif not self._options.on_line:
                self.log_directory = Path(tempfile.mkdtemp(prefix="loadtrim-up-"))
        except OSError as error:
            where = directory if directory is not None else tempfile.gettempdir()
            raise LogDirectoryError(f"no directory for logs can be made at {where}: {error.strerror}") from error

    def _lock(self, directory: Path) -> None:
        """Lock a log directory until :meth:`unlock`. The lock of a process that was killed goes with it."""
        try:
            lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:  # Another user has made the file: to be locked it need not be written.
            lock = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LogDirectoryTakenError(
                f"another orchestrator keeps the logs of its instances in {directory}"
            ) from None
        except OSError:
            pass  # Some file systems know no locks: logs are kept there all the same.
        self._log_lock = lock

    def unlock(self) -> None:
        """Let others use the log directory."""
        if self._log_lock is not None:
            os.close(self._log_lock)
            self._log_lock = None

    async def start_guard(self) -> None:
        """The guard reads a pipe whose other end is this process's (and, until they exec, that of the launchers)."""
        guard_fd, self._register_fd = os.pipe()
        self._guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", process_guard.__file__, "watch"),
            *(str(os.getpid()), str(self._options.orphan_seconds)),
            stdin=guard_fd,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(guard_fd)

    async def end_guard(self) -> None:
        """Close the guard's pipe and wait for its end; the log directory is free then."""
        self.unlock()
        os.close(self._register_fd)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._guard.wait(), GUARD_END_SECONDS)

    # -- one process ---------------------------------------------------------------------------------------------

    def open_output(self, name: str) -> None:
        """Open what the instance's next process prints into.

        Raises:
            OSError: its log cannot be written.
        """
        if self.log_directory is not None:  # Whoever tidies /tmp may have removed it.
            self.log_directory.mkdir(parents=True, exist_ok=True)
        self._outputs[name] = open_output(name, self.log_directory, self._options.on_line)

    async def start(self, name: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start the instance's process; a signal that was asked for meanwhile is sent to it.

        Raises:
            OSError: it could not be started.
        """
        output = self._outputs[name]
        try:
            process = await self._spawn(env, output)
        except OSError:
            await output.close()
            raise
        self._processes[name] = process
        if name in self._early_signals:
            self.ask(name, self._early_signals.pop(name))
        return process

    async def _spawn(self, env: Mapping[str, str], output: Output) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", process_guard.__file__, "launch"),
                *(str(os.getpid()), str(self._register_fd)),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.write_fd,
                stderr=output.write_fd,
                env=env,
                cwd=self._options.directory,
                pass_fds=(self._register_fd,),
                start_new_session=True,
            )
        finally:
            output.handed_over()

    async def wait(self, name: str) -> int:
        """Wait for the process's end and return its exit code, negative for a signal.

        Where it was asked to end, what it started is asked as well, and waited for: a shell dies of the SIGTERM that
        the consumer that it runs has not heard of. A command that ends otherwise may have passed the signal on. A
        consumer leaves without handing over when it gets a second one, so it is given time to end by the first.
        """
        process = self._processes[name]
        try:
            code = await process.wait()
            if name in self._asked:
                passed_on = code != -signal.SIGTERM
                await _end_group(process.pid, self._asked[name] + self._passed_on_seconds * passed_on)
            return code
        finally:
            # What the command started and left behind ends with it; on cancellation the command itself does.
            process_guard.send(process.pid, signal.SIGKILL)
            del self._processes[name]
            self._asked.pop(name, None)
            with contextlib.suppress(OSError):
                os.write(self._register_fd, b"-%d\n" % process.pid)

    async def close_output(self, name: str) -> str:
        """Pass on what the ended process has printed, and return its last line."""
        output = self._outputs[name]
        await output.close()
        return output.last_line

    def ask(self, name: str, number: int) -> None:
        """Send a signal to an instance, SIGKILL to all that it started; to one that is being made once it is."""
        process = self._processes.get(name)
        if process is None:
            self._early_signals[name] = number
        elif number == signal.SIGKILL:
            process_guard.send(process.pid, number)
        else:
            self._asked.setdefault(name, asyncio.get_running_loop().time())
            self.signal(name, number)

    def signal(self, name: str, number: int) -> bool:
        """Send a signal to an instance's own process; return False when it has none."""
        process = self._processes.get(name)
        if process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        return True


async def _end_group(group_id: int, term_at: float) -> None:
    """Wait until nothing of a process group is left; SIGTERM is sent to what is there at a time of the loop."""
    now, signalled = asyncio.get_running_loop().time, False
    while _group_lives(group_id):
        if not signalled and now() >= term_at:
            signalled = process_guard.send(group_id, signal.SIGTERM)
        await asyncio.sleep(GROUP_LOOK_SECONDS)


def _group_lives(group_id: int) -> bool:
    """Return whether a process of the group has not ended. One that has and that nobody reaps counts as ended."""
    if not process_guard.send(group_id, 0):
        return False
    states = [state for group, state in map(_group_and_state, Path("/proc").glob("[0-9]*/stat")) if group == group_id]
    return not states or any(state not in "ZX" for state in states)  # without /proc the group's word counts


def _group_and_state(stat: Path) -> tuple[int, str]:
    """Return a process's group and the letter of its state (proc(5)); 0 where it has ended meanwhile."""
    try:
        state, _, group, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0, "X"
    return int(group), state
