"""``loadtrim up``: a local orchestrator that runs the processes a group's leader asks for."""
