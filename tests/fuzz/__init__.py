"""Random and mutated records through every decoder, a leader's planner, and a member's machine: ``make fuzz``.

No record may crash, starve or grow a member, and each that is refused is counted (docs/security.md).
"""
