"""The command line: ``loadtrim COMMAND ...``, also ``python -m loadtrim``.

Each command is a module with ``add_parser(subparsers)`` and ``run(args) -> exit code``. Exit codes: 0 done, 1 failed,
2 wrong use, a variable that cannot be used included. What commands print for programs goes to standard output, and
errors go to standard error.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import logging
import os
import shlex
import sys
from collections.abc import Collection, Sequence

from loadtrim.errors import EXIT_DONE, EXIT_FAILED, EXIT_WRONG_USE, CommandError
from loadtrim.observer.connection import CLIENT_LOG
from loadtrim.settings import SettingsError
from loadtrim_agent import __version__
from loadtrim_agent.common.errors import LoadtrimError

from . import doctor, explain, groups, kafka, manual_override, policies, simulate, status, up

__all__ = ["main"]

COMMAND_WITH_COMMAND = "up"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after the program's name; None: those of this process.

    Returns:
        The exit code.
    """
    _make_printable()
    words = list(sys.argv[1:] if argv is None else argv)
    words, command = _split(words)
    parser = _parser()
    if words and (unknown := _unknown(words[0], _commands(parser))):
        print(f"loadtrim: {unknown}", file=sys.stderr)
        return EXIT_WRONG_USE
    try:
        args, rest = parser.parse_known_args(words)
        if rest:
            parser.error(_not_understood(words[0], rest, dashes=command is not None))
    except SystemExit as end:  # argparse has printed the help or what is wrong
        return int(end.code or EXIT_DONE)
    if command is not None:
        args.command = tuple(command)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    with CLIENT_LOG.listening():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        exit_code: int = args.run(args)
        sys.stdout.flush()
    except CommandError as error:
        print(f"loadtrim: {error}", file=sys.stderr)
        return error.exit_code
    except LoadtrimError as error:
        print(f"loadtrim: {error}", file=sys.stderr)
        return EXIT_WRONG_USE if isinstance(error, SettingsError) else EXIT_FAILED
    except KeyboardInterrupt:
        print("loadtrim: interrupted; what was under way may or may not have been done", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain at its exit otherwise.
        if error.errno == errno.EPIPE:  # Whoever read the output has seen enough (`| head`).
            return EXIT_DONE
        print(f"loadtrim: what was printed is not complete: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    return exit_code


def _make_printable() -> None:
    """Standard output may be closed (``>&-``), or know no letters but ASCII: neither is a reason to end."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unknown(word: str, commands: Collection[str]) -> str:
    """Return what to say of a command that there is not; empty where there is, or the word is an option."""
    if word.startswith("-") or word in commands:
        return ""
    nearest = difflib.get_close_matches(word, commands, n=1)
    hint = f"Did you mean {nearest[0]}?" if nearest else f"There are: {', '.join(commands)}."
    return f"There is no command {word!r}, so nothing was done. {hint}"


def _not_understood(command: str, rest: Sequence[str], *, dashes: bool) -> str:
    """Return what to say of words that no option takes, such as a command without two dashes before it."""
    words = shlex.join(rest)
    if command == COMMAND_WITH_COMMAND and not dashes and not rest[0].startswith("-"):
        return f"{words} stands before any dashes; write it after two: loadtrim up [option ...] -- {words}"
    return f"unrecognized arguments: {words}"


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    """Return the commands that a parser knows."""
    return [name for each in parser._actions if isinstance(each, argparse._SubParsersAction) for name in each.choices]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loadtrim", description="Kafka consumer groups that keep their latency promise by themselves."
    )
    parser.add_argument("--version", action="version", version=f"loadtrim {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (up, doctor, groups, status, explain, manual_override, policies, simulate, kafka):
        module.add_parser(subparsers)
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Take what stands after ``--`` away from ``loadtrim up``: it is somebody else's, dashes included."""
    if words[:1] != [COMMAND_WITH_COMMAND] or "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]
