"""Benchmarks: one module per target, each runnable alone.

``python -m benchmarks`` runs all of them on a Kafka of its own and writes ``out/benchmarks.json`` and the table
``out/benchmarks.md``. ``python -m benchmarks NAME`` reruns one of them and keeps the figures of the others.
"""
