"""The Spark pipeline: members' telemetry becomes a history, the history becomes baselines for the groups' leaders.

Transformations (:mod:`.parse`, :mod:`.days`, :mod:`.learn`, :mod:`.records`) are pure functions on DataFrames;
:mod:`.history`, :mod:`.ingest` and :mod:`.baselines` read and write. The command line: ``python -m loadtrim_spark``.
"""

from __future__ import annotations
