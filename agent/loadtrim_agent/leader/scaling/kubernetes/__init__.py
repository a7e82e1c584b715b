"""The backend ``kubernetes``: the leader changes the replicas of its own workload, with the least rights there are.

How it works, and why it is safe: docs/decisions/kubernetes.md.
"""
