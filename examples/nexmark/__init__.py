"""Nexmark queries 1, 3 and 11 as consumers of a group, and what feeds them."""
