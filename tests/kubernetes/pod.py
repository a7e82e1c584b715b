"""``python -m kubernetes.pod DIRECTORY PROGRAM``: a program as in a pod, whose ServiceAccount's files are in DIRECTORY.

A process of this machine cannot have them where a pod does. Nothing else of the program is changed.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from loadtrim_agent.leader.scaling.kubernetes import client

if __name__ == "__main__":
    client.ACCOUNT = Path(sys.argv[1])  # type: ignore[misc]
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
