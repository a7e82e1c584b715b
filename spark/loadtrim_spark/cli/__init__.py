"""The command ``python -m loadtrim_spark``."""
