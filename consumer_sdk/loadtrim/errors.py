"""Errors of the command line with their texts, and its exit codes."""

from __future__ import annotations

from loadtrim_agent.common.errors import LoadtrimError

__all__ = ["EXIT_DONE", "EXIT_FAILED", "EXIT_WRONG_USE", "CommandError", "UsageError"]

EXIT_DONE, EXIT_FAILED, EXIT_WRONG_USE = 0, 1, 2


class CommandError(LoadtrimError):
    """The outside is wrong. Caught in ``main``, which prints it and returns 1.

    Args:
        happened: what happened.
        means: what it means for the user.
        do: what to do about it.
    """

    exit_code = EXIT_FAILED

    def __init__(self, happened: str, means: str, do: str) -> None:
        super().__init__(happened, means, do)
        self.happened = happened
        self.means = means
        self.do = do

    def __str__(self) -> str:
        return f"{self.happened}\n  {self.means}\n  {self.do}"


class UsageError(CommandError):
    """The command was called wrongly. Caught in ``main``, which prints it and returns 2."""

    exit_code = EXIT_WRONG_USE
