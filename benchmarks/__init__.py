"""Benchmarks: one module per target, each runnable alone.

``python -m benchmarks`` runs all of them on a Kafka of its own and writes ``out/benchmarks.json`` and the table
``out/benchmarks.md``. ``python -m benchmarks NAME`` reruns one of them and keeps the figures of the others.
"""

import sys
from pathlib import Path

EXAMPLES = str(Path(__file__).resolve().parents[1] / "examples")
"""The folder of what benchmarks play; it is not installed, and a command has to work as it is typed."""

if EXAMPLES not in sys.path:
    sys.path.append(EXAMPLES)
