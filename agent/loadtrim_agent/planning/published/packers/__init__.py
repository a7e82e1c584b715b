"""Packers of the papers, and Kafka's assignors as packers."""
