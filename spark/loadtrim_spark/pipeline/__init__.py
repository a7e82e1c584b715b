"""From telemetry to a history, and from the history to published baselines."""
