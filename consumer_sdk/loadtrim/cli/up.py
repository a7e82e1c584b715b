"""``loadtrim up -- COMMAND``: runs a command several times, as many as its group's leader asks for."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loadtrim.errors import EXIT_DONE, EXIT_FAILED, CommandError, UsageError
from loadtrim.observer.connection import Connection, add_arguments, connection_from
from loadtrim.observer.control_topic import topic_of
from loadtrim.observer.ended import EndedProcesses
from loadtrim.observer.follow import CONNECTING, GroupFollower
from loadtrim.observer.group import ObservedGroup
from loadtrim.orchestrator.instances import (
    EventKind,
    LogDirectoryError,
    LogDirectoryTakenError,
    OrchestratorEvent,
    OrchestratorOptions,
)
from loadtrim.orchestrator.orchestrator import CommandNotFoundError, LocalOrchestrator
from loadtrim.orchestrator.supervisor import INSTANCES_MAX, Phase
from loadtrim_agent.observability.text import duration, number

from .arguments import seconds_of_at_least
from .printing import LinePrinter
from .text import group_line

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_parser", "default_name", "run"]

NAME_LENGTH_MAX = 40
"""Of a name that nobody has given: a host name and a file's name have it in them. Chosen."""
FAILURES_MAX = 6
"""All instances ending right after their start so many times in a row: there is no point in going on."""
GROUP_LINE_SECONDS = 10.0
LOOK_SECONDS = 0.25
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_SECONDS = 30.0
"""A process that ended is looked for among the members for so long. Chosen: three default session timeouts."""
JOIN_SECONDS = 60.0
"""An instance that has run for so long and is no member is told of. Chosen: imports and a rebalance take less."""
REPEAT_SECONDS = 1.0
"""A signal so soon after the first one is the same one again: ``timeout`` signals its child and then its group. Chosen:
far above what lies between these two, below what a person takes to see that a second Ctrl-C is needed."""
RICH_MISSING = "loadtrim up: the live view needs rich (pip install rich); going on with plain lines"


def add_parser(subparsers: SubParsers) -> None:
    """Add the command ``up`` to the command line."""
    parser = subparsers.add_parser(
        "up",
        help="run a command as several instances, scaled by its group's leader",
        usage="loadtrim up [--replicas N] [option ...] -- COMMAND [ARGUMENT ...]",
        description="Runs COMMAND as several instances, takes its group's scaling webhook, and shows the group. "
        "Ctrl-C ends all instances in order, a second one (not within a second) at once; none outlives this command. "
        "Instances get LOADTRIM_HTTP=127.0.0.1:0 (any free port, whatever is set: they share a machine), "
        "LOADTRIM_INSTANCE and LOADTRIM_SCALER... of this command.",
    )
    parser.add_argument("--replicas", type=_replicas, metavar="N", help="at first (default: 1, or the least)")
    parser.add_argument(
        "--min", type=_replicas, metavar="N",
        help="not fewer (passed on as LOADTRIM_MIN_REPLICAS), unless `loadtrim scale GROUP N --force` asks for it",
    )  # fmt: skip
    parser.add_argument("--max", type=_replicas, metavar="N", help="never more (passed on as LOADTRIM_MAX_REPLICAS)")
    parser.add_argument(
        "--startup-delay", type=seconds_of_at_least(0.0), default=0.0, metavar="S",
        help="wait S seconds before every start but the first ones: stands in for machines that take a while",
    )  # fmt: skip
    parser.add_argument(
        "--stop-timeout", type=seconds_of_at_least(0.0), metavar="S",
        help="seconds from SIGTERM to SIGKILL (default: LOADTRIM_DRAIN_SECONDS, LOADTRIM_EXIT_SECONDS and 5 more)",
    )  # fmt: skip
    parser.add_argument(
        "--name", type=_name, metavar="NAME", help="instances are NAME-1, NAME-2, ... (default: the command's name)"
    )
    parser.add_argument(
        "--log-dir", type=Path, metavar="DIR", help="a log per instance there (default: a new one in /tmp)"
    )
    parser.add_argument("--group", metavar="GROUP", help="the group to show (default: the one that asks for replicas)")
    parser.add_argument(
        "--plain", action="store_true", help="lines instead of the live view, with what instances print"
    )
    parser.add_argument("--json", action="store_true", help="as --plain, every line a JSON object")
    add_arguments(parser)
    parser.set_defaults(run=run, command=())


def run(args: argparse.Namespace) -> int:
    """Run instances until asked to stop; returns the exit code."""
    if not args.command:
        raise UsageError(
            "loadtrim up was given no command.",
            "There is nothing to run.",
            "Write it after two dashes: loadtrim up --replicas 3 -- python service.py",
        )
    least, least_said = _bound(args.min, "--min", "LOADTRIM_MIN_REPLICAS", 1)
    most, most_said = _bound(args.max, "--max", "LOADTRIM_MAX_REPLICAS", INSTANCES_MAX)
    if least > most:
        raise UsageError(
            f"{least_said} is more than {most_said}.",
            "No number of replicas is both, and no instance would start.",
            "Give --min <= --max; each stands for the variable of its name.",
        )
    if args.replicas is None:
        args.replicas = min(max(least, 1), INSTANCES_MAX)
    elif not least <= args.replicas <= most:
        bound = f"more than {most_said}" if args.replicas > most else f"less than {least_said}"
        raise UsageError(
            f"--replicas {args.replicas} is {bound}.",
            "The group's leader would end or start the difference at once, and no instance was started.",
            "Give --min <= --replicas <= --max; the bounds may stand in the variables of their names too.",
        )
    connection = connection_from(args)
    if args.group is not None:
        topic_of(args.group)  # refuses what is no id of a group
    return asyncio.run(_run(args, connection))


def _bound(given: int | None, option: str, variable: str, default: int) -> tuple[int, str]:
    """Return a bound and how it was said: by the option, else by the variable, which the instances read as well."""
    from_env = os.environ.get(variable, "").strip()
    if given is None and from_env.isdecimal():
        return int(from_env), f"{variable}={from_env}"
    bound = default if given is None else given
    return bound, f"{option} {bound}"


async def _run(args: argparse.Namespace, connection: Connection) -> int:
    session = _Session(args, connection)
    try:
        return await session.run()
    finally:
        session.close()


def default_name(command: Sequence[str]) -> str:
    """Return what instances of a command are called: ``service`` for ``python -u examples/service.py --fast``."""
    words = list(command)
    name = Path(words[0]).name
    if re.fullmatch(r"python[\d.]*", name):
        script = _script(words[1:]) or name
        name = script.rpartition(".")[2] if "-m" in words[:-1] else Path(script).stem
    return re.sub(r"[^a-zA-Z0-9-]+", "-", name)[:NAME_LENGTH_MAX].strip("-").lower() or "replica"


def _script(words: Sequence[str]) -> str | None:
    """Return the word of Python's command line that names what runs; None: there is none, or its text is a word."""
    value_follows = False
    for word in words:
        if word == "-c":
            return None
        if not value_follows and not word.startswith("-"):
            return word
        value_follows = word in ("-W", "-X")
    return None


class _Session:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace, connection: Connection) -> None:
        self._args = args
        self._connection = connection
        self._events: deque[OrchestratorEvent] = deque(maxlen=200)
        self._stop = asyncio.Event()
        self._follower: GroupFollower | None = None
        self._ended = EndedProcesses(connection, self._on_told)
        self._exits: list[OrchestratorEvent] = []
        """Processes that ended and were not seen as members yet."""
        self._last_words = ""
        self._trouble_said = ""
        self._strangers_said: set[int | None] = set()
        """Ids of processes that were told to be no member."""
        self._signalled_at: float | None = None
        self._printer = LinePrinter(asyncio.get_running_loop(), self._stop.set)
        live = None if args.plain or args.json or not sys.stdout.isatty() else _live_module()
        self._live: Any = live
        self._orchestrator = LocalOrchestrator(args.command, self._options(plain=live is None), self._on_event)

    async def run(self) -> int:
        """Until a signal, or until nothing comes up; returns the exit code."""
        self._started_at = time.time()
        loop = asyncio.get_running_loop()
        # What was ignored at the start stays so: `nohup`, and Ctrl-C in a shell's background job.
        heard = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        for number_ in heard:
            loop.add_signal_handler(number_, self._on_signal)
        try:
            async with self._orchestrator as up, self._showing():
                self._say_start(up)
                failing = await self._until_stopped(up)
                await up.stop()
        except CommandNotFoundError as error:
            raise UsageError(
                f"{error}.", "Nothing was started.", "The command comes after two dashes: -- COMMAND"
            ) from error
        except LogDirectoryTakenError as error:
            raise UsageError(
                f"{error}.",
                "Both would write into the same files, so nothing was started.",
                "Name another directory with --log-dir, and with --name other instances.",
            ) from error
        except LogDirectoryError as error:
            raise UsageError(
                f"{error}.",
                "Nothing was started.",
                "Name a directory that can be written with --log-dir, or take --plain.",
            ) from error
        finally:
            for number_ in heard:
                loop.remove_signal_handler(number_)
            await self._ended.close()
        self._say_end()
        if failing:
            raise self._gave_up()
        return EXIT_FAILED if self._orchestrator.killed else EXIT_DONE

    def _options(self, plain: bool) -> OrchestratorOptions:
        args = self._args
        return OrchestratorOptions(
            replicas=args.replicas,
            name=args.name or default_name(args.command),
            replicas_min=args.min,
            replicas_max=args.max,
            startup_delay_seconds=args.startup_delay,
            stop_seconds=args.stop_timeout,
            log_directory=args.log_dir,
            on_line=self._on_line if plain else None,
        )

    async def _until_stopped(self, up: LocalOrchestrator) -> bool:
        """Return whether it ended because nothing comes up."""
        said_at = time.monotonic()
        while not self._stop.is_set() and not up.over:
            if up.failing(FAILURES_MAX):
                return True
            self._tell_exits()
            self._say_trouble()
            if self._live is None and time.monotonic() - said_at >= GROUP_LINE_SECONDS:
                said_at = time.monotonic()
                self._say_group()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
        return False

    @contextlib.asynccontextmanager
    async def _showing(self) -> Any:
        """Follow the group and draw the live view, where there is one."""
        tasks = [asyncio.create_task(self._follow(), name="follow")]
        if self._live is not None:
            tasks.append(asyncio.create_task(self._live.LiveView(self._scene).run(), name="live view"))
            # Without its view a person would look at nothing: end, and say why.
            tasks[-1].add_done_callback(lambda _: self._stop.set())
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _follow(self) -> None:
        """Follow the group that was named, or the first one that asks for replicas."""
        group = self._args.group
        if group is None:
            try:
                await self._orchestrator.wait_until(lambda up: bool(up.groups), None)
            except TimeoutError:
                return  # Everything has ended, and nobody ever asked.
            group = self._orchestrator.groups[0]
        self._follower = GroupFollower(self._connection, group)
        await self._follower.run()

    def _scene(self) -> Any:
        up, follower, now = self._orchestrator, self._follower, time.time()
        if follower is None:
            trouble = "not known yet: name it with --group, or wait until it asks for replicas"
        else:
            trouble = follower.trouble
        stopping = "ending (Ctrl-C again: at once)" if self._stop.is_set() else "Ctrl-C ends all"
        return self._live.Scene(
            now=now,
            started_at=self._started_at,
            state=follower.state() if follower is not None and not trouble else None,
            trouble=trouble,
            instances=up.instances,
            wanted=up.wanted,
            replica_seconds=up.replica_seconds(),
            events=tuple(self._events),
            footer=f"{stopping}; logs in {up.log_directory}",
        )

    def _on_signal(self) -> None:
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
        elif now - self._signalled_at >= REPEAT_SECONDS:
            self._orchestrator.kill()
        self._stop.set()

    def _on_event(self, event: OrchestratorEvent) -> None:
        self._events.append(event)
        if event.kind is EventKind.EXITED:
            self._on_exit(event)
        if self._live is None:
            body = {key: value for key, value in _event_body(event).items() if value not in (None, "")}
            self._say(event.words, {"kind": event.kind.value, **body})

    def _on_exit(self, event: OrchestratorEvent) -> None:
        if event.exit_code != 0:
            self._last_words = event.words
        self._exits.append(event)
        self._tell_exits()

    def _tell_exits(self) -> None:
        """Tell the group of processes that have ended, once it is seen: in its first seconds it is not followed yet."""
        follower, now = self._follower, time.time()
        # Where all end, nobody is there to take anything over.
        if not self._exits or follower is None or follower.trouble or self._stop.is_set():
            return
        state = follower.state()
        self._exits = [
            event
            for event in self._exits
            if event.process_id is not None
            and now - event.at < EXIT_SECONDS
            and not self._ended.process_ended(state, event.instance, event.process_id, event.start)
        ]

    def _on_told(self, words: str) -> None:
        if self._live is None:
            self._say(words, {"kind": "told", "at": time.time(), "text": words})

    def _on_line(self, instance: str, line: str) -> None:
        lost = self._printer.lost
        if not self._printer.has_room:
            self._printer.lost += 1
            return
        if lost:
            self._printer.lost = 0
            words = f"{lost} lines of instances are left out here: whoever reads this is too slow"
            self._say(words, {"kind": "left_out", "at": time.time(), "lines": lost})
        body = {"kind": "output", "at": time.time(), "instance": instance, "line": line}
        self._say(line, body, instance)

    def _say_start(self, up: LocalOrchestrator) -> None:
        if self._live is None:
            words = f"takes plans at {up.url}" + (f"; logs in {up.log_directory}" if up.log_directory else "")
            self._say(
                words, {"kind": "ready", "at": time.time(), "url": up.url, "log_directory": _text(up.log_directory)}
            )

    def _say_group(self) -> None:
        follower = self._follower
        if follower is None or follower.trouble:
            return
        state = follower.state()
        self._say(group_line(state), {"kind": "group", **msgspec.to_builtins(state)})
        self._say_strangers(state)

    def _say_strangers(self, state: ObservedGroup) -> None:
        """Say which instances have not joined the group, once for each process. The live view shows members."""
        known = {each.instance for each in state.members}
        if state.mixed or "" in known:
            return  # Any instance may be one of those whose name is not known.
        now = time.time()
        for each in self._orchestrator.instances:
            runs = 0.0 if each.started_at is None or each.phase is not Phase.RUNNING else now - each.started_at
            if runs < JOIN_SECONDS or each.name in known or each.process_id in self._strangers_said:
                continue
            self._strangers_said.add(each.process_id)
            words = (
                f"{each.name} has run for {duration(runs)} and is no member of {state.group}: it owns nothing there, "
                "and is a replica here. Look at what it does before its consumer starts"
            )
            body = {"kind": "no_member", "at": now, "instance": each.name, "group": state.group, "text": words}
            self._say(words, body)

    def _say_trouble(self) -> None:
        """Say why the group cannot be followed, once for each reason. The live view shows it all the time."""
        follower = self._follower
        if self._live is not None or follower is None or follower.trouble in (CONNECTING, self._trouble_said):
            return
        self._trouble_said = trouble = follower.trouble
        if trouble:
            words = (
                f"cannot follow {follower.group}: {trouble.rstrip('.')}; "
                "its members are not told of processes that end, and it is tried again"
            )
            self._say(words, {"kind": "trouble", "at": time.time(), "group": follower.group, "text": trouble})

    def _say_end(self) -> None:
        up = self._orchestrator
        most = max((running for _, running in up.history), default=0)
        minutes = number(up.replica_seconds() / 60)
        ran = duration(time.time() - self._started_at)
        words = f"ran for {ran}: {minutes} replica-minutes, at most {most} at once, {up.killed} killed"
        if up.log_directory:
            words += f"; logs in {up.log_directory}"
        body = {
            "kind": "end",
            "at": time.time(),
            "replica_seconds": up.replica_seconds(),
            "replicas_most": most,
            "killed": up.killed,
            "log_directory": _text(up.log_directory),
        }
        self._say(words, body)

    def _gave_up(self) -> CommandError:
        logs = self._orchestrator.log_directory
        return CommandError(
            f"Every instance ended right after its start, {FAILURES_MAX} times in a row.",
            f"The command does not run: {self._last_words or 'it ends by itself, with code 0'}.",
            f"Run it by itself to see why{f', or read {logs}' if logs else ''}.",
        )

    def _say(self, words: str, body: dict[str, Any], who: str = "loadtrim") -> None:
        if self._args.json:
            self._printer.print(msgspec.json.encode(body).decode())
        elif self._live is None:
            width = max(len("loadtrim"), len(self._orchestrator.options.name) + 3)
            self._printer.print(f"{who:<{width}} | {words}")
        else:
            self._printer.print(f"loadtrim up: {words}")

    def close(self) -> None:
        """Wait for what is still to be printed."""
        self._printer.close()


def _event_body(event: OrchestratorEvent) -> dict[str, Any]:
    return {
        "at": event.at,
        "instance": event.instance,
        "text": event.text,
        "process_id": event.process_id,
        "exit_code": event.exit_code,
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _live_module() -> Any:
    """The live view, or None with a note where rich is missing."""
    try:
        from . import live
    except ImportError:
        print(RICH_MISSING, file=sys.stderr)
        return None
    return live


def _name(text: str) -> str:
    try:
        return OrchestratorOptions(name=text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _replicas(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= INSTANCES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of replicas: 1 to {INSTANCES_MAX}")
    return int(text)
