"""Benchmarks: one module per target, each runnable alone.

``python -m benchmarks`` runs all of them on a Kafka of its own and writes ``docs/benchmarks.json`` and the table
``docs/benchmarks.md``; ``python -m benchmarks NAME`` reruns one of them and keeps the figures of the others.
"""
