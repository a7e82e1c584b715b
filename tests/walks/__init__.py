"""Walks through the running code: which files a record, a report, a release and a setting pass.

``python -m walks`` (with ``PYTHONPATH=tests``) prints the transcripts; ``--write`` also puts them into
``tests/golden/walks`` and their diagrams into ``docs/architecture.md``.
"""
