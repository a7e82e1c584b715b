"""Policies and packers of the papers and of other autoscalers. The registry finds them by name; the planner never
imports them."""
