"""Values and functions that every room may use: partitions, errors, checks, names, clocks, Kafka's assignors."""
