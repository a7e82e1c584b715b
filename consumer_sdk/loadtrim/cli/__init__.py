"""The command line: ``loadtrim COMMAND ...``, also ``python -m loadtrim``.

Each command is a module with ``add_parser(subparsers)`` and ``run(args) -> exit code``. Exit codes: 0 done, 1 failed,
2 wrong use. What commands print for programs goes to standard output, errors go to standard error.
"""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import sys
from collections.abc import Sequence

from loadtrim.errors import EXIT_DONE, EXIT_FAILED, CommandError
from loadtrim.observer.connection import CLIENT_LOG
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
    try:
        args = parser.parse_args(words)
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
        return EXIT_FAILED
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
