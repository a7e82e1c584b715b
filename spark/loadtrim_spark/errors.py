"""What the pipeline says when it cannot do what it was asked to, and what Java threw, by type."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

__all__ = ["JAVA_ERRORS", "PipelineError", "explained", "is_conflict", "is_of_data", "java_types", "reason_of"]

JAVA_ERRORS = (PySparkException, Py4JJavaError)
"""What a call into Spark or Kafka's client raises."""
CAUSES_MAX = 12
REASON_LENGTH_MAX = 400
OF_DATA = frozenset({
    "SparkArithmeticException", "SparkNumberFormatException", "SparkDateTimeException", "ArithmeticException",
    "SparkArrayIndexOutOfBoundsException",
})  # fmt: skip
"""Thrown where ANSI mode refuses to reckon on."""
UNREADABLE = frozenset({
    "UnsupportedFileSystemException", "FileNotFoundException", "SparkFileNotFoundException", "JsonParseException",
    "DeltaAnalysisException", "DeltaFileNotFoundException", "DeltaIllegalStateException",
})  # fmt: skip
"""Thrown where tables are not there, not what they should be, or where Spark cannot look."""

NOT_STARTED = ("[JAVA_GATEWAY_EXITED]", "[JAVA_GATEWAY_NOT_FOUND]", "[INVALID_DRIVER_MEMORY]",
               "Could not parse Master URL")  # fmt: skip
"""Said by Spark where it did not come to run at all."""


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


def java_types(error: BaseException) -> list[str]:
    """Java classes of an error and of its causes, outermost first; none where nothing was thrown in Java."""
    return [throwable.getClass().getName() for throwable in _chain(error)]


def reason_of(error: BaseException) -> str:
    """The innermost cause in one line."""
    chain = _chain(error)
    if not chain:
        return str(error).splitlines()[0][:REASON_LENGTH_MAX] if str(error) else type(error).__name__
    for throwable in reversed(chain):
        said = throwable.getMessage()
        if said:
            name = throwable.getClass().getSimpleName()
            return f"{name}: {' '.join(str(said).split())}"[:REASON_LENGTH_MAX]
    return str(chain[-1].getClass().getSimpleName())


def is_conflict(error: BaseException) -> bool:
    """Whether another command changed the same part of a table meanwhile: trying again is all it takes."""
    return any(name.startswith(("io.delta.exceptions.", "org.apache.spark.sql.delta.Concurrent"))
               and not name.endswith("ProtocolChangedException") for name in java_types(error))  # fmt: skip


def is_of_data(error: BaseException) -> bool:
    """Return whether a number in the data is to blame, an overflow say, and neither Spark nor the machine."""
    return any(name.rpartition(".")[2] in OF_DATA for name in java_types(error))


def explained(error: BaseException, root: str, bootstrap: str) -> PipelineError:
    """What a failure of Spark or Kafka means to the user, judged by the types of what was thrown.

    Args:
        error: what was caught.
        root: directory of the tables.
        bootstrap: the brokers.
    """
    said, types = reason_of(error), {name.rpartition(".")[2] for name in java_types(error)}
    again = "What was written before is whole; nothing is written twice or lost by starting again."
    if any(sign in said for sign in NOT_STARTED):
        return PipelineError(
            f"Spark could not be started: {said}", "Nothing was read or written.",
            "Is Java 17 installed, and does JAVA_HOME name it, or PATH? Is --memory an amount such as 1g, of 500m or "
            "more, and --master a URL such as local[*]?",
        )  # fmt: skip
    if any(name.endswith("AuthorizationException") for name in types):
        return PipelineError(
            f"Kafka at {bootstrap} does not allow it: {said}", again,
            "Give the user of --kafka-option READ and DESCRIBE on the topics with the prefix __loadtrim. and, for "
            "baselines, WRITE, DESCRIBE and CREATE on the baseline topic (docs/spark.md has the commands).",
        )  # fmt: skip
    if any(name.endswith("AuthenticationException") for name in types):
        return PipelineError(
            f"Kafka at {bootstrap} does not know this user: {said}", again,
            "Give the same SASL or TLS settings that other Java clients use, each as --kafka-option NAME=VALUE.",
        )  # fmt: skip
    if types & {"AccessControlException", "AccessDeniedException", "ParentNotDirectoryException"} or (
        "FileAlreadyExistsException" in types and "CommitFailedException" not in types
    ):
        return PipelineError(
            f"{root} cannot be written or read: {said}", again,
            "Give this user the right to write and read there, or name another directory with --state.",
        )  # fmt: skip
    if is_conflict(error):
        return PipelineError(
            f"Another command changed the same days of the tables meanwhile: {said}", again,
            "Start it again when the other one has ended.",
        )  # fmt: skip
    if types & UNREADABLE:
        return PipelineError(
            f"The tables in {root} cannot be read: {said}",
            "They are not loadtrim's, are damaged, or are in a file system that this Spark does not know. The command "
            "got no further; what it wrote before that is whole.",
            "Name the directory that ingest writes to with --state; a URL of another file system needs its jars "
            "(spark-submit --packages). If it is the right one, move it away and ingest again what Kafka still holds.",
        )  # fmt: skip
    return PipelineError(
        f"Spark gave up: {said}", again,
        "Start it again. If it ends the same way, the line above is the innermost cause; --verbose shows the whole.",
    )  # fmt: skip


def _chain(error: BaseException) -> list[Any]:
    """The Java throwable behind a Python error, and its causes."""
    throwable = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    chain: list[Any] = []
    while throwable is not None and len(chain) < CAUSES_MAX:
        chain.append(throwable)
        throwable = throwable.getCause()
    return chain
