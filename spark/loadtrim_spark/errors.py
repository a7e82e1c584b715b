"""What the pipeline says when it cannot do what it was asked to."""

from __future__ import annotations

__all__ = ["PipelineError"]


class PipelineError(Exception):
    """The outside is wrong. Caught in ``main``, which prints it and returns 1.

    Args:
        happened: what happened.
        means: what it means for the user.
        do: what to do about it.
    """

    def __init__(self, happened: str, means: str, do: str) -> None:
        super().__init__(happened, means, do)

    def __str__(self) -> str:
        return "\n  ".join(self.args)
