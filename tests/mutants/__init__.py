"""Mutants: named small bugs, and for each of them the test or the seed that notices it.

``python -m mutants`` plants one bug at a time in a copy of the tree and runs its killer. The lists stand in ``lists``.
"""
