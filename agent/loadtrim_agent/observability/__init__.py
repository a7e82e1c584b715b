"""What the agent tells people and programs: metrics, HTTP endpoints, status, sentences."""
