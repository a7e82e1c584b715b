"""Kafka's own assignors, and the assignor that spreads unclaimed partitions. Pure functions."""
