"""A driver that dies by SIGKILL in the middle of its first batch: where, ``DIE`` says.

``ledger``: the batch is in the history, and not in the ledger; ``checkpoint``: it is everywhere, and Spark has not
noted that it was played. Run as a program, in a process group of its own.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from loadtrim_spark.pipeline import history, ingest
from loadtrim_spark.pipeline.history import Tables
from loadtrim_spark.pipeline.source import Source
from loadtrim_spark.session import session


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)  # Python and Java


def before_ledger(*_: Any) -> int:
    die()
    return 0


def before_checkpoint(*arguments: Any, take_in: Any = ingest.take_in) -> None:
    take_in(*arguments)
    die()


if os.environ["DIE"] == "ledger":
    history._note = before_ledger
else:
    ingest.take_in = before_checkpoint  # type: ignore[assignment]
ingest.ingest(
    session("local[1]", "600m", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}),
    Source(os.environ["BOOTSTRAP"], {}),
    Tables(os.environ["STATE"]),
    batch_records_max=100,
)
