"""The Spark pipeline: members' telemetry becomes a history, the history becomes baselines for the groups' leaders.

Transformations (:mod:`.pipeline.parse`, :mod:`.learning.days`, :mod:`.learning.learn`, :mod:`.learning.records`) are
pure functions on DataFrames;
:mod:`.pipeline.history`, :mod:`.pipeline.ingest` and :mod:`.pipeline.baselines` read and write. The command line:
``python -m loadtrim_spark``.
"""

from __future__ import annotations
