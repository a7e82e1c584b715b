"""The composition root: the agent, its services, its thread, its settings."""
