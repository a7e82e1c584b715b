"""Questions that take several runs: the group to begin with, the fixed group that does, what would help."""
