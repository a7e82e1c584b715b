"""How many replicas, and when: the port :class:`.policy.Policy` and the policy ``objective``."""
