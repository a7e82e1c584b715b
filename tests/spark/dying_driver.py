"""A driver that dies by SIGKILL when its first batch is in the history, and neither in the ledger nor committed."""

from __future__ import annotations

import os
import signal
from typing import Any

from loadtrim_spark import history
from loadtrim_spark.history import Tables
from loadtrim_spark.ingest import Source, ingest
from loadtrim_spark.session import session

insert = history._insert_new


def dying(rows: Any, path: str, *others: Any) -> None:
    if path.endswith("/ledger"):
        os.killpg(os.getpgid(0), signal.SIGKILL)  # Python and Java: the test gave both a group of their own
    insert(rows, path, *others)


history._insert_new = dying
ingest(
    session("local[1]", "600m"),
    Source(os.environ["BOOTSTRAP"], {}),
    Tables(os.environ["STATE"]),
    batch_records_max=100,
)
