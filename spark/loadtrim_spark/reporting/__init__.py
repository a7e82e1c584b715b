"""The report on a group's baselines, for people."""
