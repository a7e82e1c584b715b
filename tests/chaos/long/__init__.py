"""Faults on the real thing for minutes or an hour: ``python -m chaos.long`` (``make chaos MINUTES=``)."""
