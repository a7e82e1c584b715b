"""Benchmarks beside their peers: ``make bench``."""
