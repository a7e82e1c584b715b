"""The simulated group: virtual time, members, work, handoffs, outcome."""
