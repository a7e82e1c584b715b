"""Thin shells around the core: connections, group requests, the control log, fetching. No policy lives here."""
