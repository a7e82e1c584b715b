"""Replica backends: the port, the reconciler, and one module each backend."""
