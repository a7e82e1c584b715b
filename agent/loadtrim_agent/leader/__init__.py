"""What the group's leader does: read telemetry, plan in a worker thread, publish the decision, ask for replicas."""
