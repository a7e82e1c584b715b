"""``python -m loadtrim``: the command line."""

import sys

from loadtrim.cli import main

if __name__ == "__main__":
    sys.exit(main())
