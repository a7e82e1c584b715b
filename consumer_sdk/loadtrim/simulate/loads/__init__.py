"""Loads: generated, read from files, and what the history expects of them."""
