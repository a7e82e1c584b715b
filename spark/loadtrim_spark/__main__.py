from __future__ import annotations

import sys

from loadtrim_spark.cli.main import main

sys.exit(main())
