"""The agent embedded in every consumer of a group. Users import :mod:`loadtrim`; this package is private."""

__version__ = "0.1.0"
